//! Requests as a store has them: what was asked for, as JSON. Equal requests are equal, whatever the order of their options.

use crate::config::Config;
use crate::irq;
use crate::names;
use crate::operation::Operation;
use crate::request::{Aim, Request, EXACT_BOOTS};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::{block, OpSet};

/// A request without facts of its host, and without its seed, which the run has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct RecordedRequest {
    /// Purpose.
    pub aim: Aim,
    /// Configurations.
    pub configs: BTreeSet<String>,
    /// Names of workloads and operations.
    pub operations: Vec<String>,
    /// Preset, if guests measure operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Boots on the wall clock, if not the preset's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boots: Option<u32>,
    /// Boots on an exact clock, if not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact_boots: Option<u32>,
    /// Settings of all configurations that do not set them themselves; without files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Settings of workload irq, if it is measured: those of [`irq::Settings::facts`] without `irq-`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub irq: BTreeMap<String, String>,
    /// Settings of workload block, if it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
    /// Settings of trials of packets, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
    /// Commands of the user's forwarders.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub forwarders: BTreeMap<String, String>,
    /// The slice of the plan, if it was not executed whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// Words of a command line that an earlier version wrote, if they cannot be parsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unparsed: Option<String>,
}

/// Largest extent of workload block in the configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Used part of the disk, in MiB.
    pub mib: u32,
    /// Number of small requests at queue depth 32.
    pub requests: u32,
}

/// Settings of trials of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// Duration of a trial, in milliseconds.
    pub milliseconds: u32,
    /// CPU of the ports, and that of the forwarder.
    pub cpus: [u32; 2],
}

/// Start of the names of the facts of workload irq.
const IRQ: &str = "irq-";

impl RecordedRequest {
    /// Records a request.
    pub fn of(request: &Request) -> Self {
        let of_guests = names::describe(request.operations);
        let of_guests = of_guests.split(',').filter(|name| !name.is_empty());
        let long = request.long.iter().map(|operation| operation.path());
        let environments = request.configs.iter().map(|config| config.environment);
        let commands =
            environments.filter_map(|id| Some((id.forwarder()?, id.forwarder_command()?)));
        let measures = |set| request.operations.intersects(set);
        let has_packets = request
            .long
            .iter()
            .any(|it| matches!(it, Operation::Packets(_)));
        let (mib, requests) = request.block.largest(&request.configs);
        Self {
            aim: request.aim.clone(),
            configs: request.configs.iter().map(Config::to_string).collect(),
            operations: of_guests.map(str::to_owned).chain(long).collect(),
            preset: (!request.operations.is_empty()).then(|| request.preset.name().to_owned()),
            boots: request.boots,
            exact_boots: Some(request.exact_boots).filter(|boots| *boots != EXACT_BOOTS),
            settings: request.overrides.texts(),
            irq: if measures(irq::operations()) {
                without_prefix(&request.irq.facts())
            } else {
                BTreeMap::new()
            },
            block: measures(block::operations()).then_some(Block { mib, requests }),
            packets: has_packets.then_some(Packets {
                milliseconds: request.packets.milliseconds,
                cpus: request.packets.cpus,
            }),
            forwarders: commands
                .map(|(name, command)| (name.to_owned(), command))
                .collect(),
            slice: request.slice.map(|slice| slice.to_string()),
            unparsed: None,
        }
    }

    /// Parses the text of a store; `None` if it is no request.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the operations of guests: all known ones if this version does not know one.
    pub fn guest_operations(&self) -> OpSet {
        let of_guests = self.operations.iter().filter(|name| long(name).is_none());
        let sets = of_guests.map(|name| names::operations(name).unwrap_or(OpSet::ALL));
        if self.unparsed.is_some() {
            OpSet::ALL
        } else {
            sets.collect()
        }
    }

    /// Returns the operations that no guest repeats.
    pub fn long_operations(&self) -> Vec<Operation> {
        self.operations
            .iter()
            .filter_map(|name| long(name))
            .collect()
    }

    /// Returns the settings of workload irq.
    pub fn irq_settings(&self) -> irq::Settings {
        let facts = self.irq.iter();
        let facts = facts.map(|(name, value)| (format!("{IRQ}{name}"), value.clone()));
        irq::Settings::from_facts(&facts.collect())
    }
}

