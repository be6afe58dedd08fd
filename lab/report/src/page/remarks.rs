//! Failures, skips with their remedies, and problems.

use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::builder::remarks;
use crate::document::html as document;
use maud::html;

/// Returns `None` without failures, skips and problems.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let sections = remarks(context.report, &context.cells);
    let body = html! {
        (heading("Not measured, and noticed", help("Not measured", &HELP)))
        @for section in &sections { (document::section(section)) }
    };
    (!sections.is_empty()).then(|| Section::new("remarks", "Not measured", body))
}

const HELP: [&str; 2] = [
    "A cell without a figure says why, and what would mend it. A skip is no failure: something that \
     this host, or this environment, does not have.",
    "What was noticed did not end a boot: damaged records, clocks that disagree, what a guest said \
     that it should not have.",
];
