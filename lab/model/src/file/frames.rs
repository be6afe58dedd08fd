//! Rates of packets of a plan. A plan with packets has no other measurements.

use super::{InvalidFile, Reader, Study};
use crate::environment::EnvironmentId;
use crate::forwarders;
use crate::operation::Operation;
use crate::packets::{self, Direction, Purpose, Ring};
use serde::Deserialize;
use std::ops::RangeInclusive;
use toml::Spanned;
use trapline_abi::OpSet;

/// Table `packets` as deserialized. Keys are the options of `trapline net`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    path: Vec<Spanned<String>>,
    size: Option<Spanned<Vec<u32>>>,
    ring: Option<Spanned<Vec<String>>>,
    queues: Option<Spanned<Vec<u32>>>,
    direction: Option<Spanned<Vec<String>>>,
    duration: Option<Spanned<u32>>,
    rounds: Option<Spanned<u32>>,
}

impl Reader<'_> {
    /// Returns a study of packets. The CPUs are those of the host that measures.
    pub(super) fn packets(
        &self,
        plan: &super::Written,
        packets: &Spanned<Written>,
    ) -> Result<Study, InvalidFile> {
        let (written, at) = (packets.get_ref(), packets.span().start);
        self.check_packets(plan, written, at)?;
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
        let defaults = packets::Settings::default();
        let sizes = numbers("size", &written.size, &packets::SIZES, packets::FRAME)?;
        let directions = self.names(
            written.direction.as_ref(),
            Direction::One,
            Direction::from_name,
            &Direction::NAMES,
        )?;
        let rings = self.names(
            written.ring.as_ref(),
            Ring::Split,
            Ring::from_name,
            &Ring::NAMES,
        )?;
        let queues = numbers("queues", &written.queues, &[1], packets::QUEUES)?;
        let environments = written.path.iter().map(|name| self.forwarder(name));
        let environments = environments.collect::<Result<Vec<_>, _>>()?;
        let rounds = number(
            "rounds",
            &written.rounds,
            packets::ROUNDS,
            packets::MOST_ROUNDS,
        )?;
        let milliseconds = number(
            "duration",
            &written.duration,
            defaults.milliseconds,
            packets::DURATIONS,
        )?;
        Ok(Study {
            configs: packets::configs(&environments, &rings, &queues),
            long: packets::operations(&sizes, &directions, &[Purpose::Maximum, Purpose::HalfLoad])
                .into_iter()
                .map(Operation::Packets)
                .collect(),
            boots: Some(rounds),
            packets: packets::Settings {
                milliseconds,
                ..defaults
            },
            ..self.common(plan, OpSet::EMPTY)?
        })
    }

    fn forwarder(&self, name: &Spanned<String>) -> Result<EnvironmentId, InvalidFile> {
        self.each(name, |name| {
            EnvironmentId::known_forwarder(name).ok_or_else(|| {
                let known = forwarders::NAMES.join(", ");
                format!("unknown forwarder '{name}': choose from {known}")
            })
        })
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

    /// Returns the numbers of a list, all of which are in `range`.
    pub(super) fn numbers(
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
        let names: Vec<_> = study.configs.iter().map(ToString::to_string).collect();
        let expected = [
            "net/switch:ring=packed",
            "net/switch:ring=packed,queues=4",
            "net/bridge:ring=packed",
            "net/bridge:ring=packed,queues=4",
        ];
        assert_eq!(names, expected);
        let operations: Vec<_> = study.long.iter().map(|it| it.path()).collect();
        let expected = [
            "packets/rate:size=60,direction=one",
            "packets/latency:size=60,direction=one",
            "packets/rate:size=60,direction=half",
        ];
        assert_eq!(operations, expected);
        assert_eq!((study.boots, study.packets.milliseconds), (Some(3), 100));
        let usual = read("[packets]\npath = ['veth']").unwrap();
        assert_eq!(usual.configs[0].to_string(), "net/veth");
        assert_eq!((usual.configs.len(), usual.long.len()), (1, 6));
        assert_eq!((usual.boots, usual.packets.milliseconds), (Some(5), 300));
    }

    #[test]
    fn errors_have_a_line() {
        let texts = [
            "environments = ['host']\n[packets]\npath = ['switch']",
            "workloads = ['basic']\n[packets]\npath = ['switch']",
            "[packets]\npath = ['switch']\n[kernel-build]",
            "[packets]\npath = []",
            "[packets]\nsize = [60]",
            "[packets]\npath = ['swich']",
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
            "[packets]\npath = ['swich']"
              line 2: unknown forwarder 'swich': choose from switch, testpmd, ovs, tap, veth, bridge, vde
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
