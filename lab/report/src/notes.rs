//! Footnotes of tables, and reasons of missing figures: each once, with the cells it concerns.

use crate::{figures, host_noise, printable, Report};
use std::collections::{BTreeMap, BTreeSet};
use trapline_model::{Clock, Config, Operation};
use trapline_stats::{value::Work, Cell, Flag, Value};

/// Footnotes on cells. Load on the host is no footnote: [`host_noise`] reports it once.
#[derive(Debug, Default)]
pub struct Notes {
    subjects: Vec<Subject>,
    flags: Vec<Vec<Flag>>,
}

/// Subject of a footnote: one kind of flag, in one configuration unless it is the same in all.
type Subject = (&'static str, Option<Config>);

impl Notes {
    /// Numbers, from 1, of the notes on this cell.
    pub fn on(&mut self, cell: &Cell) -> Vec<usize> {
        let flags = flags(cell).filter(|flag| !matches!(flag, Flag::HostNoise { .. }));
        flags.map(|flag| self.number(cell, flag)).collect()
    }

    /// Marks row and column of this cell, in place of the cell itself, with caveats in few words.
    pub fn on_titles(&mut self, cell: &Cell, row: &mut Numbers, column: &mut Numbers) {
        for flag in flags(cell) {
            match flag {
                Flag::HostNoise { .. } | Flag::BelowResolution(_) | Flag::Unproved => {}
                Flag::OtherMechanism(_) => _ = row.insert(self.number(cell, flag)),
                _ => _ = column.insert(self.number(cell, flag)),
            }
        }
    }

    /// Returns the notes on all cells of a clock, for tables without room for marks.
    pub fn of_clock(report: &Report, cells: &[Cell], clock: Clock) -> Vec<String> {
        let mut notes = Self::default();
        for cell in cells.iter().filter(|cell| cell.clock == clock) {
            notes.on(cell);
        }
        notes.texts(report)
    }

    fn number(&mut self, cell: &Cell, flag: &Flag) -> usize {
        let shared = matches!(
            flag,
            Flag::BelowResolution(_) | Flag::Unproved | Flag::OtherMechanism(_)
        );
        let subject = (flag.name(), (!shared).then(|| cell.config.clone()));
        let known = self.subjects.iter().position(|known| *known == subject);
        let index = known.unwrap_or_else(|| {
            self.subjects.push(subject);
            self.flags.push(Vec::new());
            self.subjects.len() - 1
        });
        if !self.flags[index].contains(flag) {
            self.flags[index].push(flag.clone());
        }
        index + 1
    }

    /// Returns the notes in the order of their numbers.
    pub fn texts(&self, report: &Report) -> Vec<String> {
        self.texts_by(report, describe)
    }

    /// Returns the same in one line each.
    pub fn short_texts(&self, report: &Report) -> Vec<String> {
        self.texts_by(report, |flags| match flags.first() {
            Some(Flag::OtherMechanism(_)) => "another mechanism than in the bare row".to_owned(),
            Some(Flag::OtherSize { .. }) => {
                "no ratio: another amount of work than in the bare row".to_owned()
            }
            _ => describe(flags),
        })
    }

    fn texts_by(&self, report: &Report, describe: impl Fn(&[Flag]) -> String) -> Vec<String> {
        let pairs = self.subjects.iter().zip(&self.flags);
        pairs
            .map(|((_, config), flags)| match config {
                Some(config) => format!("{}: {}", report.name(config), describe(flags)),
                None => describe(flags),
            })
            .collect()
    }
}

/// Numbers of footnotes.
pub type Numbers = BTreeSet<usize>;

fn flags(cell: &Cell) -> impl Iterator<Item = &Flag> {
    let figure = cell.value.figure();
    figure.into_iter().flat_map(|figure| &figure.flags)
}

/// Flags of one kind in a sentence.
pub fn describe(flags: &[Flag]) -> String {
    match flags.first() {
        Some(Flag::BelowResolution(_)) => {
            "below resolution: not more than the loop or the clock around it costs".into()
        }
        Some(Flag::Unproved) => "measured in one boot only: not reproduced".into(),
        Some(Flag::ClocksDisagree { .. }) => describe_clocks(flags),
        Some(Flag::OtherMechanism(_)) => describe_mechanisms(flags),
        Some(Flag::OtherSize { .. }) => describe_sizes(flags),
        Some(Flag::BootsLost { .. }) => describe_losses(flags),
        Some(Flag::HostNoise { .. }) => describe_host_noise(flags),
        Some(Flag::Autocorrelated) => {
            "consecutive boots resemble each other: the interval is too narrow".into()
        }
        None => String::new(),
    }
}

/// Describes the host noise of the cell with the most boots affected.
fn describe_host_noise(flags: &[Flag]) -> String {
    let noise = flags.iter().filter_map(|flag| match flag {
        Flag::HostNoise { what, boots } => Some((what, *boots)),
        _ => None,
    });
    let Some((what, boots)) = noise.max_by_key(|(_, boots)| *boots) else {
        return String::new();
    };
    let what = what
        .iter()
        .map(|(name, value)| host_noise::describe(name, value));
    let what: Vec<String> = what.collect();
    let boots = match boots {
        1 => "one boot".to_owned(),
        more => format!("{more} boots"),
    };
    format!(
        "doubtful: in {boots} the host was not at rest ({})",
        what.join(", ")
    )
}

fn describe_clocks(flags: &[Flag]) -> String {
    let shares = flags.iter().filter_map(|flag| match flag {
        Flag::ClocksDisagree { share, .. } => Some(*share),
        _ => None,
    });
    let worst = shares
        .max_by(|a, b| a.abs().total_cmp(&b.abs()))
        .unwrap_or(0.0);
    let direction = if worst < 0.0 { "slow" } else { "fast" };
    let share = figures::percent(worst.abs());
    format!("by the host's clock the guest's is up to {share} {direction}")
}

fn describe_mechanisms(flags: &[Flag]) -> String {
    let texts = flags.iter().filter_map(|flag| match flag {
        Flag::OtherMechanism(text) => Some(*text),
        _ => None,
    });
    let texts: Vec<&str> = texts.collect();
    format!("not the same mechanism: {}", texts.join("; "))
}

fn describe_sizes(flags: &[Flag]) -> String {
    let sizes: Vec<String> = flags
        .iter()
        .filter_map(|flag| match flag {
            Flag::OtherSize { here, bare } => Some(describe_size(*here, *bare)),
            _ => None,
        })
        .collect();
    format!(
        "no ratio: other work than in the bare row: {}",
        sizes.join(", ")
    )
}

fn describe_size(here: Work, bare: Work) -> String {
    let count = |work| match work {
        Work::Pages(count) | Work::Blocks(count) | Work::Doubles(count) => figures::count(count),
        Work::Unsized => work.to_string(),
    };
    let noun = match here {
        Work::Pages(_) => " pages",
        Work::Blocks(_) => " blocks",
        Work::Doubles(_) => " doubles",
        Work::Unsized => "",
    };
    format!("{}{noun} instead of {}", count(here), count(bare))
}

fn describe_losses(flags: &[Flag]) -> String {
    let losses: Vec<String> = flags
        .iter()
        .filter_map(|flag| match flag {
            Flag::BootsLost { boots, of, reason } => {
                let lost = figures::lost((*boots, *of));
                Some(format!("{lost} boots lost: {reason}"))
            }
            _ => None,
        })
        .collect();
    printable(&losses.join("; "))
}

/// Why cells have no figure: each reason once, with the cells it is given for.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// Configurations, and operations unless it is all of them.
    pub cells: String,
    /// The reason.
    pub text: String,
}

