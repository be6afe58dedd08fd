//! Findings of a run in sentences, the largest difference between hypervisors first.
//!
//! Sentences are chosen by the intervals, not by the estimates: a difference within noise is reported
//! as not found.

mod only;
mod ratio;

pub use ratio::Kind;

use crate::document::{Look, Marker, Section};
use crate::report::Report;
use crate::table::Shown;
use crate::{figures, kernel_build, packets};
use ratio::{Span, SMALL};
use trapline_abi::{Op, Workload};
use trapline_model::layers::{Domain, Hypervisor, QemuMachine, Vmm, OPTION_VMM};
use trapline_model::{names, Clock, Config, EnvironmentId, Operation};
use trapline_stats::{Cell, Figure, Flag};

/// Title of the section.
pub const TITLE: &str = "In words";

/// Most findings of a report.
const MOST: usize = 5;

/// A difference between two figures of one operation and clock, or its absence.
#[derive(Clone, Debug)]
pub struct Finding {
    pub kind: Kind,
    pub clock: Clock,
    /// The smallest difference that both intervals allow.
    weight: f64,
    /// The ratio.
    pub number: String,
    pub title: String,
    pub text: String,
}

/// Operations that hypervisors are compared by, the most significant first.
const EXITS: [Op; 4] = [Op::PortOut, Op::MmioWrite, Op::PortIn, Op::Cpuid];
const BOOTS: [Op; 3] = [Op::BootMain, Op::BootSample, Op::BootEntry];

/// Returns the findings of a report as a section.
pub fn section(report: &Report, cells: &[Cell]) -> Option<Section> {
    let has_others = !report.co_tenants.is_empty() || !report.requests.is_empty();
    if has_others && !cells.iter().any(|cell| cell.value.figure().is_some()) {
        return None;
    }
    let mut section = Section::new(TITLE, "");
    for finding in &all(report, cells) {
        let look = match finding.kind {
            Kind::Differs => Look::Strong,
            Kind::AsGood => Look::Plain,
            Kind::Unsure => Look::Faint,
        };
        let title = finding.title.trim_end_matches('.');
        section.note(Marker::Item, &format!("{title}: {}", finding.text), look);
    }
    (!section.blocks.is_empty()).then_some(section)
}

/// Returns the most significant findings: certain ones first, among them those of the wall clock. Without a comparison,
/// returns a figure, or that there is none.
pub fn all(report: &Report, cells: &[Cell]) -> Vec<Finding> {
    let clocks = || Clock::ALL.into_iter();
    let latest = clocks().filter_map(|clock| latest(report, clock));
    let of_clocks = clocks().flat_map(|clock| of_clock(report, cells, clock));
    let mut all: Vec<Finding> = latest.chain(of_clocks).collect();
    all.sort_by_key(|finding| finding.kind == Kind::Unsure);
    all.truncate(MOST);
    all.extend(kernel_build::finding(report, cells).map(certain));
    all.extend(packets::findings(report).into_iter().map(certain));
    if all.is_empty() {
        vec![only::finding(report, cells)]
    } else {
        all
    }
}

/// Returns a finding of the wall clock that has no plot.
fn certain((title, text): (String, String)) -> Finding {
    Finding {
        kind: Kind::Differs,
        clock: Clock::Wall,
        weight: 0.0,
        number: String::new(),
        title,
        text,
    }
}

/// Returns the first certain sentence about figures without interrupts, as soon as there is one.
pub fn first_sentence(report: &Report) -> Option<String> {
    let cells = &report.summary.cells;
    let mut compared = Clock::ALL
        .into_iter()
        .flat_map(|clock| of_clock(report, cells, clock));
    let is_certain = |finding: &Finding| finding.kind != Kind::Unsure;
    let certain = compared.find(is_certain);
    let certain = certain.or_else(|| Some(only::finding(report, cells)).filter(is_certain));
    certain.map(|finding| finding.title)
}

