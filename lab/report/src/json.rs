//! The JSON object of a report. `docs/json.md` describes it; its keys are stable, and others may be
//! added.

use crate::aa_control::JsonAaControl;
use crate::cell_columns::JsonCell;
use crate::co_tenants::JsonCoTenant;
use crate::common_factor::{self, JsonPair};
use crate::document::json::{JsonInterval, Object};
use crate::irq::json::JsonInterrupts;
use crate::report::HostOfRun;
use crate::{block, kernel_build, packets, populate, Report};
use serde::Serialize;
use std::collections::BTreeMap;
use trapline_stats::host_use::HostUse;
use trapline_stats::{BootTimeline, Cell};

/// Returns the object of a report.
pub fn object(report: &Report, cells: &[Cell]) -> Object {
    let mut object = Object::default();
    object.push("trapline", report.version.clone());
    if let Some(seed) = report.seed {
        object.push("seed", seed);
    }
    object.push("facts", report.facts.clone());
    object.push_some("hosts", all::<_, JsonHost>(&report.hosts));
    object.push("cells", all::<_, JsonCell>(cells));
    object.push("environments", environments(report));
    object.push(
        "timelines",
        all::<_, JsonTimeline>(&report.summary.timelines),
    );
    let interrupts = report.interrupts.iter();
    let interrupts = interrupts.map(|one| JsonInterrupts::new(one, &report.irq));
    object.push("interrupts", interrupts.collect::<Vec<_>>());
    object.push_some("populate", populate::regions(report));
    object.push_some("requests", block::json(report));
    object.push_some("kernel-builds", kernel_build::json(report));
    object.push_some("packets", packets::json::cells(report));
    object.push_some("co_tenants", all::<_, JsonCoTenant>(&report.co_tenants));
    let pairs = common_factor::pairs(report, cells);
    let pairs = pairs.iter().map(|pair| JsonPair::new(report, pair));
    object.push_some("common_factors", pairs.collect());
    object.push_some("host_use", all::<_, JsonHostUse>(&report.summary.host_use));
    object.push("problems", problems(report));
    if let Some(control) = &report.aa_control {
        object.push("aa_control", JsonAaControl::from(control));
    }
    object
}

/// Converts all values.
fn all<'a, T, J: From<&'a T>>(values: &'a [T]) -> Vec<J> {
    values.iter().map(J::from).collect()
}

#[derive(Serialize)]
struct JsonHost {
    id: String,
    name: String,
    boots: usize,
    facts: BTreeMap<String, String>,
}

impl From<&HostOfRun> for JsonHost {
    fn from(one: &HostOfRun) -> Self {
        Self {
            id: one.host.id.clone(),
            name: one.host.name.clone(),
            boots: one.boots,
            facts: one.host.facts.clone(),
        }
    }
}

#[derive(Serialize)]
struct JsonEnvironment {
    what: &'static str,
    clock: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip: Option<String>,
    facts: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct JsonTimeline {
    environment: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    settings: String,
    clock: &'static str,
    unit: &'static str,
    launches: usize,
    stages: Vec<JsonStage>,
    total: f64,
    unexplained: f64,
    disordered: usize,
    own_memory_bytes: Option<u64>,
}

#[derive(Serialize)]
struct JsonStage {
    stage: &'static str,
    reached: f64,
    min: f64,
    step: f64,
    step_interval: Option<JsonInterval>,
}

#[derive(Serialize)]
struct JsonHostUse {
    environment: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    settings: String,
    fact: &'static str,
    unit: String,
    estimate: f64,
    interval: Option<JsonInterval>,
    boots: usize,
}

impl From<&HostUse> for JsonHostUse {
    fn from(one: &HostUse) -> Self {
        Self {
            environment: one.config.environment.name(),
            settings: one.config.overrides.to_string(),
            fact: one.fact,
            unit: one.unit.trim().to_owned(),
            estimate: one.estimate,
            interval: one.interval.map(JsonInterval::from),
            boots: one.boots,
        }
    }
}

#[derive(Serialize)]
struct JsonProblem {
    environment: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    settings: String,
    problem: String,
    boots: usize,
}

impl From<&BootTimeline> for JsonTimeline {
    fn from(timeline: &BootTimeline) -> Self {
        let stages = timeline.stages.iter().map(|at| JsonStage {
            stage: at.stage.name(),
            reached: at.reached,
            min: at.min,
            step: at.step,
            step_interval: at.step_interval.map(JsonInterval::from),
        });
        Self {
            environment: timeline.config.environment.name(),
            settings: timeline.config.overrides.to_string(),
            clock: timeline.clock.name(),
            unit: if timeline.clock.is_exact() {
                "insn"
            } else {
                "ns"
            },
            launches: timeline.launches,
            stages: stages.collect(),
            total: timeline.total,
            unexplained: timeline.unexplained,
            disordered: timeline.disordered,
            own_memory_bytes: timeline.own_memory,
        }
    }
}

/// Returns every configuration that has a cell or was asked for.
fn environments(report: &Report) -> BTreeMap<String, JsonEnvironment> {
    let configs = report.configs().into_iter();
    configs
        .map(|config| {
            let skip = report.skips.iter().find(|(skipped, _)| skipped == config);
            let facts = report.summary.facts.get(config);
            let environment = JsonEnvironment {
                what: config.environment.description(),
                clock: config.clock().name(),
                skip: skip.map(|(_, reason)| reason.clone()),
                facts: facts.cloned().unwrap_or_default(),
            };
            (config.to_string(), environment)
        })
        .collect()
}

fn problems(report: &Report) -> Vec<JsonProblem> {
    let problems = report.summary.problems.iter();
    problems
        .map(|((config, problem), boots)| JsonProblem {
            environment: config.environment.name(),
            settings: config.overrides.to_string(),
            problem: problem.clone(),
            boots: *boots,
        })
        .collect()
}
