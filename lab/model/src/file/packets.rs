//! Rates of packets of a plan. A plan with packets has no other measurements.

use super::{InvalidFile, Reader};
use crate::packets::{Direction, PacketRequest, Ring};
use serde::Deserialize;
use std::ops::RangeInclusive;
use toml::Spanned;

/// Table `packets` as deserialized. Keys are the options of `trapline net`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    path: Vec<String>,
    size: Option<Spanned<Vec<u32>>>,
    ring: Option<Spanned<Vec<String>>>,
    queues: Option<Spanned<Vec<u32>>>,
    direction: Option<Spanned<Vec<String>>>,
    duration: Option<Spanned<u32>>,
    rounds: Option<Spanned<u32>>,
}

impl Reader<'_> {
    /// Returns the requested rates. The CPUs are those of the host that measures.
    pub(super) fn packets(
        &self,
        plan: &super::Written,
    ) -> Result<Option<PacketRequest>, InvalidFile> {
        let Some(packets) = &plan.packets else {
            return Ok(None);
        };
        let written = packets.get_ref();
        self.check_packets(plan, written, packets.span().start)?;
        let number = |name, value: &Option<_>, usual, range| {
            value
                .as_ref()
                .map_or(Ok(usual), |it| self.number(name, it, range))
        };
        let numbers = |name, value: &Option<_>, usual: &[u32], range| {
            value
                .as_ref()
                .map_or(Ok(usual.to_vec()), |it| self.numbers(name, it, range))
        };
        Ok(Some(PacketRequest {
            paths: written.path.clone(),
            forwarders: Vec::new(),
            sizes: numbers(
                "size",
                &written.size,
                &PacketRequest::SIZES,
                PacketRequest::FRAME,
            )?,
            rings: self.names(
                written.ring.as_ref(),
                Ring::Split,
                Ring::from_name,
                &Ring::NAMES,
            )?,
            queues: numbers("queues", &written.queues, &[1], PacketRequest::QUEUES)?,
            directions: self.names(
                written.direction.as_ref(),
                Direction::One,
                Direction::from_name,
                &Direction::NAMES,
            )?,
            rate: None,
            search: false,
            milliseconds: number(
                "duration",
                &written.duration,
                PacketRequest::MILLISECONDS,
                PacketRequest::DURATIONS,
            )?,
            rounds: number(
                "rounds",
                &written.rounds,
                PacketRequest::ROUNDS,
                PacketRequest::MOST_ROUNDS,
            )?,
            cpus: [0; 2],
            // A run of a plan without a seed draws one.
            seed: plan.seed.unwrap_or_default(),
        }))
    }

    /// Checks that there are paths, and no other measurements.
    fn check_packets(
        &self,
        plan: &super::Written,
        written: &Written,
        at: usize,
    ) -> Result<(), InvalidFile> {
        if let Some(name) = plan.other_than_packets() {
            let what = format!(
                "a plan with [packets] measures nothing else: leave '{name}' out, or make it a plan of its own"
            );
            return Err(self.bad(at, what));
        }
        if written.path.is_empty() {
            Err(self.bad(
                at,
                "path: expected forwarders, as path = [\"switch\", \"bridge\"]",
            ))
        } else {
            Ok(())
        }
    }

    fn numbers(
        &self,
        name: &str,
        written: &Spanned<Vec<u32>>,
        range: RangeInclusive<u32>,
    ) -> Result<Vec<u32>, InvalidFile> {
        let values = written.get_ref();
        if values.iter().all(|value| range.contains(value)) && !values.is_empty() {
            Ok(values.clone())
        } else {
            let [least, most] = [range.start(), range.end()];
            let what = format!("{name}: expected numbers from {least} to {most}");
            Err(self.bad(written.span().start, what))
        }
    }

    fn names<T>(
        &self,
        written: Option<&Spanned<Vec<String>>>,
        usual: T,
        from_name: impl Fn(&str) -> Option<T>,
        known: &[&str],
    ) -> Result<Vec<T>, InvalidFile> {
        let Some(all) = written else {
            return Ok(vec![usual]);
        };
        let values = all.get_ref().iter().map(|name| from_name(name));
        let values: Option<Vec<T>> = values.collect();
        values.filter(|values| !values.is_empty()).ok_or_else(|| {
            let what = format!("expected a list of {}", known.join(", "));
            self.bad(all.span().start, what)
        })
    }
}