/// Formats the JSON of a store.
impl std::fmt::Display for RecordedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let json = serde_json::to_string(self).map_err(|_| std::fmt::Error)?;
        f.write_str(&json)
    }
}

/// Returns an operation that no guest repeats.
fn long(name: &str) -> Option<Operation> {
    Operation::from_path(name).filter(|operation| operation.guest().is_none())
}

fn without_prefix(facts: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let all = facts.iter();
    let all = all.map(|(name, value)| (name.trim_start_matches(IRQ).to_owned(), value.clone()));
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_build::{configs, Place, Size};
    use crate::packets::{Direction, PacketOperation, Purpose};
    use crate::EnvironmentId;
    use expect_test::expect;

    fn request(operations: &str) -> Request {
        Request {
            configs: vec![EnvironmentId::SIM_KVM.into(), EnvironmentId::HOST.into()],
            operations: names::operations(operations).unwrap(),
            seed: 7,
            ..Request::default()
        }
    }

    #[test]
    fn a_request_is_recorded_as_data() {
        let some = Request {
            boots: Some(3),
            exact_boots: 1,
            overrides: "cpus=2,cap=25".parse().unwrap(),
            aim: Aim::Check("a b.json".to_owned()),
            ..request("basic,exits/port-out")
        };
        let recorded = RecordedRequest::of(&some);
        expect![[r#"{"aim":{"check":"a b.json"},"configs":["host","sim/kvm"],"operations":["basic","exits/port-out"],"preset":"quick","boots":3,"exact-boots":1,"settings":{"cap":"25","cpus":"2"}}"#]]
            .assert_eq(&recorded.to_string());
        assert_eq!(
            RecordedRequest::parse(&recorded.to_string()),
            Some(recorded.clone())
        );
        assert_eq!(recorded.guest_operations(), some.operations);
        let reversed = Request {
            configs: some.configs.iter().rev().cloned().collect(),
            seed: 9,
            ..some
        };
        assert_eq!(RecordedRequest::of(&reversed), recorded);
    }

    #[test]
    fn settings_of_workloads_are_recorded_where_they_are_measured() {
        let recorded = RecordedRequest::of(&request("irq,block"));
        expect![[r#"{"aim":"report","configs":["host","sim/kvm"],"operations":["irq","block"],"preset":"quick","irq":{"between":"halt","load":"none","period":"10ms","pin":"free","sched":"other","threshold":"30us"},"block":{"mib":256,"requests":32768}}"#]]
            .assert_eq(&recorded.to_string());
        assert_eq!(recorded.irq_settings(), irq::Settings::default());
    }

    #[test]
    fn builds_and_packets_are_recorded_as_operations() {
        let command = "./mine 'a b' {a} {b}";
        let mine = EnvironmentId::define_forwarder("mine-of-records", command).unwrap();
        let mut all = configs(&[EnvironmentId::HOST], &[1], &[Place::Same]);
        all.push(mine.into());
        let rate = PacketOperation {
            direction: Direction::One,
            size: 60,
            purpose: Purpose::Maximum,
            distance: None,
        };
        let long = vec![Operation::Build(Size::Mini), Operation::Packets(rate)];
        let request = Request {
            configs: all,
            long: long.clone(),
            ..Request::default()
        };
        let recorded = RecordedRequest::of(&request);
        expect![[r#"{"aim":"report","configs":["host:jobs=1,place=same","net/mine-of-records"],"operations":["kernel-build/mini","packets/rate:size=60,direction=one"],"packets":{"milliseconds":300,"cpus":[1,0]},"forwarders":{"mine-of-records":"./mine 'a b' {a} {b}"}}"#]]
            .assert_eq(&recorded.to_string());
        assert_eq!(recorded.long_operations(), long);
        assert_eq!(recorded.guest_operations(), OpSet::EMPTY);
    }

    #[test]
    fn what_a_later_version_wrote_may_be_anything() {
        let later = r#"{"operations":["basic","new/operation"],"new":[1]}"#;
        let later = RecordedRequest::parse(later).unwrap();
        assert_eq!(later.guest_operations(), OpSet::ALL);
        assert_eq!(RecordedRequest::parse("--env host"), None);
    }
}
