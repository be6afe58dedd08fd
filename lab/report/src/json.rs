//! A report for programs. `docs/json.md` describes this form; keys it names
//! stay as they are, others may come.

use crate::agreement::{self, JsonPair};
use crate::block::{self, JsonRequests};
use crate::chance::JsonChance;
use crate::irq::json::JsonInterrupts;
use crate::neighbours::JsonNeighbour;
use crate::populate::{self, Given};
use crate::{notes, Report};
use serde::Serialize;
use std::collections::BTreeMap;
use trapline_model::Clock;
use trapline_stats::{BootTimeline, Cell, Figure, Flag, Value};

/// The report as one JSON object, on several lines, with a line feed at its end.
pub fn json(report: &Report) -> String {
    written(&document(report, &report.cells()))
}

/// Several reports as one such object, which has them under `variants`.
pub(crate) fn json_of_all(reports: &[Report]) -> String {
    let cells: Vec<_> = reports.iter().map(Report::cells).collect();
    let all = reports.iter().zip(&cells);
    written(&Variants {
        variants: all.map(|(report, cells)| document(report, cells)).collect(),
    })
}

pub(crate) fn written(value: &impl Serialize) -> String {
    // Serialising maps with string keys to a string cannot fail.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// What [`json`] or [`json_of_all`] says, in as few characters as there have to be.
pub(crate) fn compact(reports: &[&Report]) -> String {
    let cells: Vec<_> = reports.iter().map(|report| report.cells()).collect();
    let all = reports.iter().zip(&cells);
    let mut all: Vec<_> = all.map(|(report, cells)| document(report, cells)).collect();
    let text = match all.len() {
        1 => serde_json::to_string(&all.remove(0)),
        _ => serde_json::to_string(&Variants { variants: all }),
    };
    text.unwrap_or_default()
}

#[derive(Serialize)]
struct Variants<'a> {
    variants: Vec<Document<'a>>,
}

fn document<'a>(report: &'a Report, cells: &'a [Cell]) -> Document<'a> {
    Document {
        trapline: &report.version,
        seed: report.seed,
        variant: report.variant.to_string(),
        facts: &report.facts,
        cells: cells.iter().map(JsonCell::from).collect(),
        environments: environments(report, cells),
        timelines: report
            .summary
            .timelines
            .iter()
            .map(JsonTimeline::from)
            .collect(),
        interrupts: report
            .interrupts
            .iter()
            .map(|interrupts| JsonInterrupts::new(interrupts, &report.irq))
            .collect(),
        populate: populate::given(report),
        requests: block::json(report),
        neighbours: report.neighbours.iter().map(JsonNeighbour::from).collect(),
        agreement: agreement::json(report, cells),
        problems: problems(report),
        chance: report.chance.as_ref().map(JsonChance::from),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    trapline: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    variant: String,
    facts: &'a BTreeMap<String, String>,
    cells: Vec<JsonCell<'a>>,
    environments: BTreeMap<&'static str, JsonEnvironment<'a>>,
    timelines: Vec<JsonTimeline>,
    interrupts: Vec<JsonInterrupts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    populate: Vec<Given>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    requests: Vec<JsonRequests>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    neighbours: Vec<JsonNeighbour>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agreement: Vec<JsonPair>,
    problems: Vec<JsonProblem<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chance: Option<JsonChance>,
}

#[derive(Serialize)]
pub(crate) struct JsonCell<'a> {
    environment: &'static str,
    workload: &'static str,
    operation: &'static str,
    clock: &'static str,
    unit: &'static str,
    #[serde(flatten)]
    value: JsonValue<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum JsonValue<'a> {
    Measured(Box<JsonFigure>),
    Skip {
        skip: &'a str,
    },
    Failed {
        failed: &'a str,
        failure: &'static str,
    },
}

