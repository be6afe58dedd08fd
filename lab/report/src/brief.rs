//! The brief form of a report for a terminal: conditions of the host, findings, one compact table for
//! each clock, and what is left out.

use crate::compact;
use crate::contenders;
use crate::document::style::marks;
use crate::document::{Align, Block, Look, Marker, Row, Section};
use crate::host_noise;
use crate::notes::{self, Notes, Numbers};
use crate::report::Report;
use crate::series::Series;
use crate::table::{self, Shown};
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::Op;
use trapline_model::{file, Clock, EnvironmentId, Operation};
use trapline_stats::{Cell, Value};

/// Most operations that are all shown. A run of more shows [`MAIN`] only: with five environments
/// two screens of 80 columns by 50 lines.
const MOST_OPERATIONS: usize = 24;

/// Operations that represent their workloads.
const MAIN: [Op; 15] = [
    Op::Getpid,
    Op::FirstTouch4k,
    Op::Fork,
    Op::PageFault,
    Op::ContextSwitch,
    Op::Syscall,
    Op::Triad,
    Op::PortOut,
    Op::MmioWrite,
    Op::Cpuid,
    Op::IdRegister,
    Op::SelfIpi,
    Op::TimerWake,
    Op::BootEntry,
    Op::BootMain,
];

/// Divides cells into those of the tables and those left out.
pub fn main_and_further(cells: &[Cell]) -> (Vec<Cell>, Vec<Cell>) {
    let measured = cells
        .iter()
        .filter(|cell| !matches!(cell.value, Value::Skip(_)));
    let operations: BTreeSet<Operation> = measured.map(|cell| cell.op).collect();
    let is_main = |cell: &Cell| {
        operations.len() <= MOST_OPERATIONS || cell.op.guest().is_some_and(|op| MAIN.contains(&op))
    };
    cells.iter().cloned().partition(is_main)
}

/// Returns a section of the conditions of the host.
pub fn conditions(report: &Report, cells: &[Cell]) -> Section {
    let fact = |name: &str| report.facts.get(name).cloned();
    let nested = fact("nested in").map(|outer| format!("itself a guest of {outer}"));
    let limits = fact("limited to").map(|limits| format!("limited to {limits}"));
    let facts = [fact("cpu"), fact("kernel"), fact("kvm"), nested, limits];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let mut section = Section::default();
    if !facts.is_empty() {
        section.note(Marker::Paragraph, &facts.join(" · "), Look::Faint);
    }
    if let Some(machine) = simulated_machine(report) {
        section.note(Marker::Paragraph, &machine, Look::Faint);
    }
    let vmms = contenders::brief_custom_vmms(report).into_iter();
    section.blocks.extend(vmms.map(Block::Note));
    if let Some(state) = &report.unfinished {
        section.note(Marker::Paragraph, state, Look::Bad);
    }
    if !report.settings.is_default() {
        let settings = format!("With {}", report.settings);
        section.note(Marker::Paragraph, &settings, Look::Strong);
    }
    if let Some(noise) = host_noise::sentence(report, cells) {
        section.note(Marker::Paragraph, &noise, Look::Middling);
    }
    section
}

/// Facts of the simulated machine on which exact figures depend, with a prefix of their values.
const MACHINE: [(&str, &str); 4] = [
    ("qemu", "QEMU "),
    ("bochs", "Bochs "),
    ("l1-kernel", ""),
    ("xen", ""),
];

/// Returns the emulators, kernels and hypervisors of all simulated machines.
pub fn simulated_machine(report: &Report) -> Option<String> {
    let facts = &report.summary.facts;
    let machines = || facts.iter().filter(|(config, _)| config.clock().is_exact());
    let values = MACHINE.iter().flat_map(|(name, prefix)| {
        let values = machines().filter_map(|(_, facts)| facts.get(*name));
        let values: BTreeSet<&str> = values
            .map(|value| value.strip_prefix("package ").unwrap_or(value))
            .collect();
        values
            .into_iter()
            .map(move |value| format!("{prefix}{value}"))
    });
    let values: Vec<String> = values.collect();
    (!values.is_empty()).then(|| format!("Simulated machine: {}", values.join(" · ")))
}