/// Returns the latest interrupt of a clock.
fn latest(report: &Report, clock: Clock) -> Option<Finding> {
    let here = report.interrupts.iter().filter(|one| one.clock == clock);
    let late = here.filter_map(|one| Some((one, one.all.lateness?)));
    let (interrupts, late) = late.max_by(|a, b| a.1.max.total_cmp(&b.1.max))?;
    let time = |value| figures::time_with_unit(value, clock);
    let most = late
        .p99
        .map_or_else(String::new, |p99| format!("99% within {}; ", time(p99)));
    let (all, place) = (&interrupts.all, place(clock));
    let (missed, expiries) = (all.missed(), all.expiries);
    Some(Finding {
        kind: Kind::Differs,
        clock,
        weight: 0.0,
        number: time(late.max),
        title: format!(
            "{place} the latest {} interrupt in {} came {} late.",
            interrupts.op.name(),
            report.name(&interrupts.config),
            time(late.max)
        ),
        text: format!(
            "{most}{} of {} expiries missed.",
            figures::count(missed),
            figures::count(expiries)
        ),
    })
}

/// Returns hypervisors compared with each other, then with the bare row.
fn of_clock(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Finding> {
    let shown = Shown::measured(cells, clock);
    let rows = shown.map_or_else(Vec::new, |shown| shown.configs);
    let rows: Vec<_> = rows
        .into_iter()
        .filter(|row| hypervisor(row.environment).is_some())
        .collect();
    let mut found: Vec<Finding> = [&EXITS[..], &BOOTS[..]]
        .into_iter()
        .filter_map(|operations| between(report, cells, &rows, operations))
        .collect();
    found.sort_by(|a, b| (a.kind).cmp(&b.kind).then(b.weight.total_cmp(&a.weight)));
    // In instructions memory has no speed, and what is mapped already costs nothing.
    if clock == Clock::Wall {
        found.extend(dearest(report, cells, &rows));
        found.extend(bandwidth(report, cells, &rows));
    }
    found
}

/// Returns the name of the program or hypervisor that runs the guest, where hardware virtualization
/// is used. These are compared with each other.
fn hypervisor(environment: EnvironmentId) -> Option<String> {
    let level = environment.stack().innermost()?;
    let name = match (level.hypervisor, level.vmm) {
        _ if environment.is_linux_guest() => return None,
        (Hypervisor::Kvm, Some(Vmm::Trapline)) => "trapline-vmm",
        (Hypervisor::Kvm, Some(Vmm::Qemu(QemuMachine::DEFAULT))) => "QEMU",
        (Hypervisor::Kvm, Some(Vmm::Qemu(machine))) => machine.label(),
        (Hypervisor::Kvm, Some(Vmm::Custom(name))) if name != OPTION_VMM => name,
        (Hypervisor::Kvm, _) => "the VMM of your choice",
        (Hypervisor::Nova, _) => "trapline-vmm on NOVA",
        (Hypervisor::Xen(_), Some(Vmm::Trapline)) => "trapline-vmm on Xen",
        (Hypervisor::Xen(Domain::Pvh), _) => "Xen (PVH)",
        (Hypervisor::Xen(Domain::Hvm), _) => "Xen (HVM)",
        _ => return None,
    };
    Some(match environment.stack().levels.len() {
        1 => name.to_owned(),
        levels => format!("{name} (level {levels})"),
    })
}

/// Returns the figure of `op` in `row`, if it is above the resolution.
pub fn figure<'a>(cells: &'a [Cell], row: &Config, op: impl Into<Operation>) -> Option<&'a Figure> {
    let op = op.into();
    let is_it = |cell: &&Cell| cell.config == *row && cell.op == op;
    let figure = cells.iter().find(is_it)?.value.figure()?;
    figure.resolution().is_none().then_some(figure)
}

/// Compares the most expensive hypervisor with the cheapest, by the first of `operations` that two
/// have.
fn between(
    report: &Report,
    cells: &[Cell],
    rows: &[&Config],
    operations: &[Op],
) -> Option<Finding> {
    operations.iter().find_map(|op| {
        // The start of a whole machine is another one than that of a VMM.
        let is_comparable = |row: &&&Config| {
            op.workload() != Workload::Boot || !row.environment.starts_with_machine()
        };
        let rows = rows.iter().filter(is_comparable);
        let figures = rows.filter_map(|row| Some((*row, trusted(cells, row, *op)?)));
        let mut figures: Vec<(&Config, &Figure)> = figures.collect();
        figures.sort_by(|(_, a), (_, b)| a.estimate.total_cmp(&b.estimate));
        let (cheap, others) = figures.split_first()?;
        // Of equal ones the first in table order.
        let most = others.last()?.1.estimate;
        let dear = others.iter().find(|(_, figure)| figure.estimate == most)?;
        let chosen = match others.len() {
            1 => String::new(),
            more => format!(", the dearest and the cheapest of {}", more + 1),
        };
        (cheap.1.estimate > 0.0).then(|| pair(report, *op, *cheap, *dear, &chosen))
    })
}

