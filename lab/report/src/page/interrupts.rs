//! Lateness of interrupts: exceedance curves, and the sections of the report.

mod exceedance;

use super::context::Context;
use super::help::help;
use super::labels;
use super::{heading, Section};
use crate::document::html as document;
use crate::irq;
use maud::{html, Markup};
use trapline_model::Clock;
use trapline_stats::irq::Interrupts;

/// Returns `None` if no interrupts were measured.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let report = context.report;
    if report.interrupts.is_empty() {
        return None;
    }
    let title = "Interrupts";
    Some(Section::new(
        "interrupts",
        title,
        html! {
            (heading("How late interrupts are", help(title, &HELP)))
            p.lead { "A timer every " strong { (report.irq.period) } ", until its handler is entered" }
            @for clock in Clock::ALL { (of_clock(context, clock)) }
        },
    ))
}

const HELP: [&str; 4] = [
    "own is the guest's timer; host is a timer of the VMM or the host. An expiry that has no \
     interrupt of its own was missed, and counts as too late.",
    "The curves say which share of all expiries came later than so much; both axes are logarithmic, \
     the dashed line is the threshold. A curve that ends above nothing has missed some.",
    "Stages: due until woke is the wake-up of the thread that raises the interrupt; until marked it is made pending; until \
     entered the guest is given it; until done its handler runs; until resumed the thread behind it \
     does. Bars are of means, which add up; those of one clock have one scale.",
    "On an exact clock an instruction is a nanosecond, so one threshold serves all.",
];

fn of_clock(context: &Context<'_>, clock: Clock) -> Markup {
    let report = context.report;
    let all = report.interrupts.iter();
    let shown: Vec<&Interrupts> = all.filter(|found| found.clock == clock).collect();
    html! {
        @if !shown.is_empty() {
            div.clouds {
                @for found in &shown {
                    figure.cloud.(labels::tone(found.config.environment)) {
                        figcaption { i.dot {} (found.name()) }
                        (exceedance::drawn(found, &shown))
                    }
                }
            }
            @for section in &irq::sections(report, &context.cells, clock) {
                (document::section(section))
            }
        }
    }
}
