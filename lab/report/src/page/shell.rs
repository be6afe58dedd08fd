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

/// Renders the document; `data` is the JSON object of the run.
pub fn document(contexts: &[Context<'_>], sections: &[Section], data: &str) -> Markup {
    let version = contexts
        .first()
        .map(|first| printable(&first.report().version));
    let version = version.unwrap_or_default();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title(contexts)) }
                link rel="icon" href=(ICON);
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#headline" { "To the report" }
                (top(contexts, sections))
                (distribution_plot::frame())
                main {
                    @for section in sections {
                        section id=(section.id) aria-label=(section.title) { (section.body) }
                    }
                }
                footer { p { "Made by Trapline " (version)
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

fn title(contexts: &[Context<'_>]) -> String {
    let Some(first) = contexts.first() else {
        return "Trapline: history".to_owned();
    };
    let cpu = first.report().facts.get("cpu").map(|cpu| printable(cpu));
    let place = cpu.map_or_else(String::new, |cpu| format!(" on {cpu}"));
    format!("Trapline: run {}{place}", first.run.number)
}

fn top(contexts: &[Context<'_>], sections: &[Section]) -> Markup {
    let run = contexts.first().map(|first| first.run);
    html! {
        header.top {
            p.brand { strong { "Trapline" }
                @if let Some(run) = run { span { "run " (run.number) } } }
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
