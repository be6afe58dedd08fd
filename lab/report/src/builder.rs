//! Builds the document of a report: findings, a table for each clock, the sections of the workload
//! families, and what could not be measured; and its brief form.

use crate::cell_columns::COLUMNS;
use crate::columns::Records;
use crate::document::{Document, Look, Marker, Note, Section};
use crate::report::Report;
use crate::{
    aa_control, block, brief, co_tenants, common_factor, components, contenders, findings,
    host_noise, host_use, hosts, irq, kernel_build, layouts, notes, packets, populate, ratios,
    table, timelines,
};
use crate::{bencher, json, junit};
use std::collections::BTreeSet;
use trapline_model::{Clock, Config};
use trapline_stats::Cell;

/// Most problems of one configuration that are shown.
const MOST_PROBLEMS: usize = 4;

/// Returns the sections of one clock.
pub type Family = fn(&Report, &[Cell], Clock) -> Vec<Section>;

/// The families with sections of their own, in reading order.
const FAMILIES: [Family; 8] = [
    layouts::sections,
    irq::sections,
    populate::sections,
    co_tenants::sections,
    block::sections,
    kernel_build::sections,
    packets::sections,
    host_use::sections,
];

impl Report {
    /// Builds the document of the report.
    pub fn document(&self) -> Document {
        let cells = &self.cells();
        Document {
            command: "trapline run",
            head: head(self, cells),
            sections: sections(self, cells),
            brief: brief_sections(self, cells),
            records: Records::new(COLUMNS, cells),
            suites: junit::suites(self, cells),
            metrics: bencher::metrics(self),
            object: json::object(self, cells),
        }
    }
}

fn sections(report: &Report, cells: &[Cell]) -> Vec<Section> {
    let last: [Family; 3] = [table::costs, table::raw, components::sections];
    let families = [&[table::sections as Family][..], &FAMILIES, &last].concat();
    let mut sections: Vec<Section> = findings::section(report, cells).into_iter().collect();
    sections.extend(hosts::section(report));
    sections.extend(of_all_clocks(report, cells, &families));
    sections.extend(ratios::section(report, cells));
    sections.extend(common_factor::section(report, cells));
    sections.extend(of_all_clocks(report, cells, &[timelines::sections]));
    sections.extend(remarks(report, cells));
    sections.extend(aa_control_section(report));
    sections
}

fn brief_sections(report: &Report, cells: &[Cell]) -> Vec<Section> {
    let (main, further) = brief::main_and_further(cells);
    let mut sections = vec![brief::conditions(report, cells)];
    sections.extend(findings::section(report, cells));
    for clock in Clock::ALL {
        sections.extend(brief::tables(report, &main, clock));
        sections.extend(
            FAMILIES
                .iter()
                .flat_map(|family| family(report, cells, clock)),
        );
    }
    sections.extend(hosts::section(report));
    sections.extend(failures(report, cells));
    sections.extend(brief::missing_configs(report, cells));
    sections.extend(aa_control_section(report));
    let of_clocks = |family: Family| of_all_clocks(report, cells, &[family]);
    let list = |section: Option<Section>| section.into_iter().collect();
    sections.extend(brief::left_out(&[
        (
            "further operations",
            "row",
            of_all_clocks(report, &further, &[brief::tables]),
        ),
        ("exits and CPU time", "operation", of_clocks(table::costs)),
        (
            "figures with the search for lengths",
            "operation",
            of_clocks(table::raw),
        ),
        (
            "better numbers of batches",
            "operation",
            of_clocks(components::sections),
        ),
        ("boot stages", "stage", of_clocks(timelines::sections)),
        (
            "ratios of both exact clocks",
            "operation",
            list(ratios::section(report, cells)),
        ),
        (
            "factors between instructions and time",
            "pair",
            list(common_factor::section(report, cells)),
        ),
        ("not measured", "reason", list(skips(report, cells))),
        ("noticed", "remark", list(problems(report))),
    ]));
    sections
}

/// Returns the sections of all clocks, one clock after the other.
fn of_all_clocks(report: &Report, cells: &[Cell], families: &[Family]) -> Vec<Section> {
    let of_clock = |clock| {
        families
            .iter()
            .flat_map(move |family| family(report, cells, clock))
    };
    Clock::ALL.into_iter().flat_map(of_clock).collect()
}

fn head(report: &Report, cells: &[Cell]) -> Vec<Note> {
    let mut head = vec![Note::origin(&report.version, &report.facts, report.seed)];
    head.extend(contenders::versions(report));
    head.extend(contenders::custom_vmms(report));
    let unfinished = report.unfinished.iter();
    head.extend(unfinished.map(|state| Note::new(Marker::Paragraph, state, Look::Bad)));
    if !report.settings.is_default() {
        let settings = format!("With {}", report.settings);
        head.push(Note::new(Marker::Paragraph, &settings, Look::Strong));
    }
    let noise = host_noise::sentence(report, cells);
    head.extend(noise.map(|noise| Note::new(Marker::Paragraph, &noise, Look::Middling)));
    head
}

/// Returns failures, skips and problems.
pub fn remarks(report: &Report, cells: &[Cell]) -> Vec<Section> {
    let all = [
        failures(report, cells),
        skips(report, cells),
        problems(report),
    ];
    all.into_iter().flatten().collect()
}

fn failures(report: &Report, cells: &[Cell]) -> Option<Section> {
    reasons("Failed", Look::Bad, &notes::failures(report, cells))
}

fn skips(report: &Report, cells: &[Cell]) -> Option<Section> {
    reasons("Not measured", Look::Strong, &notes::skips(report, cells))
}

/// Returns reasons below a title.
pub fn reasons(title: &str, look: Look, reasons: &[notes::Reason]) -> Option<Section> {
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
    let configs = report.summary.problems.keys().map(|(config, _)| config);
    for config in configs.collect::<BTreeSet<&Config>>() {
        let all = report.summary.problems.iter();
        let problems = all.filter(|((of, _), _)| of == config);
        let mut note = |text: &str, look| {
            section.note(Marker::Subject(report.name(config)), text, look);
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
