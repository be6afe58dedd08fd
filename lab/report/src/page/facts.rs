//! Facts about the host and the environments, and a download of the data.

use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::printable;
use maud::{html, Markup};
use std::collections::BTreeMap;

pub fn section(context: &Context<'_>) -> Section {
    let report = context.report;
    Section::new(
        "facts",
        "Facts",
        html! {
            (heading("Facts and data", help("Facts", &HELP)))
            (run(context))
            div.facts {
                details open { summary { "This host" } (list(&report.facts)) }
                @for (config, facts) in &report.summary.facts {
                    details { summary { (context.name(config)) " " span { (config.environment.description()) } } (list(facts)) }
                }
            }
        },
    )
}

const HELP: [&str; 2] = [
    "Facts are stored with the samples of each boot; those of its first boot are shown.",
    "The data is what `trapline show --format json` prints of this run. Raw samples are in the store.",
];

fn run(context: &Context<'_>) -> Markup {
    let run = context.run;
    let store = format!("trapline show --run {}", run.number);
    html! {
        dl.run {
            div { dt { "asked for" } dd { code { (printable(&run.request)) } } }
            div { dt { "shown again by" } dd { code { (store) } } }
            @if let Some(seed) = context.report.seed { div { dt { "seed" } dd { (seed) } } }
            div { dt { "boots" } dd { (run.boots)
                @if !run.is_complete { " – the run was interrupted, or goes on" } } }
            div { dt { "data" } dd {
                a #download href="#facts" download={ "trapline-run-" (run.number) ".json" } hidden {
                    "Download the figures (JSON)" }
                noscript { "by " code { (store) " --format json" } } } }
        }
    }
}

fn list(facts: &BTreeMap<String, String>) -> Markup {
    html! {
        dl.fact {
            @for (name, value) in facts {
                div { dt { (printable(name)) } dd { (printable(value)) } }
            }
        }
    }
}
