//! The comparison to paste into an issue or a pull request.

use super::table::factor;
use super::{verdict, Versus};
use crate::figures;
use crate::markdown::escaped;
use std::fmt::Write;
use trapline_model::names;
use trapline_stats::contest::Match;
use trapline_stats::Cell;

/// The comparison as Markdown: what it is, a table, what was not compared.
pub fn markdown(versus: &Versus) -> String {
    let mut text = format!(
        "A: {}, B: {}. {}\n\n| operation | A | B | B/A | interval (adjusted) | verdict |\n\
         |-|-:|-:|-:|-|-|\n",
        escaped(&versus.a),
        escaped(&versus.b),
        versus.headline()
    );
    for one in &versus.matches {
        push_row(one, &mut text);
    }
    text.push('\n');
    for remark in &versus.remarks {
        let _ = writeln!(text, "{}\n", escaped(remark));
    }
    for (reason, operations) in versus.undecided() {
        let set = operations.iter().fold(0, |set, op| set | op.bit());
        let _ = writeln!(text, "- {}: {}", names::describe(set), escaped(&reason));
    }
    let _ = writeln!(text, "Measured by Trapline {}.", escaped(&versus.version));
    text
}

fn push_row(one: &Match, text: &mut String) {
    let Ok(told) = &one.outcome else { return };
    let interval = told.decisive.map_or_else(String::new, |interval| {
        format!("{} to {}", factor(interval.low), factor(interval.high))
    });
    let _ = writeln!(
        text,
        "| {} ({}) | {} | {} | {} | {interval} | {} |",
        names::path(one.op),
        one.clock().name(),
        figure(&one.a),
        figure(&one.b),
        factor(told.effect),
        verdict(one.op, told)
    );
}

fn figure(cell: &Cell) -> String {
    let figure = cell.value.figure();
    figure.map_or_else(String::new, |figure| {
        figures::value(figure.estimate, cell.op, cell.clock, true)
    })
}
