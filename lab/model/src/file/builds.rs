//! Kernel builds of a plan. A plan with kernel builds has no other measurements.

use super::{InvalidFile, Reader, Study};
use crate::config::Config;
use crate::cpus;
use crate::kernel_build::{self, Column, Place, Size};
use crate::operation::Operation;
use crate::request::EXACT_BOOTS;
use serde::Deserialize;
use toml::Spanned;
use trapline_abi::OpSet;

/// Table `kernel-build` as deserialized.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    size: Option<Spanned<String>>,
    cpus: Option<Spanned<Vec<u32>>>,
    place: Option<Spanned<Vec<String>>>,
}

impl Reader<'_> {
    /// Returns a study of builds, in all environments of the plan.
    pub(super) fn builds(
        &self,
        plan: &super::Written,
        builds: &Spanned<Written>,
        configs: &[Config],
    ) -> Result<Study, InvalidFile> {
        let (written, at) = (builds.get_ref(), builds.span().start);
        if let Some(name) = plan.other_measurement() {
            let what = format!(
                "a plan with [kernel-build] measures nothing else: leave '{name}' out, or make \
                 it a plan of its own"
            );
            return Err(self.bad(at, what));
        }
        let environments: Vec<_> = configs.iter().map(|config| config.environment).collect();
        let one = Column {
            cpus: 1,
            place: Place::Same,
        };
        let mut reasons = environments.iter().map(|id| one.unsupported_reason(*id));
        if let Some(reason) = reasons.find_map(|reason| reason) {
            return Err(self.bad(at, reason));
        }
        let size = written.size.as_ref().map_or(Ok(Size::Mini), |size| {
            self.each(size, |name| {
                named(name, Size::from_name(name), "mini, tiny or def")
            })
        })?;
        let cpus = written
            .cpus
            .as_ref()
            .map_or(Ok(kernel_build::CPUS.to_vec()), |numbers| {
                self.numbers("cpus", numbers, 1..=cpus::MOST)
            })?;
        let places = self.places(written.place.as_ref())?;
        let study = self.common(plan, OpSet::EMPTY)?;
        Ok(Study {
            configs: kernel_build::configs(&environments, &cpus, &places),
            long: vec![Operation::Build(size)],
            exact_boots: study.boots.unwrap_or(EXACT_BOOTS),
            boots: Some(study.boots.unwrap_or(kernel_build::BUILDS)),
            ..study
        })
    }

    fn places(&self, written: Option<&Spanned<Vec<String>>>) -> Result<Vec<Place>, InvalidFile> {
        let Some(all) = written else {
            return Ok(Place::ALL.to_vec());
        };
        let known = |name: &String| named(name, Place::from_name(name), "same or disjoint");
        let places: Result<Vec<_>, _> = all.get_ref().iter().map(known).collect();
        let places = places.map_err(|what| self.bad(all.span().start, what))?;
        if places.is_empty() {
            Err(self.bad(all.span().start, "place: expected same or disjoint"))
        } else {
            Ok(places)
        }
    }
}

fn named<T>(name: &str, found: Option<T>, expected: &str) -> Result<T, String> {
    found.ok_or_else(|| format!("'{name}': expected {expected}"))
}

impl super::Written {
    /// Returns the first key of another measurement.
    pub(super) fn other_measurement(&self) -> Option<&'static str> {
        let all = [
            ("contenders", !self.configs.is_empty()),
            ("workloads", !self.workloads.is_empty()),
            ("preset", self.preset.is_some()),
            ("exact-boots", self.exact_boots.is_some()),
            ("machine", !self.machine.is_empty()),
            ("irq", !self.irq.is_empty()),
            ("tables", !self.tables.is_empty()),
        ];
        let mut there = all.into_iter().filter(|(_, is_there)| *is_there);
        there.next().map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use crate::file::read;
    use crate::kernel_build::Size;
    use crate::Operation;
    use expect_test::expect;
    use trapline_abi::OpSet;

    #[test]
    fn a_plan_has_kernel_builds() {
        let text = "environments = ['host', 'uml']\nboots = 3\nseed = 9\n\
                    [kernel-build]\nsize = 'tiny'\ncpus = [1, 2]\nplace = ['same']";
        let study = read(text).unwrap();
        let names: Vec<_> = study.configs.iter().map(ToString::to_string).collect();
        let expected = [
            "host:jobs=1,place=same",
            "host:jobs=2,place=same",
            "uml:jobs=1,place=same",
            "uml:jobs=2,place=same",
        ];
        assert_eq!(names, expected);
        assert_eq!(study.long, [Operation::Build(Size::Tiny)]);
        assert_eq!((study.operations, study.seed), (OpSet::EMPTY, Some(9)));
        assert_eq!((study.boots, study.exact_boots), (Some(3), 3));
        let usual = read("environments = ['uml', 'host']\n[kernel-build]").unwrap();
        assert_eq!(usual.configs.len(), 8);
        assert_eq!(usual.long, [Operation::Build(Size::Mini)]);
        assert_eq!((usual.boots, usual.exact_boots), (Some(3), 2));
        assert!(read("environments = ['host']").unwrap().long.is_empty());
    }

    #[test]
    fn errors_have_a_line() {
        let texts = [
            "environments = ['kvm']\n[kernel-build]",
            "environments = ['host']\nworkloads = ['basic']\n[kernel-build]",
            "environments = ['uml']\n[machine]\ncpus = 2\n[kernel-build]",
            "environments = ['host']\n[kernel-build]\nsize = 'huge'",
            "environments = ['host']\n[kernel-build]\ncpus = [1, 65]",
            "environments = ['host']\n[kernel-build]\ncpus = []",
            "environments = ['host']\n[kernel-build]\nplace = ['near']",
            "environments = ['host']\n[kernel-build]\nplace = []",
            "environments = ['host']\n[kernel-build]\njobs = 3",
        ];
        let errors = texts.map(|text| format!("{text:?}\n  {}\n", read(text).unwrap_err()));
        expect![[r#"
            "environments = ['kvm']\n[kernel-build]"
              line 2: a kernel build is not supported by kvm, as it runs the image, which is not Linux: leave it out, or choose from host, kvm/linux, qemu-kvm/linux, qemu-tcg/linux, uml, sim/linux, sim/kvm/linux, sim/qemu-kvm/linux, sim/nova/linux with --env
            "environments = ['host']\nworkloads = ['basic']\n[kernel-build]"
              line 3: a plan with [kernel-build] measures nothing else: leave 'workloads' out, or make it a plan of its own
            "environments = ['uml']\n[machine]\ncpus = 2\n[kernel-build]"
              line 4: a plan with [kernel-build] measures nothing else: leave 'machine' out, or make it a plan of its own
            "environments = ['host']\n[kernel-build]\nsize = 'huge'"
              line 3: 'huge': expected mini, tiny or def
            "environments = ['host']\n[kernel-build]\ncpus = [1, 65]"
              line 3: cpus: expected numbers from 1 to 64
            "environments = ['host']\n[kernel-build]\ncpus = []"
              line 3: cpus: expected numbers from 1 to 64
            "environments = ['host']\n[kernel-build]\nplace = ['near']"
              line 3: 'near': expected same or disjoint
            "environments = ['host']\n[kernel-build]\nplace = []"
              line 3: place: expected same or disjoint
            "environments = ['host']\n[kernel-build]\njobs = 3"
              line 3: unknown field `jobs`, expected one of `size`, `cpus`, `place`
        "#]].assert_eq(&errors.concat());
    }
}
