//! The findings of a run: the first as the headline, the others as cards.

use super::context::Context;
use super::help::help;
use super::{clock_title, Section};
use crate::findings::{self, Finding, Kind, TITLE};
use crate::printable;
use maud::{html, Markup};
use trapline_model::Clock;

pub fn section(context: &Context<'_>) -> Section {
    let mut found = findings::all(context.report(), &context.cells);
    let first = (!found.is_empty()).then(|| found.remove(0));
    let title = match &first {
        Some(first) => first.title.clone(),
        None => plain(context),
    };
    context.section(
        "headline",
        TITLE,
        html! {
            @if let Some(settings) = context.settings() {
                p.place { "With " code { (settings) } }
            }
            @if context.is_first() {
                div.head { p.place { (place(context)) } (help(TITLE, &HELP)) }
                @for doubt in context.doubts() { p.doubt { (printable(&doubt)) } }
                h1 { (title) }
            } @else {
                div.head { h2.words { (title) } (help(TITLE, &HELP)) }
            }
            @if let Some(first) = &first { p.under { (first.text) " " (clock(first.clock)) } }
            @if !found.is_empty() {
                ul.findings { @for finding in &found { (card(finding)) } }
            }
        },
    )
}

/// Returns a headline of one sentence.
pub fn of_words(context: &Context<'_>, words: &str) -> Section {
    let body = html! {
        p.place { (place(context)) }
        h1 { (words) }
    };
    context.section("headline", TITLE, body)
}

const HELP: [&str; 3] = [
    "These sentences are made from the figures: hypervisors against each other, at an exit and at \
     starting a guest, and the guest against bare. What differs most for certain comes first.",
    "On the wall clock a difference is reported where the 95% intervals of both figures lie apart \
     and each is of four boots at least; figures with a note are left out. Otherwise it is said that \
     this run does not tell. On an exact clock figures are the same only if their printed digits are.",
    "To judge with error rates kept, and to go on until it is sure, there is `trapline compare`.",
];

/// Returns host and date.
fn place(context: &Context<'_>) -> Markup {
    let known = ["cpu", "kernel", "kvm"].into_iter();
    let known = known.filter_map(|name| context.report().facts.get(name));
    let mut facts: Vec<String> = known.map(|fact| printable(fact)).collect();
    facts.push(printable(&context.run.started));
    facts.retain(|fact| !fact.is_empty());
    html! { (facts.join(" · ")) }
}

/// Returns the headline of a run without comparable figures.
fn plain(context: &Context<'_>) -> String {
    let measured = context
        .cells
        .iter()
        .filter(|cell| cell.value.figure().is_some());
    match measured.count() {
        0 => "Nothing could be measured in this run; below it is said why.".to_owned(),
        1 => "One figure, and nothing to compare it with.".to_owned(),
        more => format!("{more} figures, none of which are of two hypervisors or beside bare."),
    }
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
