//! How each environment boots: a bar of stages, each as long as its share, and below it
//! the times, for each clock.

use super::comparison::percent_of;
use super::context::Context;
use super::help::help;
use super::{clock_title, heading, Section};
use crate::figures;
use maud::{html, Markup};
use trapline_abi::{Stage, Workload};
use trapline_model::Clock;
use trapline_stats::{BootTimeline, StageTime};

/// `None` if nobody asked how anything boots, or nobody told.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let report = context.report();
    let is_asked = report.operations & Workload::Boot.set() != 0;
    if !is_asked || report.summary.timelines.is_empty() {
        return None;
    }
    Some(context.section(
        "boot",
        "Boot",
        html! {
            (heading("Boot, stage by stage", help("Boot", &HELP)))
            @for clock in Clock::ALL { (of_clock(context, clock)) }
        },
    ))
}

const HELP: [&str; 3] = [
    "From exec of the VMM to its end: medians over launches, on an exact clock means. Each bar is as long as its own whole; \
     the thin line below it compares the wholes of one clock.",
    "Hatched time lies between stages that nobody stamped: it passed, but on what is not known. \
     QEMU stamps none of its own.",
    "Memory is the VMM's peak beyond the guest's own.",
];

fn of_clock(context: &Context<'_>, clock: Clock) -> Markup {
    let all = context.report().summary.timelines.iter();
    let shown: Vec<&BootTimeline> = all.filter(|timeline| timeline.clock == clock).collect();
    let longest = shown
        .iter()
        .map(|timeline| timeline.total)
        .fold(0.0, f64::max);
    html! {
        @if !shown.is_empty() {
            h3 { (clock_title(clock)) }
            div.timelines aria-hidden="true" {
                @for timeline in &shown { (bar(timeline, longest)) }
            }
            div.scroll tabindex="0" role="region" aria-label={ "Boot, " (clock_title(clock)) } {
                (times(&shown))
            }
            (doubts(&shown))
        }
    }
}

/// A stage with the time since the one before that was stamped.
struct Step<'a> {
    at: &'a StageTime,
    took: f64,
    /// Whether stages in between were not stamped.
    is_gap: bool,
}

fn steps(timeline: &BootTimeline) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for at in &timeline.stages {
        let before = steps.last().map(|step| step.at);
        let (stage, reached) = before.map_or((Stage::Exec, 0.0), |at| (at.stage, at.reached));
        steps.push(Step {
            at,
            took: at.reached - reached,
            is_gap: at.stage as u8 != stage as u8 + 1,
        });
    }
    steps
}

fn bar(timeline: &BootTimeline, longest: f64) -> Markup {
    let end = timeline.stages.last().map_or(0.0, |last| last.reached);
    html! {
        div.timeline {
            span.whose { (timeline.environment.name()) }
            span.total { (figures::time_with_unit(timeline.total, timeline.clock, true)) }
            div.stages {
                @for step in steps(timeline).iter().filter(|step| step.took > 0.0) {
                    span.{ "s" (step.at.stage as u8) }.gap[step.is_gap]
                        style={ "width:" (percent_of(step.took, end)) "%" }
                        title={ (step.at.stage.name()) " "
                            (figures::time_with_unit(step.took, timeline.clock, true)) } {
                        @if step.took > end * 0.09 { (step.at.stage.name()) }
                    }
                }
            }
            div.whole { i style={ "width:" (percent_of(timeline.total, longest)) "%" } {} }
        }
    }
}

fn times(shown: &[&BootTimeline]) -> Markup {
    let all = shown.iter().flat_map(|timeline| &timeline.stages);
    let mut stages: Vec<Stage> = all.map(|at| at.stage).collect();
    stages.sort();
    stages.dedup();
    html! {
        table.numbers {
            thead { tr {
                th scope="col" { "since exec" }
                @for timeline in shown { th scope="col" { (timeline.environment.name()) } }
            } }
            tbody {
                @for stage in stages {
                    tr { th.name scope="row" { i.dot.{ "s" (stage as u8) } {} (stage.name()) }
                        @for timeline in shown { (reached(timeline, stage)) } }
                }
                tr { th.name scope="row" { "unexplained" }
                    @for timeline in shown { td {
                        (figures::time(unexplained(timeline), timeline.clock, true)) " "
                        span.s { (figures::percent(unexplained(timeline) / timeline.total.max(1.0))) }
                    } } }
                tr { th.name scope="row" { "VMM memory" }
                    @for timeline in shown { td {
                        (timeline.own_memory.map_or("–".to_owned(), figures::bytes)) } } }
            }
        }
    }
}

/// Where clocks could not be reconciled it may seem to be less than nothing.
fn unexplained(timeline: &BootTimeline) -> f64 {
    match timeline.unexplained {
        time if time > 0.0 => time,
        _ => 0.0,
    }
}

fn reached(timeline: &BootTimeline, stage: Stage) -> Markup {
    let steps = steps(timeline);
    let found = steps.iter().find(|step| step.at.stage == stage);
    html! {
        @match found {
            None => td.none { "–" },
            Some(step) => td {
                (figures::time(step.at.reached, timeline.clock, true)) " "
                span.s { @if step.took >= 0.0 { "+" }
                    (figures::time(step.took, timeline.clock, true)) }
            },
        }
    }
}

fn doubts(shown: &[&BootTimeline]) -> Markup {
    let doubtful = shown.iter().filter(|timeline| timeline.disordered > 0);
    let doubtful: Vec<_> = doubtful.collect();
    html! {
        @if !doubtful.is_empty() {
            ul.notes { @for timeline in doubtful {
                li { (timeline.environment.name()) ": in " (timeline.disordered) " of "
                    (timeline.launches) " launches a stage seems to precede the one before it: \
                     guest's and host's clock could not be reconciled" }
            } }
        }
    }
}