impl super::Written {
    /// Returns the first key that a plan with packets does not have.
    fn other_than_packets(&self) -> Option<&'static str> {
        let others = [
            ("environments", !self.environments.is_empty()),
            ("boots", self.boots.is_some()),
            ("budget", self.budget.is_some()),
            ("kernel-build", self.builds.is_some()),
        ];
        let mut there = others.into_iter().filter(|(_, is_there)| *is_there);
        let first = there.next().map(|(name, _)| name);
        first.or_else(|| self.other_measurement())
    }
}

#[cfg(test)]
mod tests {
    use crate::file::read;
    use expect_test::expect;

    #[test]
    fn a_plan_has_packets() {
        let text =
            "seed = 9\n[packets]\npath = ['switch', 'bridge']\nsize = [60]\nring = ['packed']\n\
                    queues = [1, 4]\ndirection = ['one', 'half']\nduration = 100\nrounds = 3";
        let study = read(text).unwrap();
        assert!(study.configs.is_empty());
        expect!["net --path switch,bridge --size 60 --ring packed --direction one,half --duration 100 --rounds 3 --cpus 0,0 --seed 9 --queues 1,4"]
            .assert_eq(&study.packets.unwrap().to_string());
        let usual = read("[packets]\npath = ['veth']").unwrap().packets.unwrap();
        expect!["net --path veth --size 60,200,1500 --ring split --direction one --duration 300 --rounds 5 --cpus 0,0 --seed 0"]
            .assert_eq(&usual.to_string());
    }

    #[test]
    fn errors_have_a_line() {
        let texts = [
            "environments = ['host']\n[packets]\npath = ['switch']",
            "workloads = ['basic']\n[packets]\npath = ['switch']",
            "[packets]\npath = ['switch']\n[kernel-build]",
            "[packets]\npath = []",
            "[packets]\nsize = [60]",
            "[packets]\npath = ['switch']\nsize = [59]",
            "[packets]\npath = ['switch']\nring = ['odd']",
            "[packets]\npath = ['switch']\nqueues = [1, 9]",
            "[packets]\npath = ['switch']\nrounds = 0",
        ];
        let errors = texts.map(|text| format!("{text:?}\n  {}\n", read(text).unwrap_err()));
        expect![[r#"
            "environments = ['host']\n[packets]\npath = ['switch']"
              line 2: a plan with [packets] measures nothing else: leave 'environments' out, or make it a plan of its own
            "workloads = ['basic']\n[packets]\npath = ['switch']"
              line 2: a plan with [packets] measures nothing else: leave 'workloads' out, or make it a plan of its own
            "[packets]\npath = ['switch']\n[kernel-build]"
              line 1: a plan with [packets] measures nothing else: leave 'kernel-build' out, or make it a plan of its own
            "[packets]\npath = []"
              line 1: path: expected forwarders, as path = ["switch", "bridge"]
            "[packets]\nsize = [60]"
              line 1: missing field `path`
            "[packets]\npath = ['switch']\nsize = [59]"
              line 3: size: expected numbers from 60 to 1514
            "[packets]\npath = ['switch']\nring = ['odd']"
              line 3: expected a list of split, packed
            "[packets]\npath = ['switch']\nqueues = [1, 9]"
              line 3: queues: expected numbers from 1 to 8
            "[packets]\npath = ['switch']\nrounds = 0"
              line 3: rounds: expected a number from 1 to 1000
        "#]].assert_eq(&errors.concat());
    }
}
