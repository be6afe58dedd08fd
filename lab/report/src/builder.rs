//! Builds the document of a report: a table for each clock, the sections of the workload families,
//! and what could not be measured.

use crate::document::{Document, Look, Marker, Note, Section};
use crate::report::Report;
use crate::{
    aa_control, agreement, block, co_tenants, irq, notes, populate, ratios, table, timelines,
};
use crate::{bencher, csv, json, junit};
use trapline_model::{Clock, EnvironmentId};
use trapline_stats::Cell;

/// Most problems of one environment that are shown.
const MOST_PROBLEMS: usize = 4;

/// Returns the sections of one clock.
type Family = fn(&Report, &[Cell], Clock) -> Vec<Section>;

/// The families of sections, in reading order.
const FAMILIES: [Family; 6] = [
    table::sections,
    irq::sections,
    populate::sections,
    co_tenants::sections,
    block::sections,
    table::costs,
];

impl Report {
    /// Builds the document of the report.
    pub fn document(&self) -> Document {
        document(self)
    }
}

fn document(report: &Report) -> Document {
    let cells = report.cells();
    let of_all = |families: &[Family]| {
        let clocks = Clock::ALL.into_iter();
        let sections = clocks.flat_map(|clock| {
            let families = families.iter();
            families
                .flat_map(|family| family(report, &cells, clock))
                .collect::<Vec<_>>()
        });
        sections.collect::<Vec<_>>()
    };
    let mut sections = of_all(&FAMILIES);
    sections.extend(ratios::section(&cells));
    sections.extend(agreement::section(report, &cells));
    sections.extend(of_all(&[timelines::sections]));
    sections.extend(remarks(report, &cells));
    sections.extend(aa_control_section(report));
    Document {
        command: "trapline run",
        head: head(report),
        sections,
        header: csv::HEADER,
        records: csv::records(report, &cells),
        suites: junit::suites(report, &cells),
        metrics: bencher::metrics(report),
        object: json::object(report, &cells),
    }
}

fn head(report: &Report) -> Vec<Note> {
    let mut head = vec![Note::origin(&report.version, &report.facts, report.seed)];
    if !report.overrides.is_default() {
        let settings = format!("With {}", report.overrides);
        head.push(Note::new(Marker::Paragraph, &settings, Look::Strong));
    }
    head
}

/// Returns failures, skips and problems.
pub fn remarks(report: &Report, cells: &[Cell]) -> Vec<Section> {
    let failures = reasons("Failed", Look::Bad, &notes::failures(cells));
    let skips = reasons("Not measured", Look::Strong, &notes::skips(cells));
    [failures, skips, problems(report)]
        .into_iter()
        .flatten()
        .collect()
}

fn reasons(title: &str, look: Look, reasons: &[notes::Reason]) -> Option<Section> {
    let mut section = Section::new(title, "");
    section.title.look = look;
    for reason in reasons {
        let subject = Marker::Subject(reason.cells.clone());
        section.note(subject, &reason.text, Look::Plain);
    }
    (!reasons.is_empty()).then_some(section)
}

fn problems(report: &Report) -> Option<Section> {
    let mut section = Section::new("Noticed", "");
    for environment in EnvironmentId::ALL {
        let all = report.summary.problems.iter();
        let problems = all.filter(|((of, _), _)| *of == environment);
        let mut note = |text: &str, look| {
            section.note(Marker::Subject(environment.to_string()), text, look);
        };
        for ((_, problem), boots) in problems.clone().take(MOST_PROBLEMS) {
            let boots = match boots {
                1 => "1 boot".to_owned(),
                more => format!("{more} boots"),
            };
            note(&format!("{problem} ({boots})"), Look::Plain);
        }
        let further = problems.count().saturating_sub(MOST_PROBLEMS);
        if further > 0 {
            let text = format!("{further} more; --format json has all of them");
            note(&text, Look::Faint);
        }
    }
    (!section.blocks.is_empty()).then_some(section)
}

fn aa_control_section(report: &Report) -> Option<Section> {
    let mut section = Section::new("A/A control", "");
    for sentence in aa_control::sentences(report.aa_control.as_ref()?) {
        section.note(Marker::Item, &sentence, Look::Plain);
    }
    Some(section)
}
