//! The findings of a run: the first as the headline, the others as cards.

use super::context::Context;
use super::help::help;
use super::{clock_title, Section};
use crate::brief;
use crate::findings::{self, Finding, Kind, TITLE};
use crate::printable;
use maud::{html, Markup};
use trapline_model::Clock;
use trapline_stats::difference::{LEAST_BLOCKS, LEAST_BOOTS};

pub fn section(context: &Context<'_>) -> Section {
    let mut found = findings::all(context.report, &context.cells);
    let first = found.remove(0);
    let settings = &context.report.settings;
    Section::new(
        "headline",
        TITLE,
        html! {
            @if !settings.is_default() {
                p.place { "With " code { (printable(&settings.to_string())) } }
            }
            div.head { p.place { (place(context)) } (help(TITLE, &texts().each_ref().map(String::as_str))) }
            (machine(context))
            @for doubt in context.doubts() { p.doubt { (printable(&doubt)) } }
            h1 { (first.title) }
            p.under { (first.text) " " (clock(first.clock)) }
            @if !found.is_empty() {
                ul.findings { @for finding in &found { (card(finding)) } }
            }
        },
    )
}

fn texts() -> [String; 3] {
    [
        "These sentences are made from the figures: hypervisors against each other, at an exit and at \
         starting a guest, and the guest against bare. What differs most for certain comes first."
            .to_owned(),
        format!(
            "On the wall clock a difference is reported where the 99% interval of the ratio excludes 1, of \
             ratios within blocks from {LEAST_BLOCKS} blocks on, else of {LEAST_BOOTS} boots of each at least; \
             figures with a note are left out. The same is what the interval allows to differ by 2% at most; \
             otherwise there is no clear difference. On an exact clock figures are the same within 0.1%, which \
             other places of code and memory make."
        ),
        "To judge with error rates kept, and to go on until it is sure, there is `trapline compare`."
            .to_owned(),
    ]
}

/// Returns host and date.
fn place(context: &Context<'_>) -> Markup {
    let known = ["cpu", "kernel", "kvm"].into_iter();
    let known = known.filter_map(|name| context.report.facts.get(name));
    let mut facts: Vec<String> = known.map(|fact| printable(fact)).collect();
    facts.push(printable(&context.run.started));
    facts.retain(|fact| !fact.is_empty());
    html! { (facts.join(" · ")) }
}

/// Returns the sentence about the simulated machine, if there is one.
fn machine(context: &Context<'_>) -> Markup {
    let machine = brief::simulated_machine(context.report);
    html! { @if let Some(machine) = machine { p.place { (printable(&machine)) } } }
}

fn clock(clock: Clock) -> Markup {
    html! { span.clock { (clock_title(clock)) } }
}

fn card(finding: &Finding) -> Markup {
    let class = match finding.kind {
        Kind::Differs => "differs",
        Kind::AsGood => "as-good",
        Kind::Unsure => "unsure",
    };
    html! {
        li.(class) {
            p.number { (finding.number) }
            p { (finding.title) }
            p.under { (finding.text) " " (clock(finding.clock)) }
        }
    }
}
