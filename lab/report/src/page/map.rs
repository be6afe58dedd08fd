//! Every environment of the run as nested layers.
//!
//! Boxes are drawn by the style sheet around nested lists, so that they find their
//! place on a narrow screen and are read in order by those who do not see.

use super::context::Context;
use super::help::help;
use super::labels;
use super::{heading, Section};
use crate::{figures, printable};
use maud::{html, Markup};
use std::collections::BTreeSet;
use trapline_abi::Op;
use trapline_model::EnvironmentId;
use trapline_stats::Value;

/// A layer that runs other layers or the workloads.
struct Layer {
    name: &'static str,
    inner: Vec<Layer>,
    /// Whose innermost layer it is.
    row: Option<EnvironmentId>,
}

/// Returns `None` without environments.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let mut roots: Vec<Layer> = Vec::new();
    for row in rows(context) {
        plant(&mut roots, &labels::layers(row), row);
    }
    (!roots.is_empty()).then(|| {
        let body = html! {
            (heading("Where it ran", help("Where it ran", &HELP)))
            ul.map { @for layer in &roots { (drawn(context, layer)) } }
        };
        Section::new("map", "Map", body)
    })
}

const HELP: [&str; 2] = [
    "Each box runs what is inside it. The image is one file, byte for byte the same wherever it \
     stands; the agent is a Linux program made of the same source. Under each name stands what a \
     write to a port costs there, or else a request for the process number.",
    "A simulated machine counts instructions: what is inside it has a clock of its own, and its \
     figures are never compared with those of the wall clock.",
];

/// Returns every environment that was measured or requested.
fn rows(context: &Context<'_>) -> BTreeSet<EnvironmentId> {
    let configs = context.report.configs().into_iter();
    configs.map(|config| config.environment).collect()
}

fn plant(among: &mut Vec<Layer>, stack: &[&'static str], row: EnvironmentId) {
    let Some((name, inner)) = stack.split_first() else {
        return;
    };
    // The innermost belongs to one environment alone.
    let known = among
        .iter()
        .position(|layer| layer.name == *name && layer.row.is_none());
    let place = known.filter(|_| !inner.is_empty()).unwrap_or_else(|| {
        among.push(Layer {
            name,
            inner: Vec::new(),
            row: inner.is_empty().then_some(row),
        });
        among.len() - 1
    });
    plant(&mut among[place].inner, inner, row);
}

fn drawn(context: &Context<'_>, layer: &Layer) -> Markup {
    match layer.row {
        Some(row) => leaf(context, row, layer.name),
        None => html! {
            li { span.layer { (layer.name) }
                ul { @for inner in &layer.inner { (drawn(context, inner)) } } }
        },
    }
}

fn leaf(context: &Context<'_>, row: EnvironmentId, name: &str) -> Markup {
    let reason = reason(context, row);
    let tone = labels::tone(row);
    html! {
        li.leaf.(tone).skipped[reason.is_some()] title=(row.description()) {
            span.layer { (name) }
            strong { (row.name()) }
            @match &reason {
                Some(reason) => span.figure title=(printable(reason)) { "not measured" },
                None => (figure(context, row)),
            }
        }
    }
}

/// Returns the reason if nothing was measured there.
fn reason(context: &Context<'_>, row: EnvironmentId) -> Option<String> {
    let mut here = context
        .cells
        .iter()
        .filter(|cell| cell.config.environment == row);
    if here.clone().any(|cell| cell.value.figure().is_some()) {
        return None;
    }
    let asked = context
        .report
        .skips
        .iter()
        .find(|(skipped, _)| skipped.environment == row);
    let reason = here.find_map(|cell| match &cell.value {
        Value::Skip(reason) => Some(reason.clone()),
        Value::Failed(failure) => Some(failure.reason.clone()),
        Value::Measured(_) => None,
    });
    asked
        .map(|(_, reason)| reason.clone())
        .or(reason)
        .or(Some(String::new()))
}

/// Returns a figure of the first configuration.
fn figure(context: &Context<'_>, row: EnvironmentId) -> Markup {
    let config = context.report.first(row);
    let shown = [Op::PortOut, Op::Getpid, Op::BootMain].into_iter();
    let shown = shown
        .filter_map(|op| Some((op, context.figure(config?, op)?)))
        .next();
    html! {
        @if let Some((op, figure)) = shown {
            span.figure { (op.name()) " "
                b { (figures::time_with_unit(figure.estimate, row.clock())) } }
        }
    }
}