#[derive(Serialize)]
struct JsonFigure {
    estimate: f64,
    low: Option<f64>,
    high: Option<f64>,
    min: f64,
    samples: usize,
    boots: usize,
    ratio: Option<f64>,
    exits: Option<f64>,
    host_cpu_ns: Option<f64>,
    max: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    level: Option<f64>,
    ratio_level: Option<f64>,
    flags: Vec<&'static str>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct JsonEnvironment<'a> {
    what: &'static str,
    clock: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip: Option<&'a str>,
    facts: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct JsonTimeline {
    environment: &'static str,
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
}

#[derive(Serialize)]
struct JsonProblem<'a> {
    environment: &'static str,
    problem: &'a str,
    boots: usize,
}

impl<'a> From<&'a Cell> for JsonCell<'a> {
    fn from(cell: &'a Cell) -> Self {
        Self {
            environment: cell.environment.name(),
            workload: cell.op.workload().name(),
            operation: cell.op.name(),
            clock: cell.clock.name(),
            unit: cell.unit,
            value: match &cell.value {
                Value::Measured(figure) => JsonValue::Measured(Box::new(figure.as_ref().into())),
                Value::Skip(reason) => JsonValue::Skip { skip: reason },
                Value::Failed(failure) => JsonValue::Failed {
                    failed: &failure.reason,
                    failure: failure.kind.name(),
                },
            },
        }
    }
}

impl From<&Figure> for JsonFigure {
    fn from(figure: &Figure) -> Self {
        Self {
            estimate: figure.estimate,
            low: figure.interval.map(|one| one.low),
            high: figure.interval.map(|one| one.high),
            min: figure.min,
            samples: figure.samples,
            boots: figure.boots,
            ratio: figure.ratio.map(|ratio| ratio.estimate),
            exits: figure.exits,
            host_cpu_ns: figure.host_cpu_ns,
            max: figure.max,
            p50: figure.p50,
            p90: figure.p90,
            p99: figure.p99,
            ratio_low: figure.ratio.and_then(|ratio| Some(ratio.interval?.low)),
            ratio_high: figure.ratio.and_then(|ratio| Some(ratio.interval?.high)),
            level: figure.interval.map(|one| one.level),
            ratio_level: figure.ratio.and_then(|ratio| Some(ratio.interval?.level)),
            flags: figure.flags.iter().map(|flag| flag.name()).collect(),
            notes: figure.flags.iter().map(note).collect(),
        }
    }
}

fn note(flag: &Flag) -> String {
    notes::describe(std::slice::from_ref(flag))
}

impl From<&BootTimeline> for JsonTimeline {
    fn from(timeline: &BootTimeline) -> Self {
        let stages = timeline.stages.iter().map(|at| JsonStage {
            stage: at.stage.name(),
            reached: at.reached,
            min: at.min,
        });
        Self {
            environment: timeline.environment.name(),
            clock: timeline.clock.name(),
            unit: match timeline.clock {
                Clock::Wall => "ns",
                Clock::Insn | Clock::InsnVmx => "insn",
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

/// Every environment that has a cell or was asked for.
fn environments<'a>(
    report: &'a Report,
    cells: &[Cell],
) -> BTreeMap<&'static str, JsonEnvironment<'a>> {
    let with_cells = cells.iter().map(|cell| cell.environment);
    let all = with_cells.chain(report.skips.iter().map(|(id, _)| *id));
    all.map(|id| {
        let skip = report.skips.iter().find(|(skipped, _)| *skipped == id);
        let facts = report.summary.facts.get(&id).into_iter().flatten();
        let environment = JsonEnvironment {
            what: id.what(),
            clock: id.clock().name(),
            skip: skip.map(|(_, reason)| reason.as_str()),
            facts: facts
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect(),
        };
        (id.name(), environment)
    })
    .collect()
}

fn problems(report: &Report) -> Vec<JsonProblem<'_>> {
    let problems = report.summary.problems.iter();
    problems
        .map(|((environment, problem), boots)| JsonProblem {
            environment: environment.name(),
            problem,
            boots: *boots,
        })
        .collect()
}
