//! A run as one page of HTML that needs nothing but itself.
//!
//! The page is made of the store's observations alone, is complete without its script,
//! and can ask nothing of any network: its policy forbids it. Each section is a module;
//! [`shell`] is what stands around them. Whatever a guest, a host or a user said passes
//! through maud, which escapes it.

mod aa_control;
mod axis;
mod boot;
mod changes;
mod common_factor;
mod comparison;
mod context;
mod detail;
mod distribution_plot;
mod facts;
mod flame;
mod headline;
mod help;
mod interrupts;
mod labels;
mod log_plot;
mod map;
mod memory;
mod ordinal_plot;
mod overlay;
mod packets;
mod profile;
mod reference;
mod remarks;
mod series;
mod shell;
mod stream;
mod tables;
mod trend;

pub use changes::{BadChanges, Changes};
pub use overlay::{page as comparison_page, Compared};
pub use profile::{BadProfile, Profile};
pub use trend::page as trend;

use crate::document::{self, Document};
use crate::figures::clock_title;
use crate::{json, Report};
use context::Context;
use maud::{html, Markup};
use shell::Head;
use trapline_model::{Clock, Observation};

/// Input of a page.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The figures.
    pub report: &'a Report,
    /// The observations behind the figures.
    pub observations: &'a [Observation],
    /// Instruction profiles, which are not in the store.
    pub profiles: &'a [Profile],
    /// The run.
    pub run: &'a Run,
}

/// The run of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Its number in its store.
    pub number: i64,
    /// Date and time of its start.
    pub started: String,
    /// Number of stored boots.
    pub boots: u64,
    /// True if the run was complete when the page was made.
    pub is_complete: bool,
    /// The command that repeats it.
    pub request: String,
}

/// Renders the page, a complete HTML document.
pub fn page(source: &Source<'_>) -> String {
    let context = &Context::new(source.run, source.report, source.observations);
    let sections = sections(context, source.profiles);
    let object = json::object(context.report, &context.cells);
    let data = document::json::render(&object, false);
    shell::document(&Head::of(context), &sections, &data).into_string()
}

/// A section of the page.
pub(crate) struct Section {
    id: String,
    /// Title in the list of contents.
    title: String,
    body: Markup,
}

impl Section {
    fn new(id: &str, title: &str, body: Markup) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            body,
        }
    }
}

/// Returns the sections in reading order.
fn sections(context: &Context<'_>, profiles: &[Profile]) -> Vec<Section> {
    let mut all = vec![headline::section(context)];
    all.extend(series::section(context));
    all.extend(map::section(context));
    let tables = Clock::ALL.into_iter();
    all.extend(tables.filter_map(|clock| comparison::section(context, clock)));
    all.extend(detail::section(context));
    all.extend(boot::section(context));
    all.extend(stream::section(context));
    all.extend(memory::section(context));
    all.extend(interrupts::section(context));
    all.extend(reference::section(context));
    all.extend(tables::hosts(context));
    all.extend(tables::layouts(context));
    all.extend(tables::ratios(context));
    all.extend(common_factor::section(context));
    all.extend(tables::memory_and_disks(context));
    all.extend(tables::kernel_builds(context));
    all.extend(packets::section(context));
    all.extend(aa_control::section(context));
    all.extend(flame::section(profiles));
    all.extend(remarks::section(context));
    all.push(facts::section(context));
    all
}

/// Renders the sections of a document directly below the title of a page.
fn below_title(document: &Document) -> Markup {
    html! {
        @for section in &document.sections {
            @if !section.title.text.is_empty() { (heading(&section.title.text, html! {})) }
            @if !section.explanation.is_empty() { p.lead { (section.explanation) } }
            (document::html::blocks(section))
        }
    }
}

/// Renders a heading with an explanation of the section.
fn heading(title: &str, help: Markup) -> Markup {
    html! {
        div.head { h2 { (title) } (help) }
    }
}