/// Compares two figures; `chosen` says how, if there are others.
fn pair(
    report: &Report,
    op: Op,
    cheap: (&Config, &Figure),
    dear: (&Config, &Figure),
    chosen: &str,
) -> Finding {
    let clock = cheap.0.clock();
    let ratio = Span::of(dear.1, cheap.1, clock);
    let kind = ratio.kind();
    let (one, other) = (people(report, cheap.0), people(report, dear.0));
    let what = subject(op);
    let (place, verb) = (place(clock), verb(op));
    let (unit, more) = match verb {
        "takes" => ("long", "longer"),
        _ => ("much", "more"),
    };
    let percentage = ratio.small_percentage();
    let value = |figure: &Figure| figures::estimate_with_unit(figure, clock);
    let title = match (kind, &percentage) {
        (Kind::Differs, Some(percent)) => {
            format!("{place} {what} {verb} {percent} {more} in {other} than in {one}.")
        }
        (Kind::Differs, None) => {
            let factor = factor(ratio.estimate);
            format!("{place} {what} {verb} {factor} as {unit} in {other} as in {one}.")
        }
        (Kind::AsGood, _) if clock.is_exact() => {
            format!("{place} {what} {verb} the same in {other} and in {one}.")
        }
        (Kind::AsGood, _) => {
            format!("{place} {what} {verb} the same in {other} and in {one}, within 2%.")
        }
        (Kind::Unsure, _) => format!(
            "No clear difference: {what} takes {} in {other}, {} in {one}{}.",
            value(dear.1),
            value(cheap.1),
            ratio.range()
        ),
    };
    // What starting means stands beside the figures.
    let meant = match op.workload() {
        Workload::Boot => format!(" {}", op.description()),
        _ => String::new(),
    };
    let text = match kind {
        Kind::Unsure => format!("{}{meant}{chosen}.", ratio.remedy()),
        _ => format!(
            "{} against {}{meant}{}{chosen}{}.",
            value(dear.1),
            value(cheap.1),
            ratio.confidence(),
            losses(cheap.1, dear.1)
        ),
    };
    Finding {
        kind,
        clock,
        weight: ratio.low,
        number: match percentage.filter(|_| kind == Kind::Differs) {
            Some(percent) => format!("+{percent}"),
            None => figures::times(ratio.estimate),
        },
        title,
        text,
    }
}

/// Returns how many boots both lost, if any: a sentence rests on those that are left.
fn losses(one: &Figure, other: &Figure) -> String {
    let (a, b) = (one.lost(), other.lost());
    match (a.0 + b.0, a.1 + b.1) {
        (0, _) => String::new(),
        (lost, all) => format!("; {lost} of {all} boots are lost"),
    }
}

/// Returns the basic operation with the largest ratio to bare.
fn dearest(report: &Report, cells: &[Cell], rows: &[&Config]) -> Option<Finding> {
    let operations = || {
        Op::ALL
            .into_iter()
            .filter(|op| op.workload() == Workload::Basic)
    };
    let all = rows
        .iter()
        .flat_map(|row| operations().map(move |op| (*row, op)));
    let ratios = all.filter_map(|(row, op)| {
        let figure = trusted(cells, row, op)?;
        let bare = trusted(cells, &row.bare(), op)?;
        let ratio = Span::of(figure, bare, row.clock());
        let is_dear = ratio.kind() == Kind::Differs && ratio.low > SMALL;
        is_dear.then_some((row, op, [figure, bare], ratio))
    });
    let (row, op, [figure, bare], ratio) = ratios.max_by(|a, b| a.3.low.total_cmp(&b.3.low))?;
    let clock = row.clock();
    let value = |figure: &Figure| figures::estimate_with_unit(figure, clock);
    Some(Finding {
        kind: Kind::Differs,
        clock,
        weight: ratio.low,
        number: figures::times(ratio.estimate),
        title: format!(
            "Of everyday operations {} suffers most: in {} it costs {} as much as bare.",
            subject(op),
            people(report, row),
            factor(ratio.estimate)
        ),
        text: format!(
            "{} against {}{}.",
            value(figure),
            value(bare),
            ratio.confidence()
        ),
    })
}

