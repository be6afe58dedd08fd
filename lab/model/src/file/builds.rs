//! Kernel builds of a plan. A plan with kernel builds has no other measurements.

use super::{InvalidFile, Reader};
use crate::config::Config;
use crate::cpus;
use crate::kernel_build::{self, BuildRequest, Place, Size};
use serde::Deserialize;
use toml::Spanned;

/// Table `kernel-build` as deserialized.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    size: Option<Spanned<String>>,
    cpus: Option<Spanned<Vec<u32>>>,
    place: Option<Spanned<Vec<String>>>,
}

impl Reader<'_> {
    /// Returns the requested builds, in all environments of the plan.
    pub(super) fn builds(
        &self,
        plan: &super::Written,
        configs: &[Config],
    ) -> Result<Option<BuildRequest>, InvalidFile> {
        let Some(builds) = &plan.builds else {
            return Ok(None);
        };
        let at = builds.span().start;
        if let Some(name) = plan.other_measurement() {
            let what = format!(
                "a plan with [kernel-build] measures nothing else: leave '{name}' out, or make \
                 it a plan of its own"
            );
            return Err(self.bad(at, what));
        }
        for config in configs {
            let one = kernel_build::Column::all(&[1], &[Place::Same])[0];
            if let Some(reason) = one.unsupported_reason(config.environment) {
                return Err(self.bad(at, reason));
            }
        }
        let written = builds.get_ref();
        Ok(Some(BuildRequest {
            environments: configs.iter().map(|it| it.environment).collect(),
            size: written.size.as_ref().map_or(Ok(Size::Mini), |size| {
                self.each(size, |name| {
                    named(name, Size::from_name(name), "mini, tiny or def")
                })
            })?,
            cpus: self.cpus(written.cpus.as_ref())?,
            places: self.places(written.place.as_ref())?,
            boots: self.boots(plan.boots.as_ref())?,
            // A run of a plan without a seed draws one.
            seed: plan.seed.unwrap_or_default(),
        }))
    }

    fn cpus(&self, written: Option<&Spanned<Vec<u32>>>) -> Result<Vec<u32>, InvalidFile> {
        let Some(all) = written else {
            return Ok(BuildRequest::CPUS.to_vec());
        };
        let (numbers, most) = (all.get_ref(), cpus::MOST);
        if numbers.iter().all(|number| (1..=most).contains(number)) && !numbers.is_empty() {
            Ok(numbers.clone())
        } else {
            Err(self.bad(
                all.span().start,
                format!("cpus: expected numbers from 1 to {most}"),
            ))
        }
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
    use crate::kernel_build::Place;
    use crate::EnvironmentId;
    use expect_test::expect;

    #[test]
    fn a_plan_has_kernel_builds() {
        let text = "environments = ['host', 'uml']\nboots = 3\nseed = 9\n\
                    [kernel-build]\nsize = 'tiny'\ncpus = [1, 2]\nplace = ['same']";
        let builds = read(text).unwrap().builds.unwrap();
        assert_eq!(
            builds.to_string(),
            "kernel-build --env host,uml --size tiny --cpus 1,2 --place same --seed 9 --boots 3"
        );
        let usual = read("environments = ['uml', 'host']\n[kernel-build]").unwrap();
        let usual = usual.builds.unwrap();
        assert_eq!(
            usual.environments,
            [EnvironmentId::HOST, EnvironmentId::UML]
        );
        assert_eq!(
            (usual.cpus, usual.places),
            (vec![1, 2], Place::ALL.to_vec())
        );
        assert!(read("environments = ['host']").unwrap().builds.is_none());
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
              line 2: kvm runs the image, which is not Linux: choose from host, kvm/linux, qemu-kvm/linux, qemu-tcg/linux, uml, sim/linux, sim/kvm/linux, sim/qemu-kvm/linux, sim/nova/linux with --env
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
