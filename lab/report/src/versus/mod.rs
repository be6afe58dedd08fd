//! Two contenders side by side: what each operation costs in both, and whether that is a
//! change. The forms are those of a report.

mod bencher;
mod csv;
mod json;
mod junit;
mod markdown;
mod table;

pub use bencher::bencher;
pub use csv::csv;
pub use json::json;
pub use junit::junit;
pub use markdown::markdown;
pub use table::terminal;

use crate::printable;
use std::collections::BTreeMap;
use trapline_abi::{Op, Unit};
use trapline_stats::contest::Match;
use trapline_stats::judge::{Comparison, Method, Outlook, Settings, Verdict};

/// A comparison to be shown.
#[derive(Clone, Debug)]
pub struct Versus {
    /// The version of Trapline that measured.
    pub version: String,
    /// What is known of the host.
    pub facts: BTreeMap<String, String>,
    /// The one that is compared with, as the user names it.
    pub a: String,
    /// The one that is compared.
    pub b: String,
    /// What verdicts have to keep.
    pub settings: Settings,
    /// Every operation of both.
    pub matches: Vec<Match>,
    /// What has to be said of the whole, in sentences.
    pub remarks: Vec<String>,
}

/// Which way an operation changed. Of a rate more is better, of a time less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The second contender is better.
    Better,
    /// It is worse.
    Worse,
}

impl Direction {
    /// Which way `effect`, the ratio of the second to the first, goes.
    pub fn of(op: Op, effect: f64) -> Self {
        match (op.unit() == Unit::Rate) == (effect > 1.0) {
            true => Self::Better,
            false => Self::Worse,
        }
    }
}

/// How many operations have which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Changed, and better.
    pub better: usize,
    /// Changed, and worse.
    pub worse: usize,
    /// Equivalent.
    pub equivalent: usize,
    /// Unsure.
    pub unsure: usize,
    /// Not to be judged.
    pub undecided: usize,
}

impl Versus {
    /// Returns the seed of the order of boots and of resampling, if the wall clock was measured.
    pub fn seed(&self) -> Option<u64> {
        let mut clocks = self.matches.iter().map(Match::clock);
        let uses_seed = clocks.any(|clock| !clock.is_exact());
        uses_seed.then_some(self.settings.seed)
    }

    /// How many operations have which verdict.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for one in &self.matches {
            *match &one.outcome {
                Err(_) => &mut counts.undecided,
                Ok(told) => match (told.verdict, Direction::of(one.op, told.effect)) {
                    (Verdict::Changed, Direction::Better) => &mut counts.better,
                    (Verdict::Changed, Direction::Worse) => &mut counts.worse,
                    (Verdict::Equivalent, _) => &mut counts.equivalent,
                    (Verdict::Unsure, _) => &mut counts.unsure,
                },
            } += 1;
        }
        counts
    }

    /// The most further boots that any unsure operation asks for, if all that are not
    /// hopeless shall probably be settled.
    pub fn more_boots(&self) -> Option<usize> {
        let unsure = self
            .matches
            .iter()
            .filter_map(|one| one.outcome.as_ref().ok());
        unsure.filter_map(more_boots).max()
    }

    /// The whole in a sentence.
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
        part(counts.unsure, "unsure");
        part(counts.undecided, "not to be compared");
        match parts.is_empty() {
            true => "Nothing was measured of both.".to_owned(),
            false => format!("{}.", parts.join(", ")),
        }
    }

    /// The reasons why operations were not judged, each with the operations that it
    /// concerns.
    pub fn undecided(&self) -> Vec<(String, Vec<Op>)> {
        let mut reasons: Vec<(String, Vec<Op>)> = Vec::new();
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

/// How many further boots an unsure operation asks for.
pub fn more_boots(told: &Comparison) -> Option<usize> {
    match told.outlook {
        Some(Outlook::MoreBoots(more)) => Some(more),
        Some(Outlook::TooFewBoots { needed }) => Some(needed.saturating_sub(told.blocks)),
        _ => None,
    }
}

/// The verdict in a few words, with what would settle it where it is unsure.
pub fn verdict(op: Op, told: &Comparison) -> String {
    match told.verdict {
        Verdict::Changed => match (Direction::of(op, told.effect), op.unit()) {
            (Direction::Better, Unit::Time) => "changed: less",
            (Direction::Worse, Unit::Time) => "changed: more",
            (Direction::Better, Unit::Rate) => "changed: faster",
            (Direction::Worse, Unit::Rate) => "changed: slower",
        }
        .to_owned(),
        Verdict::Equivalent if told.method == Method::Digits && told.effect == 1.0 => {
            "the same".to_owned()
        }
        Verdict::Equivalent => "equivalent".to_owned(),
        Verdict::Unsure => match (told.tail, more_boots(told)) {
            (Some(tail), _) => format!("unsure: {} of {} outside", tail.blocks, told.blocks),
            (None, Some(more)) => format!("unsure: +{more} boots"),
            (None, None) => "unsure".to_owned(),
        },
    }
}