/// Reasons of the skipped cells, in table order.
pub fn skips(report: &Report, cells: &[Cell]) -> Vec<Reason> {
    reasons(report, cells, |cell| match &cell.value {
        Value::Skip(reason) => Some(reason),
        _ => None,
    })
}

/// Reasons of the failed cells, in table order.
pub fn failures(report: &Report, cells: &[Cell]) -> Vec<Reason> {
    reasons(report, cells, |cell| match &cell.value {
        Value::Failed(failure) => Some(&failure.reason),
        _ => None,
    })
}

fn reasons<'a>(
    report: &Report,
    cells: &'a [Cell],
    reason: impl Fn(&'a Cell) -> Option<&'a String>,
) -> Vec<Reason> {
    let mut by_reason: BTreeMap<&str, BTreeMap<&Config, BTreeSet<Operation>>> = BTreeMap::new();
    let mut order: Vec<(&Config, Operation, &str)> = Vec::new();
    for cell in cells {
        if let Some(reason) = reason(cell) {
            let operations = by_reason.entry(reason).or_default();
            operations.entry(&cell.config).or_default().insert(cell.op);
            order.push((&cell.config, cell.op, reason));
        }
    }
    order.sort();
    let mut reasons = Vec::new();
    for (_, _, reason) in order {
        if let Some(operations) = by_reason.remove(reason) {
            reasons.extend(reason_of(report, cells, reason, &operations));
        }
    }
    reasons
}

/// One entry for the configurations in which the reason concerns the same
/// operations.
fn reason_of(
    report: &Report,
    cells: &[Cell],
    reason: &str,
    operations: &BTreeMap<&Config, BTreeSet<Operation>>,
) -> Vec<Reason> {
    let mut alike: Vec<(String, BTreeSet<&Config>)> = Vec::new();
    for (config, set) in operations {
        let what = describe_operations(cells, config, set);
        match alike.iter_mut().find(|(known, _)| *known == what) {
            Some((_, configs)) => _ = configs.insert(config),
            None => alike.push((what, BTreeSet::from([*config]))),
        }
    }
    alike
        .into_iter()
        .map(|(what, configs)| Reason {
            cells: format!("{}{what}", report.names(&configs)),
            text: printable(reason),
        })
        .collect()
}

/// Empty for all operations that the configuration has cells of.
fn describe_operations(cells: &[Cell], config: &Config, set: &BTreeSet<Operation>) -> String {
    let of_config = cells.iter().filter(|cell| cell.config == *config);
    let all: BTreeSet<Operation> = of_config.map(|cell| cell.op).collect();
    if *set == all {
        String::new()
    } else {
        format!(
            " {}",
            Operation::describe(set.iter().copied()).replace(',', ", ")
        )
    }
}
