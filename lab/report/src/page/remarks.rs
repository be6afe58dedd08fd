//! What failed, what could not be measured and what would mend it, and what was noticed.

use super::context::Context;
use super::help::help;
use super::{heading, who, Section};
use crate::notes::{self, Reason};
use crate::printable;
use maud::{html, Markup};

/// `None` if there is nothing to remark.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let failures = notes::failures(&context.cells);
    let skips = notes::skips(&context.cells);
    let problems = &context.report().summary.problems;
    if failures.is_empty() && skips.is_empty() && problems.is_empty() {
        return None;
    }
    Some(context.section(
        "remarks",
        "Not measured",
        html! {
            (heading("Not measured, and noticed", help("Not measured", &HELP)))
            (reasons("Failed", "bad", &failures))
            (reasons("Not measured", "plain", &skips))
            @if !problems.is_empty() {
                h3 { "Noticed" }
                dl.reasons {
                    @for ((row, problem), boots) in problems {
                        div { dt { (who::name(*row)) }
                            dd { (marked(&printable(problem))) " "
                                span.faint { "(" (counted(*boots)) ")" } } }
                    }
                }
            }
        },
    ))
}

const HELP: [&str; 2] = [
    "A cell without a figure says why, and what would mend it. A skip is no failure: something that \
     this host, or this environment, does not have.",
    "What was noticed did not end a boot: damaged records, clocks that disagree, what a guest said \
     that it should not have.",
];

fn counted(boots: usize) -> String {
    match boots {
        1 => "1 boot".to_owned(),
        more => format!("{more} boots"),
    }
}

fn reasons(title: &str, class: &str, reasons: &[Reason]) -> Markup {
    html! {
        @if !reasons.is_empty() {
            h3 { (title) }
            dl.reasons.(class) {
                @for reason in reasons {
                    div { dt { (reason.cells) } dd { (marked(&reason.text)) } }
                }
            }
        }
    }
}

/// Text with commands between backticks set apart.
fn marked(text: &str) -> Markup {
    html! {
        @for (number, part) in text.split('`').enumerate() {
            @if number % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
