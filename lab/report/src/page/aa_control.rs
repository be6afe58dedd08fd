//! False alarms and smallest detectable changes of the A/A control.

use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::aa_control::{digits, sentences};
use crate::document::html::percent_of;
use crate::printable;
use maud::{html, Markup};
use trapline_model::Operation;

/// Bars of larger changes end here, so that small ones stay visible.
const LONGEST: f64 = 0.2;

/// Returns `None` without an A/A control.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let aa_test = context.report.aa_control.as_ref()?;
    let title = "A/A control";
    let sentences = sentences(aa_test);
    let mut smallest = aa_test.detectable.clone();
    smallest.sort_by(|a, b| a.1.total_cmp(&b.1));
    let body = html! {
        (heading(title, help(title, &HELP)))
        @for sentence in sentences.iter().take(1) { p.lead { (printable(sentence)) } }
        @if !smallest.is_empty() {
            h3 { "The smallest change that as many boots find in 80 of 100 cases" }
            (bars(&smallest))
        }
    };
    Some(Section::new("aa-control", "A/A control", body))
}

const HELP: [&str; 2] = [
    "One environment was booted twice in every block, the same each time. Whatever differs between \
     the two is noise: a comparison that calls it changed is a false alarm.",
    "From the same boots follows how large a change of each operation has to be before as many boots \
     find it. Smaller ones need more boots. Bars end at 20%.",
];

fn bars(smallest: &[(Operation, f64)]) -> Markup {
    let largest = smallest
        .last()
        .map_or(0.0, |(_, share)| *share)
        .min(LONGEST);
    html! {
        div.bandwidth.smallest { dl.t1 {
            @for (op, share) in smallest {
                div {
                    dt { (op.path()) }
                    dd {
                        span.bar { i style={ "width:" (percent_of(*share, largest)) "%" } {} }
                        b { (digits(*share)) }
                    }
                }
            }
        } }
    }
}