/// Returns the lowest memory bandwidth against bare.
fn bandwidth(report: &Report, cells: &[Cell], rows: &[&Config]) -> Option<Finding> {
    let op = Op::Triad;
    let ratios = rows.iter().filter_map(|row| {
        let bare = trusted(cells, &row.bare(), op)?;
        Some((*row, trusted(cells, row, op)?, bare))
    });
    let (row, figure, bare) = ratios.min_by(|a, b| a.1.estimate.total_cmp(&b.1.estimate))?;
    let clock = row.clock();
    let ratio = Span::of(figure, bare, clock);
    let kind = ratio.kind();
    let value = |figure: &Figure| figures::rate(figure.estimate);
    let unit = trapline_stats::value::unit(op, clock);
    let slower = if ratio.estimate < 1.0 {
        "slower"
    } else {
        "faster"
    };
    let title = match (kind, ratio.small_percentage()) {
        (Kind::AsGood, _) => format!("Memory moves as fast in {} as bare.", people(report, row)),
        (Kind::Differs, Some(percent)) => {
            format!(
                "Memory moves {percent} {slower} in {} than bare.",
                people(report, row)
            )
        }
        (Kind::Differs, None) => format!(
            "Memory moves {} as fast in {} as bare.",
            factor(ratio.estimate),
            people(report, row)
        ),
        (Kind::Unsure, _) => format!(
            "No clear difference: memory moves at {} {unit} in {}, {} {unit} bare{}.",
            value(figure),
            people(report, row),
            value(bare),
            ratio.range()
        ),
    };
    Some(Finding {
        kind,
        clock,
        weight: 0.0,
        number: figures::times(ratio.estimate),
        title,
        text: match kind {
            Kind::Unsure => format!("{}.", ratio.remedy()),
            _ => format!(
                "{} {unit} against {} {unit}{}.",
                value(figure),
                value(bare),
                ratio.confidence()
            ),
        },
    })
}

/// Returns a figure without doubts.
fn trusted<'a>(cells: &'a [Cell], row: &Config, op: Op) -> Option<&'a Figure> {
    let harmless = |flag: &Flag| matches!(flag, Flag::BootsLost { .. });
    let figure = figure(cells, row, op)?;
    figure.flags.iter().all(harmless).then_some(figure)
}

fn place(clock: Clock) -> &'static str {
    match clock {
        Clock::Wall => "On this host",
        Clock::Insn => "In instructions (AMD)",
        Clock::InsnVmx => "In instructions (Intel)",
        Clock::InsnArm64 => "In instructions (Arm)",
    }
}

/// Starting takes long, whatever by which clock; an operation costs much.
fn verb(op: Op) -> &'static str {
    match op.workload() {
        Workload::Boot => "takes",
        _ => "costs",
    }
}

fn factor(ratio: f64) -> String {
    format!("{} times", figures::quantity(ratio))
}

fn people(report: &Report, row: &Config) -> String {
    let environment = row.environment;
    let name = hypervisor(environment).unwrap_or_else(|| environment.to_string());
    let settings = report.own_settings(row);
    if settings.is_default() {
        name
    } else {
        format!("{name} with {settings}")
    }
}

/// Returns the name of an operation within a sentence.
fn subject(op: Op) -> String {
    let known = match op {
        Op::PortOut => "a port write",
        Op::PortIn => "a port read",
        Op::MmioWrite => "a write to a device register",
        Op::Cpuid => "an exit that stays in the kernel (cpuid)",
        Op::BootMain | Op::BootSample | Op::BootEntry => "starting a guest",
        Op::Getpid => "a request for the process number",
        Op::Yield => "a switch between threads",
        Op::Malloc1m => "an allocation of 1 MiB",
        Op::FirstTouch4k => "the first write to a page",
        other => return names::path(other),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests;
