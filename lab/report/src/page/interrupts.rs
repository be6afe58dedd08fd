//! How late interrupts were: numbers, the share that is later than any time, and at which
//! stage the time went, for each clock.

mod exceedance;

use super::comparison::percent_of;
use super::context::Context;
use super::help::help;
use super::{clock_title, heading, Section};
use crate::irq::{by, conditions, remarks, shares, tables, untold, verdicts};
use crate::{figures, printable, Report};
use maud::{html, Markup};
use trapline_model::Clock;
use trapline_stats::irq::{Interrupts, Point};

/// `None` if no interrupts were asked for.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let report = context.report();
    if report.interrupts.is_empty() {
        return None;
    }
    let title = "Interrupts";
    Some(context.section(
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
    "own is the guest's timer; host is a timer of whoever runs the guest. An expiry that has no \
     interrupt of its own was missed, and counts as too late.",
    "The curves say which share of all expiries came later than so much; both axes are logarithmic, \
     the dashed line is the threshold. A curve that ends above nothing has missed some.",
    "Stages: due until woke is whoever raises the interrupt; until marked it is made pending; until \
     entered the guest is given it; until done its handler runs; until resumed the thread behind it \
     does. Bars are of means, which add up; each is as long as its own whole, and the thin line below \
     compares the wholes.",
    "On an exact clock an instruction is a nanosecond, so one threshold serves all.",
];

fn of_clock(context: &Context<'_>, clock: Clock) -> Markup {
    let report = context.report();
    let all = report.interrupts.iter();
    let shown: Vec<&Interrupts> = all.filter(|found| found.clock == clock).collect();
    let cast = context.cast(clock);
    let longest = shown.iter().map(|found| found.stages.total.mean);
    let longest = longest.fold(0.0, f64::max);
    html! {
        @if !shown.is_empty() {
            h3 { (clock_title(clock)) ", " (unit(clock)) }
            div.scroll tabindex="0" role="region" aria-label={ "Lateness, " (clock_title(clock)) } {
                (numbers(&shown, report))
            }
            (required(report, clock))
            div.clouds {
                @for found in &shown {
                    figure.cloud.(cast.tone(found.environment)) {
                        figcaption { i.dot {} (tables::name(found)) }
                        (exceedance::drawn(found, &shown))
                    }
                }
            }
            h4 { "Where the time goes" }
            div.timelines { @for found in &shown { (stages(found, longest)) } }
            (legend(&shown))
            (words(&shown, report, clock))
        }
    }
}

fn unit(clock: Clock) -> &'static str {
    match clock {
        Clock::Wall => "µs",
        _ => "instructions",
    }
}

const TITLES: [&str; 10] = [
    "timer", "mean", "p50", "p99", "p99.9", "max", "of", "expiries", "missed", "in time",
];

fn numbers(shown: &[&Interrupts], report: &Report) -> Markup {
    let has_interval = shown.iter().any(|one| one.in_time_interval.is_some());
    html! {
        table.numbers {
            thead { tr { @for title in TITLES { th scope="col" { (title)
                @if title == "in time" { " (" (report.irq.threshold) ")" } } }
                @if has_interval { @for title in tables::INTERVALS { th scope="col" { (title) } } }
            } }
            tbody { @for found in shown {
                tr { th.name scope="row" { (tables::name(found)) }
                    @for text in line(found) { td { (text) } } }
            } }
        }
    }
}

fn line(found: &Interrupts) -> Vec<String> {
    let all = &found.all;
    let late = all.lateness;
    let time = |value: Option<f64>| {
        value.map_or("–".to_owned(), |value| tables::time(value, found.clock))
    };
    let mut line = vec![
        time(late.map(|late| late.mean)),
        time(late.and_then(|late| late.p50)),
        time(late.and_then(|late| late.p99)),
        time(late.and_then(|late| late.p999)),
        time(late.map(|late| late.max)),
        figures::count(all.count),
        figures::count(all.expiries),
        figures::count(all.missed()),
        figures::share(all.in_time(), all.expiries),
    ];
    if let Some(interval) = &found.in_time_interval {
        line.push(shares::interval(interval.bursts));
        line.push(shares::independent(interval));
    }
    line
}

/// Whether the requirement is met, where there is one.
fn required(report: &Report, clock: Clock) -> Markup {
    let all = verdicts(report).into_iter();
    let here: Vec<_> = all.filter(|verdict| verdict.clock == clock).collect();
    html! {
        @if let (Some(require), false) = (report.irq.require, here.is_empty()) {
            h4 { "Verdict: at least " (require) " within " (report.irq.threshold) ", " (by(clock)) }
            ul.notes { @for verdict in &here { li { (verdict.words())
                @if let Some(help) = verdict.help() { " (help: " (help) ")" } } } }
        }
    }
}

/// The class of the colour of the way to a point.
fn shade(point: Point) -> &'static str {
    match point {
        Point::Due => "s1",
        Point::Woke => "s2",
        Point::Marked => "s3",
        Point::Entered => "s5",
        Point::Done => "s7",
        Point::Resumed => "s9",
    }
}

fn stages(found: &Interrupts, longest: f64) -> Markup {
    let spans = found.stages.spans.iter().filter(|span| span.mean > 0.0);
    let whole: f64 = spans.clone().map(|span| span.mean).sum();
    let total = found.stages.total.mean;
    html! {
        div.timeline {
            span.whose { (tables::name(found)) }
            span.total { (figures::time_with_unit(total, found.clock, true)) }
            div.stages {
                @for span in spans {
                    span.(shade(span.to)) style={ "width:" (percent_of(span.mean, whole)) "%" }
                        title={ (span.from.name()) " to " (span.to.name()) ": "
                            (figures::time_with_unit(span.mean, found.clock, true)) } {
                        @if span.mean > whole * 0.12 { (span.to.name()) " "
                            (figures::time(span.mean, found.clock, true)) }
                    }
                }
            }
            div.whole { i style={ "width:" (percent_of(total, longest)) "%" } {} }
        }
    }
}

fn legend(shown: &[&Interrupts]) -> Markup {
    let is_told = |point: &&Point| {
        let mut spans = shown.iter().flat_map(|found| &found.stages.spans);
        spans.any(|span| span.to == **point)
    };
    html! {
        p.legend { "until: "
            @for point in Point::ALL.iter().filter(is_told) {
                span { i.dot.(shade(*point)) {} (point.name()) " " }
            }
        }
    }
}

/// What has to be known of them.
fn words(shown: &[&Interrupts], report: &Report, clock: Clock) -> Markup {
    let micro = if clock == Clock::Wall { "µs" } else { "insn" };
    let mut words = shares::explanations(shown);
    words.extend(tables::missing_percentiles(shown).map(|words| words.replacen('-', "–", 1)));
    words.extend(conditions::words(report, shown, micro));
    for found in shown {
        let name = tables::name(found);
        let of_it = remarks(found, true).into_iter();
        words.extend(of_it.map(|remark| format!("{name}: {remark}")));
    }
    words.extend(untold::points(shown, report));
    words.extend(untold::entries(shown, report));
    html! {
        @if !words.is_empty() {
            ul.notes { @for text in &words { li { (printable(text)) } } }
        }
    }
}