/// Returns the compact tables of one clock.
pub fn tables(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Section> {
    table::sections_by(report, cells, clock, compact_tables)
}

/// Returns a table with a column for each configuration. Environments with many have tables of their own.
fn compact_tables(
    report: &Report,
    cells: &[Cell],
    clock: Clock,
    of: Option<&file::Table>,
) -> Vec<Section> {
    let series = Series::of_clock(report, cells, clock);
    let environments: Vec<EnvironmentId> = series.iter().map(|it| it.environment).collect();
    let is_other = |cell: &&Cell| !environments.contains(&cell.config.environment);
    let others: Vec<Cell> = cells.iter().filter(is_other).cloned().collect();
    let compact = compact_table(report, &others, clock, of);
    let series = series.iter().filter_map(|it| it.section(report, cells, of));
    compact.into_iter().chain(series).collect()
}

fn compact_table(
    report: &Report,
    cells: &[Cell],
    clock: Clock,
    of: Option<&file::Table>,
) -> Option<Section> {
    let shown = Shown::measured(cells, clock)?;
    let ratio = if table::has_ratios(cells, clock) {
        format!(", × = ratio to {}", clock.bare())
    } else {
        String::new()
    };
    let explanation = compact::explanation(cells, clock, &ratio);
    let mut section = Section::new(&table::title(clock, of), explanation);
    let mut table = shown.table(report, &[Align::Right; 4]);
    table.optional_parts = vec![3, 1];
    let (mut notes, mut rows) = (Notes::default(), BTreeMap::<Operation, Numbers>::new());
    for (config, column) in shown.configs.iter().zip(&mut table.columns) {
        let mut numbers = Numbers::new();
        for op in &shown.operations {
            if let Some(cell) = shown.cell(config, *op) {
                notes.on_titles(cell, rows.entry(*op).or_default(), &mut numbers);
            }
        }
        column.title = marked(&column.title, &numbers);
    }
    table::push_rows(
        &mut table,
        &shown.operations,
        table::unit_remark(clock),
        |op| {
            let cells = shown.configs.iter().map(|it| shown.cell(it, op));
            cells.map(compact::cell).collect()
        },
    );
    let labels = table.rows.iter_mut().filter_map(|row| match row {
        Row::Cells { label, .. } => Some(label),
        Row::Heading { .. } => None,
    });
    for (label, op) in labels.zip(&shown.operations) {
        *label = marked(label, rows.get(op).unwrap_or(&Numbers::new()));
    }
    section.table(table);
    section.footnotes(notes.short_texts(report));
    Some(section)
}

/// Returns a title with the marks of its footnotes.
fn marked(title: &str, numbers: &Numbers) -> String {
    let numbers: Vec<usize> = numbers.iter().copied().collect();
    let marks = marks(&numbers, true);
    format!("{title} {marks}").trim_end().to_owned()
}

/// Returns the reasons why configurations have no figure at all.
pub fn missing_configs(report: &Report, cells: &[Cell]) -> Option<Section> {
    let has_figure = |cell: &Cell| {
        let mut here = cells.iter().filter(|other| other.config == cell.config);
        here.any(|other| !matches!(other.value, Value::Skip(_)))
    };
    let missing: Vec<Cell> = cells
        .iter()
        .filter(|cell| !has_figure(cell))
        .cloned()
        .collect();
    let mut section = Section::new("Not available", "");
    for reason in notes::skips(report, &missing) {
        section.note(Marker::Subject(reason.cells), &reason.text, Look::Plain);
    }
    (!section.blocks.is_empty()).then_some(section)
}

/// Returns one line for each kind of section that the brief form leaves out, with its size.
pub fn left_out(kinds: &[(&str, &str, Vec<Section>)]) -> Option<Section> {
    let mut section = Section::new("Left out", "");
    for (title, unit, sections) in kinds {
        let size: usize = sections.iter().map(Section::len).sum();
        let unit = if size == 1 {
            unit.to_string()
        } else {
            format!("{unit}s")
        };
        if size > 0 {
            let text = format!("{title}: {size} {unit}");
            section.note(Marker::Item, &text, Look::Faint);
        }
    }
    (!section.blocks.is_empty()).then_some(section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{cell, figure};
    use trapline_abi::instruction_set::InstructionSet;
    use trapline_abi::Workload;
    use trapline_model::EnvironmentId;

    fn cells_of(workloads: &[Workload]) -> Vec<Cell> {
        let measured = |op: Op| {
            cell(
                EnvironmentId::SIM,
                op,
                Value::Measured(Box::new(figure(7.0))),
            )
        };
        let operations = workloads.iter().flat_map(|workload| workload.operations());
        let operations = operations.filter(|op| op.exists_on(InstructionSet::X86_64));
        operations.map(measured).collect()
    }

    #[test]
    fn a_run_of_many_operations_shows_the_main_ones() {
        let (main, further) = main_and_further(&cells_of(&[Workload::Basic, Workload::Exits]));
        assert_eq!((main.len(), further.len()), (21, 0));
        let all = [
            Workload::Basic,
            Workload::Exits,
            Workload::System,
            Workload::Boot,
        ];
        let (main, further) = main_and_further(&cells_of(&all));
        assert_eq!((main.len(), further.len()), (13, 24));
        assert!(further.iter().any(|cell| cell.op == Op::PortIn));
    }

    #[test]
    fn skipped_operations_do_not_count() {
        let mut cells = cells_of(&[Workload::Basic, Workload::Exits, Workload::System]);
        assert!(!main_and_further(&cells).1.is_empty());
        for cell in &mut cells {
            if cell.op.is_of(Workload::System) {
                cell.value = Value::Skip("no processes".to_owned());
            }
        }
        assert!(main_and_further(&cells).1.is_empty());
    }
}
