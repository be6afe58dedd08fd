//! Sections of the report that the page renders as tables: ratios, kernel builds, memory and disks.

use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::builder::Family;
use crate::document::html;
use crate::{block, hosts, kernel_build, layouts, populate, ratios};
use maud::{html, Markup};
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

/// Returns the tables of `families` of all clocks under one title, if there are any.
fn of_all_clocks(
    context: &Context<'_>,
    families: &[Family],
    (id, title): (&str, &str),
    help: Markup,
) -> Option<Section> {
    let (report, cells) = (context.report, &context.cells);
    let of_clock = |clock| families.iter().flat_map(move |it| it(report, cells, clock));
    let sections: Vec<_> = Clock::ALL.into_iter().flat_map(of_clock).collect();
    (!sections.is_empty()).then(|| {
        let body = html! {
            (heading(title, help))
            @for section in &sections { (html::section(section)) }
        };
        Section::new(id, title, body)
    })
}

/// Returns the hosts, if several measured.
pub fn hosts(context: &Context<'_>) -> Option<Section> {
    let section = hosts::section(context.report)?;
    let title = "Hosts";
    let body = html! {
        (heading(title, help(title, &HOSTS)))
        (html::section(&section))
    };
    Some(Section::new("hosts", title, body))
}

const HOSTS: [&str; 2] = [
    "Each host gives one figure of its own boots. What is printed is the median over hosts, and its interval lies between \
     order statistics of the hosts: it is about hosts like these, not about boots of these hosts.",
    "Hosts are of one kind if all facts on which figures depend are equal.",
];

/// Returns the figures that differ between layouts of memory, if several were measured.
pub fn layouts(context: &Context<'_>) -> Option<Section> {
    let title = "Layouts of memory";
    let help = help(title, &LAYOUTS);
    of_all_clocks(context, &[layouts::sections], ("layouts", title), help)
}

const LAYOUTS: [&str; 1] = [
    "The last digits of an exact figure may depend on where things lie in the machine's memory. Each configuration \
     was measured in several layouts; tables have the figure of the first.",
];

/// Returns the tables of kernel builds, if there were any.
pub fn kernel_builds(context: &Context<'_>) -> Option<Section> {
    let title = "Kernel builds";
    let help = help(title, &BUILDS);
    of_all_clocks(context, &[kernel_build::sections], ("builds", title), help)
}

const BUILDS: [&str; 4] = [
    "The distribution's compiler builds the distribution's kernel from memory to memory, with as many \
     jobs as there are virtual CPUs. The figure is the median of all builds of a cell.",
    "The share above 1(d) is what more CPUs, or sharing one with the VMM, bring in the same environment; \
     the share above the bare row is what virtualization costs on the same CPUs. + is slower.",
    "A percentage is the median of the ratios of the rounds, each of which builds every cell once. Below it \
     is the interval of that median between two of these ratios; the name of the row has its level: 75% \
     with three rounds, at least 95% with six or more. One build has no interval.",
    "All builds have made the same object files: a build that did not has failed and is no figure.",
];

/// Returns the tables of memory and disks, if anything was measured.
pub fn memory_and_disks(context: &Context<'_>) -> Option<Section> {
    let families: [Family; 2] = [populate::sections, block::sections];
    let place = ("memory-and-disks", "Memory and disks");
    of_all_clocks(context, &families, place, html! {})
}
