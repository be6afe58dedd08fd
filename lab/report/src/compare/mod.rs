//! Two sides of a comparison: the cost of each operation in both, and the verdict.

mod columns;
mod json;
mod junit;
mod table;

use crate::bencher::metric;
use crate::columns::Records;
use crate::document::Document;
use crate::{figures, printable};
use std::collections::BTreeMap;
use trapline_abi::Unit;
use trapline_model::Operation;
use trapline_stats::compare::Row;
use trapline_stats::verdict::{Assessment, Design, Method, RequiredBoots, Settings, Verdict};

/// A comparison to be shown.
#[derive(Clone, Debug)]
pub struct CompareReport {
    /// The version of Trapline that measured.
    pub version: String,
    /// Facts about the host.
    pub facts: BTreeMap<String, String>,
    /// The baseline, as given.
    pub a: String,
    /// The candidate, as given.
    pub b: String,
    /// Margin, error rate and seed of the verdicts.
    pub settings: Settings,
    /// Pairing of the boots on the wall clock.
    pub design: Design,
    /// Every operation of both.
    pub matches: Vec<Row>,
    /// Remarks on the comparison, in sentences.
    pub remarks: Vec<String>,
}

/// Direction of a change: more is better for a rate, less for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The candidate is better.
    Better,
    /// The candidate is worse.
    Worse,
}

impl Direction {
    /// Returns the direction of `effect`, the ratio of B to A.
    pub fn of(op: Operation, effect: f64) -> Self {
        if (op.unit() == Unit::Rate) == (effect > 1.0) {
            Self::Better
        } else {
            Self::Worse
        }
    }
}

/// Number of operations by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Changed, and better.
    pub better: usize,
    /// Changed, and worse.
    pub worse: usize,
    /// Equivalent.
    pub equivalent: usize,
    /// Differences of few runs.
    pub runs_differ: usize,
    /// Agreement of few runs.
    pub runs_agree: usize,
    /// Unsure.
    pub unsure: usize,
    /// Not compared.
    pub undecided: usize,
}

impl CompareReport {
    /// Returns the document of the comparison.
    pub fn document(&self) -> Document {
        let (head, sections) = table::parts(self);
        // Where both sides have one name, Bencher keeps the later, which is B.
        let cells = self.matches.iter().flat_map(|one| [&one.a, &one.b]);
        let metrics = cells.map(metric);
        Document {
            command: "trapline compare",
            head,
            sections,
            brief: Vec::new(),
            records: Records::new(columns::COLUMNS, &self.matches),
            suites: junit::suites(self),
            metrics: metrics.flatten().collect(),
            object: json::object(self),
        }
    }

    /// Returns the seed of the order of boots and of resampling, if the wall clock was measured.
    pub fn seed(&self) -> Option<u64> {
        let mut clocks = self.matches.iter().map(Row::clock);
        let uses_seed = clocks.any(|clock| !clock.is_exact());
        uses_seed.then_some(self.settings.seed)
    }

    /// Counts the operations by verdict.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for one in &self.matches {
            *match &one.outcome {
                Err(_) => &mut counts.undecided,
                Ok(comparison) => {
                    match (comparison.verdict, Direction::of(one.op, comparison.effect)) {
                        (Verdict::Changed, Direction::Better) => &mut counts.better,
                        (Verdict::Changed, Direction::Worse) => &mut counts.worse,
                        (Verdict::Equivalent, _) => &mut counts.equivalent,
                        (Verdict::RunsDiffer, _) => &mut counts.runs_differ,
                        (Verdict::RunsAgree, _) => &mut counts.runs_agree,
                        (Verdict::Unsure, _) => &mut counts.unsure,
                    }
                }
            } += 1;
        }
        counts
    }

    /// Returns the further boots, or runs, that would probably settle all operations that have a number of them.
    pub fn more_boots(&self) -> Option<usize> {
        let unsure = self
            .matches
            .iter()
            .filter_map(|one| one.outcome.as_ref().ok());
        unsure.filter_map(more_boots).max()
    }

    /// Returns the counts in a sentence.
    pub fn headline(&self) -> String {
        let counts = self.counts();
        let mut parts = Vec::new();
        let mut part = |count: usize, words: &str| {
            if count > 0 {
                parts.push(format!("{count} {words}"));
            }
        };
        part(counts.worse, "changed for the worse");
        part(counts.better, "changed for the better");
        part(counts.equivalent, "equivalent");
        part(counts.runs_differ, "differ between these runs");
        part(counts.runs_agree, "agree between these runs");
        part(counts.unsure, "unsure");
        part(counts.undecided, "not to be compared");
        if parts.is_empty() {
            "Nothing was measured of both.".to_owned()
        } else {
            format!("{}.", parts.join(", "))
        }
    }

    /// Returns the reasons why operations were not compared, each with its operations.
    pub fn undecided(&self) -> Vec<(String, Vec<Operation>)> {
        let mut reasons: Vec<(String, Vec<Operation>)> = Vec::new();
        for one in &self.matches {
            let Err(why) = &one.outcome else { continue };
            let reason = printable(&why.to_string());
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, operations)) => operations.push(one.op),
                None => reasons.push((reason, vec![one.op])),
            }
        }
        reasons
    }
}

