//! A run as one page of HTML that needs nothing but itself.
//!
//! The page is made of the store's observations alone, is complete without its script,
//! and can ask nothing of any network: its policy forbids it. Each section is a module;
//! [`shell`] is what stands around them. Whatever a guest, a host or a user said passes
//! through maud, which escapes it.

mod agreement;
mod axis;
mod boot;
mod builds;
mod chance;
mod cloud;
mod comparison;
mod context;
mod detail;
mod facts;
mod flame;
mod headline;
mod help;
mod interrupts;
mod ledger;
mod map;
mod reference;
mod remarks;
mod shell;
mod stream;
mod tables;
mod who;

pub use ledger::{BadLedger, Ledger};

use crate::kernel_build::{self, Matrix};
use crate::{json, Report};
use context::Context;
use maud::{html, Markup};
use trapline_model::{Clock, Observation};

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What was measured with each set of settings, the usual one first.
    pub studies: &'a [Study],
    /// Where instructions go, of whatever operations somebody explained: they are not in
    /// the store.
    pub ledgers: &'a [Ledger],
    /// Its builds of kernels, if it is a run of those: it has nothing else then.
    pub builds: Option<&'a Matrix>,
    /// Which run it is.
    pub run: &'a Run,
}

/// What was measured with one set of settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Study {
    /// The figures.
    pub report: Report,
    /// What they were made of.
    pub observations: Vec<Observation>,
}

/// Which run a page shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Its number in its store.
    pub number: i64,
    /// When it began, as people write a date.
    pub started: String,
    /// How many boots are stored of it.
    pub boots: u64,
    /// Whether it was complete when the page was made.
    pub is_complete: bool,
    /// What was asked for, as words of a command line.
    pub request: String,
}

/// The page, a whole document.
pub fn page(source: &Source<'_>) -> String {
    let studies = source.studies.iter().enumerate();
    let contexts = studies.map(|(number, study)| Context::new(source.run, study, number));
    let contexts: Vec<Context<'_>> = contexts.collect();
    if let (Some(matrix), Some(first)) = (source.builds, contexts.first()) {
        let sections = builds::sections(first, matrix);
        let data = kernel_build::json(matrix, &first.report().version);
        return shell::document(&contexts, &sections, &data.to_string()).into_string();
    }
    let mut sections: Vec<Section> = contexts.iter().flat_map(sections).collect();
    // Before what was not measured in the first study.
    if let Some(ledgers) = contexts
        .first()
        .and_then(|first| flame::section(first, source.ledgers))
    {
        let place = sections
            .iter()
            .position(|section| PLAIN.contains(&section.id.as_str()));
        sections.insert(place.unwrap_or(sections.len()), ledgers);
    }
    let reports: Vec<_> = contexts.iter().map(Context::report).collect();
    shell::document(&contexts, &sections, &json::compact(&reports)).into_string()
}

/// Parts that are words only.
const PLAIN: [&str; 2] = ["remarks", "facts"];

/// A part of the page with an address of its own.
pub(crate) struct Section {
    id: String,
    /// As the list of contents calls it.
    title: String,
    body: Markup,
}

/// All that there is to show with one set of settings, in the order in which it is read.
fn sections(context: &Context<'_>) -> Vec<Section> {
    let mut all = vec![headline::section(context)];
    all.extend(map::section(context));
    let tables = Clock::ALL.into_iter();
    all.extend(tables.filter_map(|clock| comparison::section(context, clock)));
    all.extend(detail::section(context));
    all.extend(boot::section(context));
    all.extend(stream::section(context));
    all.extend(interrupts::section(context));
    all.extend(reference::section(context));
    all.extend(tables::against(context));
    all.extend(agreement::section(context));
    all.extend(tables::memory_and_disks(context));
    all.extend(chance::section(context));
    all.extend(remarks::section(context));
    all.push(facts::section(context));
    all
}

/// What the title of a clock's table is.
pub(crate) const fn clock_title(clock: Clock) -> &'static str {
    match clock {
        Clock::Wall => "Wall clock",
        Clock::Insn => "Instruction clock",
        Clock::InsnVmx => "Intel instruction clock",
    }
}

/// A heading with what there is to say about reading what stands below it.
fn heading(title: &str, help: Markup) -> Markup {
    html! {
        div.head { h2 { (title) } (help) }
    }
}
