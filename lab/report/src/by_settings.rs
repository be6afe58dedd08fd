//! Runs with several sets of settings: settings against operations, a table for each environment.

use crate::brief;
use crate::builder::reasons;
use crate::document::{Document, Look, Marker, Section, Table};
use crate::figures::clock_name;
use crate::findings;
use crate::notes::{self, Notes};
use crate::report::Report;
use crate::table;
use alphanumeric_sort::compare_str;
use std::collections::BTreeSet;
use trapline_abi::Op;
use trapline_model::{names, Clock, EnvironmentId, Overrides};
use trapline_stats::{Cell, Value};

/// The fewest sets of settings that are shown together.
const FEWEST: usize = 3;

/// The reports of one environment, one for each set of settings that it supports, in natural order.
pub struct Series<'a> {
    /// The name of the setting that differs, or `settings`.
    pub title: &'static str,
    /// The value of that setting, or all settings, for each report.
    pub names: Vec<String>,
    /// The reports.
    pub reports: Vec<&'a Report>,
}

impl<'a> Series<'a> {
    /// Returns `None` if there are fewer sets of settings than are shown together.
    pub fn new(environment: EnvironmentId, reports: &[&'a Report]) -> Option<Self> {
        let mut known = BTreeSet::new();
        let of_it = reports.iter().filter_map(|report| {
            let overrides = report.config(environment).overrides;
            known
                .insert(overrides.clone())
                .then_some((overrides, *report))
        });
        let of_it: Vec<(Overrides, &Report)> = of_it.collect();
        let differing = differing(of_it.iter().map(|(overrides, _)| overrides));
        let name = |overrides: &Overrides| match differing {
            Some(setting) => overrides.text(setting),
            None => (!overrides.is_default()).then(|| overrides.to_string()),
        };
        let name = |overrides| name(overrides).unwrap_or_else(|| "default".to_owned());
        let named = of_it
            .iter()
            .map(|(overrides, report)| (name(overrides), *report));
        let mut named: Vec<(String, &Report)> = named.collect();
        named.sort_by(|(one, _), (other, _)| compare_str(one, other));
        let (names, reports) = named.into_iter().unzip();
        (of_it.len() >= FEWEST).then_some(Self {
            title: differing.unwrap_or("settings"),
            names,
            reports,
        })
    }
}

/// Returns the name of the setting that differs, if it is one.
fn differing<'a>(all: impl Iterator<Item = &'a Overrides> + Clone) -> Option<&'static str> {
    let names = all
        .clone()
        .flat_map(|it| it.iter().map(|(setting, _)| setting.name));
    let differs = |name: &&str| {
        let mut values = all.clone().map(|overrides| overrides.value(name));
        let first = values.next();
        values.any(|other| Some(other) != first)
    };
    let mut differing = names.filter(differs).collect::<BTreeSet<_>>().into_iter();
    differing.next().filter(|_| differing.next().is_none())
}

/// Returns the brief form of a run with many sets of settings: their figures together. `None` of other runs, and of plans
/// with tables and workloads with sections of their own.
pub fn document(reports: &[Report]) -> Option<Document> {
    let others = table::with_own_sections();
    let is_plain = |report: &Report| {
        report.tables.is_empty()
            && report.optimisations.is_empty()
            && !report.operations.intersects(others)
    };
    if reports.len() < FEWEST || !reports.iter().all(is_plain) {
        return None;
    }
    let all: Vec<&Report> = reports.iter().collect();
    let cells: Vec<Cell> = reports.iter().flat_map(Report::cells).collect();
    let is_measured = |id: &EnvironmentId| {
        let mut here = cells.iter().filter(|cell| cell.environment == *id);
        here.any(|cell| !matches!(cell.value, Value::Skip(_)))
    };
    // An environment with fewer settings, such as a bare row, has its figures beside the others' in each table.
    let tables = EnvironmentId::all().filter(is_measured);
    let tables = tables.map(|id| figures(id, &Series::new(id, &all)?));
    let tables: Vec<Section> = tables.collect::<Option<_>>()?;
    if tables.is_empty() {
        return None;
    }
    let common = Report {
        overrides: Overrides::default(),
        ..reports[0].clone()
    };
    let mut sections = vec![
        brief::conditions(&common, &cells),
        findings::of_settings(reports),
    ];
    sections.extend(tables);
    sections.extend(failures(reports));
    sections.extend(skips(reports));
    Some(Document {
        brief: sections,
        ..Document::default()
    })
}

/// Returns the figures of an environment. The more numerous of settings and operations are the rows.
fn figures(environment: EnvironmentId, series: &Series<'_>) -> Option<Section> {
    let cells = series.reports.iter().map(|report| {
        let here = report.cells().into_iter();
        let here = here.filter(|cell| cell.environment == environment);
        here.filter(|cell| !matches!(cell.value, Value::Skip(_)))
            .collect()
    });
    let cells: Vec<Vec<Cell>> = cells.collect();
    let measured: BTreeSet<Op> = cells.iter().flatten().map(|cell| cell.op).collect();
    let operations = Op::ALL.into_iter().filter(|op| measured.contains(op));
    let operations: Vec<Op> = operations.collect();
    if operations.is_empty() {
        return None;
    }
    let cell = |settings: usize, op: &Op| {
        let cell = cells[settings].iter().find(|cell| cell.op == *op);
        let mut shown = brief::compact_cell(cell);
        shown.parts.truncate(1);
        shown
    };
    let labels = series.names.iter().map(String::as_str);
    let places = 0..series.reports.len();
    let mut table;
    if series.reports.len() >= operations.len() {
        table = Table::new(series.title, operations.iter().map(|op| op.name()));
        for (place, label) in places.zip(labels) {
            table.row(label, operations.iter().map(|op| cell(place, op)));
        }
    } else {
        table = Table::new(series.title, labels);
        for op in &operations {
            let cells = places.clone().map(|place| cell(place, op));
            table.row(names::path(*op), cells);
        }
    }
    let clock = environment.clock();
    let how = match clock {
        Clock::Wall => "median over boots, ~ = spread above ±10%".to_owned(),
        Clock::Insn | Clock::InsnVmx => {
            let all: Vec<Cell> = cells.concat();
            format!("mean, {}", table::reproduced(&all, clock))
        }
    };
    let title = format!("{environment}, {}", clock_name(clock));
    let mut section = Section::new(&title, how);
    section.table(table);
    let mut notes = Notes::default();
    for cell in cells.iter().flatten() {
        notes.on_titles(cell, &mut BTreeSet::new(), &mut BTreeSet::new());
    }
    section.warnings(notes.short_texts());
    Some(section)
}

