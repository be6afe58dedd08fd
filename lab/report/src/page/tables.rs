//! Sections of the report that the page renders as tables: ratios, memory and disks.

use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::document::html;
use crate::{block, populate, ratios};
use maud::html;
use trapline_model::Clock;

/// Returns the ratios to the bare rows, if both exact clocks were measured.
pub fn ratios(context: &Context<'_>) -> Option<Section> {
    let section = ratios::section(context.report, &context.cells)?;
    let title = &section.title.text;
    let body = html! {
        (heading(title, help(title, &RATIOS)))
        p.lead { (section.explanation) }
        (html::blocks(&section))
    };
    Some(Section::new("against", title, body))
}

const RATIOS: [&str; 1] = [
    "A ratio to the bare row of its own clock has no clock, so that ratios of both exact clocks, \
     which are machines of two vendors, may stand in one table.",
];

/// Returns the tables of memory and disks, if anything was measured.
pub fn memory_and_disks(context: &Context<'_>) -> Option<Section> {
    let (report, cells) = (context.report, &context.cells);
    let families = [populate::sections, block::sections];
    let clocks = Clock::ALL.into_iter();
    let sections = clocks.flat_map(|clock| families.map(|family| family(report, cells, clock)));
    let sections: Vec<_> = sections.flatten().collect();
    let title = "Memory and disks";
    (!sections.is_empty()).then(|| {
        let body = html! {
            (heading(title, html! {}))
            @for section in &sections { (html::section(section)) }
        };
        Section::new("memory-and-disks", title, body)
    })
}