/// Returns the names of both configurations of a row, or one name if both have it.
fn pair_name(one: &Row) -> String {
    let (a, b) = (&one.a.config, &one.b.config);
    if a == b {
        b.to_string()
    } else {
        format!("{b} against {a}")
    }
}

/// Returns the further boots, or runs, that would probably settle an unsure operation.
pub fn more_boots(comparison: &Assessment) -> Option<usize> {
    match comparison.required {
        Some(RequiredBoots::MoreBoots(more)) => Some(more),
        _ => None,
    }
}

/// Returns the least number of boots, or runs, of either side with which an unsure operation can be settled, if there
/// are fewer.
pub fn least_boots(comparison: &Assessment) -> Option<usize> {
    match comparison.required {
        Some(RequiredBoots::TooFewBoots { needed }) => Some(needed),
        _ => None,
    }
}

/// Returns what is counted in a design: boots, runs or hosts.
pub const fn replicates(design: Design) -> &'static str {
    match design {
        Design::Blocked | Design::Boots => "boots",
        Design::Runs => "runs",
        Design::Hosts { .. } => "hosts",
    }
}

/// Returns the least change that is certain, which is the end of the interval next to 1: " ≥1.2%" or " ≥3.1×". The
/// estimate of a change that a test found is too large on average, since an estimate too small is not found.
fn least_change(comparison: &Assessment) -> Option<String> {
    let interval = comparison.decisive?;
    let near = if comparison.effect > 1.0 {
        interval.low
    } else {
        interval.high
    };
    Some(if near >= 2.0 {
        format!(" ≥{}", figures::times(near))
    } else {
        format!(" ≥{}", figures::percent((near - 1.0).abs()))
    })
}

/// Returns the verdict in a few words, with the boots that would settle an unsure one.
pub fn verdict(op: Operation, comparison: &Assessment) -> String {
    let direction = match (Direction::of(op, comparison.effect), op.unit()) {
        (Direction::Better, Unit::Time) => "less",
        (Direction::Worse, Unit::Time) => "more",
        (Direction::Better, Unit::Rate) => "faster",
        (Direction::Worse, Unit::Rate) => "slower",
    };
    let unit = comparison.design.map_or("boots", replicates);
    match comparison.verdict {
        Verdict::Changed => {
            let least = least_change(comparison).unwrap_or_default();
            format!("changed: {direction}{least}")
        }
        Verdict::RunsDiffer => format!("runs differ: {direction}"),
        Verdict::RunsAgree => "runs agree".to_owned(),
        Verdict::Equivalent if comparison.method == Method::Digits && comparison.effect == 1.0 => {
            "the same".to_owned()
        }
        Verdict::Equivalent => "equivalent".to_owned(),
        Verdict::Unsure => match (comparison.tail, comparison.required) {
            (Some(tail), _) => format!("unsure: {} of {} outside", tail.blocks, comparison.blocks),
            (None, Some(RequiredBoots::MoreBoots(more))) => format!("unsure: +{more} {unit}"),
            (None, Some(RequiredBoots::TooFewBoots { needed })) => {
                format!("unsure: {needed} {unit} at least")
            }
            (None, _) => "unsure".to_owned(),
        },
    }
}
