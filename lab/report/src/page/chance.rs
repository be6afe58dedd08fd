//! What chance does on this host, where a run booted somebody twice to see it: what this
//! page says of small differences can be no better.

use super::comparison::percent_of;
use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::chance::{digits, sentences};
use crate::printable;
use maud::{html, Markup};
use trapline_abi::Op;
use trapline_model::names;

/// Bars of larger changes end here, so that the others can be told apart.
const LONGEST: f64 = 0.2;

/// `None` if nobody was booted twice.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let chance = context.report().chance.as_ref()?;
    let title = "What chance does here";
    let told = sentences(chance);
    let mut smallest = chance.smallest.clone();
    smallest.sort_by(|a, b| a.1.total_cmp(&b.1));
    let body = html! {
        (heading(title, help(title, &HELP)))
        @for sentence in told.iter().take(1) { p.lead { (printable(sentence)) } }
        @if !smallest.is_empty() {
            h3 { "The smallest change that as many boots find in 80 of 100 cases" }
            (bars(&smallest))
        }
    };
    Some(context.section("chance", "Chance", body))
}

const HELP: [&str; 2] = [
    "One environment was booted twice in every block, the same each time. Whatever differs between \
     the two is noise: a comparison that calls it changed is a false alarm.",
    "From the same boots follows how large a change of each operation has to be before as many boots \
     find it. Smaller ones need more boots. Bars end at 20%.",
];

fn bars(smallest: &[(Op, f64)]) -> Markup {
    let largest = smallest
        .last()
        .map_or(0.0, |(_, share)| *share)
        .min(LONGEST);
    html! {
        div.bandwidth.smallest { dl.t1 {
            @for (op, share) in smallest {
                div {
                    dt { (names::path(*op)) }
                    dd {
                        span.bar { i style={ "width:" (percent_of(*share, largest)) "%" } {} }
                        b { (digits(*share)) }
                    }
                }
            }
        } }
    }
}
