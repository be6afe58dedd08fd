//! Frame of the page: the policy that forbids requests, style, script, list of contents and data.

use super::context::Context;
use super::{distribution_plot, Section};
use crate::printable;
use base64::prelude::{Engine, BASE64_STANDARD};
use maud::{html, Markup, PreEscaped, DOCTYPE};
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");

/// The mark of the project as the icon of the page: two layers and what falls through.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
     %3Crect width='16' height='16' rx='3' fill='%2324527a'/%3E\
     %3Cpath d='M3 5h4m2 0h4M8 5v7m-2-2l2 2 2-2' stroke='%23fff' stroke-width='1.6' fill='none'/%3E%3C/svg%3E";

/// Title and origin of a page.
#[derive(Default)]
pub struct Head {
    /// Title of the document.
    pub title: String,
    /// Version of Trapline that measured; empty if several did.
    pub version: String,
    /// Number of the run, if it is the page of one.
    pub run: Option<i64>,
}

impl Head {
    /// Creates the head of the page of a run.
    pub fn of(context: &Context<'_>) -> Self {
        let cpu = context.report.facts.get("cpu").map(|cpu| printable(cpu));
        let place = cpu.map_or_else(String::new, |cpu| format!(" on {cpu}"));
        Self {
            title: format!("Trapline: run {}{place}", context.run.number),
            version: printable(&context.report.version),
            run: Some(context.run.number),
        }
    }
}

/// Renders the document; `data` is its JSON object.
pub fn document(head: &Head, sections: &[Section], data: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (printable(&head.title)) }
                link rel="icon" href=(ICON);
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#headline" { "To the report" }
                (top(head, sections))
                (distribution_plot::frame())
                main {
                    @for section in sections {
                        section id=(section.id) aria-label=(section.title) { (section.body) }
                    }
                }
                footer { p { "Made by Trapline " (head.version)
                    " from stored samples alone. This page asks nothing of any network." } }
                (embedded(data))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

/// Only this script runs, and nothing is loaded from anywhere.
fn policy() -> String {
    let hash = BASE64_STANDARD.encode(Sha256::digest(SCRIPT));
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; \
         img-src data:; base-uri 'none'; form-action 'none'"
    )
}

fn top(head: &Head, sections: &[Section]) -> Markup {
    html! {
        header.top {
            p.brand { strong { "Trapline" }
                @if let Some(run) = head.run { span { "run " (run) } } }
            nav aria-label="Contents" {
                @for section in sections { a href={ "#" (section.id) } { (section.title) } }
            }
            button #theme type="button" hidden { "Light or dark" }
        }
    }
}

/// A `<` would end the element early if it began `</script>`;
/// JSON can say it otherwise.
fn embedded(data: &str) -> Markup {
    let text = data.replace('<', "\\u003c");
    html! { script #data type="application/json" { (PreEscaped(text)) } }
}