/// Returns the failures of all reports, with their settings.
fn failures(reports: &[Report]) -> Option<Section> {
    let failures = reports.iter().flat_map(|report| {
        let of_report = notes::failures(&report.cells()).into_iter();
        of_report.map(|reason| notes::Reason {
            cells: format!("{} with {}", reason.cells, report.overrides),
            ..reason
        })
    });
    reasons("Failed", Look::Bad, &failures.collect::<Vec<_>>())
}

/// Returns the configurations that could not be booted.
fn skips(reports: &[Report]) -> Option<Section> {
    let skips = reports.iter().flat_map(|report| {
        let of_report = report.skips.iter();
        of_report.map(|(id, reason)| (report.config(*id).to_string(), reason))
    });
    let skips: BTreeSet<_> = skips.collect();
    let mut section = Section::new("Not available", "");
    for (config, reason) in &skips {
        section.note(Marker::Subject(config.clone()), reason, Look::Plain);
    }
    (!skips.is_empty()).then_some(section)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::document::style::Style;
    use crate::document::text::render_brief;
    use crate::fixture::{cell, figure, measured};
    use expect_test::expect;
    use trapline_model::irq;
    use trapline_stats::{Failure, FailureKind, Summary};

    /// Returns a report with a figure of `sim/kvm`.
    pub fn report(settings: &str, port_out: f64) -> Report {
        let id = EnvironmentId::SIM_KVM;
        let cells = vec![
            measured(id, Op::PortOut, figure(port_out)),
            measured(id, Op::Cpuid, figure(2966.0)),
        ];
        Report {
            overrides: settings.parse().unwrap(),
            operations: Op::PortOut | Op::Cpuid,
            summary: Summary {
                cells,
                ..Summary::default()
            },
            ..Report::default()
        }
    }

    fn text(reports: &[Report]) -> Option<String> {
        let document = document(reports)?;
        Some(render_brief(&document, &Style::default()))
    }

    #[test]
    fn settings_stand_in_one_table_in_natural_order() {
        let mut reports = [
            ("6.12.101", 3297.0),
            ("6.1.0-9", 3254.0),
            ("6.12.95", 3290.0),
        ]
        .map(|(kernel, figure)| report(&format!("kernel={kernel}"), figure));
        let failure = Failure {
            kind: FailureKind::Broken,
            reason: "it broke".to_owned(),
        };
        reports[1].summary.cells[1] =
            cell(EnvironmentId::SIM_KVM, Op::Cpuid, Value::Failed(failure));
        let skip = (EnvironmentId::SIM_QEMU_KVM, "no such package".to_owned());
        reports[2].skips.push(skip);
        assert_eq!(text(&reports[..2]), None);
        expect![[r#"
            In words
             With kernel=6.12.101: An exit costs 3,297 instructions in trapline-vmm.

            sim/kvm, instruction clock: mean, same in 2 boots
             kernel    port-out   cpuid
             6.1.0-9      3,254  failed
             6.12.95      3,290   2,966
             6.12.101     3,297   2,966

            Failed
             sim/kvm exits/cpuid with kernel=6.1.0-9: it broke

            Not available
             sim/qemu-kvm:kernel=6.12.95: no such package
        "#]]
        .assert_eq(&text(&reports).unwrap());
    }

    #[test]
    fn operations_are_the_rows_if_there_are_more() {
        let settings = ["cpus=2,memory=1G", "memory=256M", ""];
        let mut reports = settings.map(|settings| report(settings, 3264.0));
        let more =
            [Op::PortIn, Op::Hypercall].map(|op| measured(EnvironmentId::SIM_KVM, op, figure(7.0)));
        reports[0].summary.cells.extend(more);
        expect![[r#"
            In words
             With cpus=2,memory=1024M: An exit costs 3,264 instructions in trapline-vmm.

            sim/kvm, instruction clock: mean, same in 2 boots
             settings         cpus=2,memory=1024M  default  memory=256M
             exits/port-out                 3,264    3,264        3,264
             exits/port-in                      7        –            –
             exits/cpuid                    2,966    2,966        2,966
             exits/hypercall                    7        –            –
        "#]]
        .assert_eq(&text(&reports).unwrap());
    }

    #[test]
    fn plans_with_tables_keep_them() {
        let mut reports = ["", "cpus=2", "cpus=4"].map(|settings| report(settings, 1.0));
        assert!(text(&reports).is_some());
        let bare = measured(EnvironmentId::HOST, Op::Cpuid, figure(1.0));
        let mut beside_bare = reports.clone();
        beside_bare
            .iter_mut()
            .for_each(|report| report.summary.cells.push(bare.clone()));
        assert_eq!(text(&beside_bare), None, "the bare row would be left out");
        reports[0].operations |= irq::operations();
        assert_eq!(text(&reports), None);
    }
}
