//! Boot timelines: bars of stages and the table of the report, for each clock.

use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::document::html as document;
use crate::timelines;
use maud::{html, Markup};
use trapline_abi::Workload;
use trapline_model::Clock;
use trapline_stats::BootTimeline;

/// Returns `None` unless operations of booting were asked for and have timelines.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let report = context.report;
    let is_requested = report.operations.intersects(Workload::Boot.set());
    if !is_requested || report.summary.timelines.is_empty() {
        return None;
    }
    Some(Section::new(
        "boot",
        "Boot",
        html! {
            (heading("Boot, stage by stage", help("Boot", &HELP)))
            @for clock in Clock::ALL { (of_clock(context, clock)) }
        },
    ))
}

const HELP: [&str; 3] = [
    "From exec of the VMM to its end: medians over launches, on an exact clock means. Bars of \
     one clock have one scale; point at a stage for its time.",
    "Hatched time lies between stages without a timestamp; its cause is not known. QEMU has no \
     timestamps of its own.",
    "Memory is the peak of the VMM beyond the memory of the guest.",
];

fn of_clock(context: &Context<'_>, clock: Clock) -> Markup {
    let all = context.report.summary.timelines.iter();
    let shown: Vec<&BootTimeline> = all.filter(|timeline| timeline.clock == clock).collect();
    html! {
        @if !shown.is_empty() {
            (document::section(&timelines::section(context.report, &shown, clock)))
            div aria-hidden="true" { (document::bars(&timelines::bars(context.report, &shown))) }
        }
    }
}
