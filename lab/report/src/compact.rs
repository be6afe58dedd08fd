//! The compact form of a figure: at most a value, its spread or range, and the ratio to the bare row.

use crate::document::{Cell as TableCell, Look, Span};
use crate::figures;
use crate::notes::Notes;
use crate::table;
use trapline_abi::Unit;
use trapline_model::Clock;
use trapline_stats::{Cell, Figure, Value};

/// A figure with a larger spread is marked.
const ROUGH: f64 = 0.1;

/// Returns the method of figures of `clock`, with what is said about the ratio.
pub fn explanation(cells: &[Cell], clock: Clock, ratio: &str) -> String {
    if clock.is_exact() {
        format!("mean, {}{ratio}", table::reproduced(cells, clock))
    } else {
        let over = table::replicates(cells, clock);
        format!("median over {over}{ratio}, ~ = spread above ±10%")
    }
}

/// Returns value, spread or range, ratio and spread of the ratio in as few columns as possible.
pub fn cell(cell: Option<&Cell>) -> TableCell {
    let Some(Value::Measured(figure)) = cell.map(|cell| &cell.value) else {
        return table::figure_cell(cell, &mut Notes::default());
    };
    let cell = cell.expect("it has a value");
    let estimate = table::estimate(cell, figure);
    let is_rough = table::side(figure).is_some_and(|side| side > ROUGH);
    let text = match (figure.resolution(), table::is_unusable(figure)) {
        (None, false) if is_rough => format!("~{}", short(cell, figure)),
        (None, false) => short(cell, figure),
        (Some(limit), _) => format!("<{}", at_most_two_decimals(limit, cell)),
        _ => estimate.text,
    };
    let mut parts = vec![Span::new(text, estimate.look)];
    if !table::is_unusable(figure) {
        parts.push(Span::new(spread(cell, figure), Look::Faint));
        if table::unusable_ratio(figure).is_none() {
            parts.extend(ratio_with_spread(cell, figure));
        }
    }
    TableCell {
        parts,
        below: table::idle(cell, figure).map_or(String::new(), |idle| format!("({idle})")),
        ..TableCell::default()
    }
}

fn short(cell: &Cell, figure: &Figure) -> String {
    if cell.clock.is_exact() {
        figures::estimate(figure, cell.op, cell.clock)
    } else {
        at_most_two_decimals(figure.estimate, cell)
    }
}

fn at_most_two_decimals(value: f64, cell: &Cell) -> String {
    match (cell.clock, cell.op.unit()) {
        (Clock::Wall, Unit::Time) if value.abs() < 0.995 => format!("{value:.2} ns"),
        _ => figures::value(value, cell.op, cell.clock),
    }
}

fn spread(cell: &Cell, figure: &Figure) -> String {
    let range = table::range(cell, figure);
    let range = range.and_then(|_| figures::short_range(figure.min, figure.max));
    range.map_or_else(|| table::spread(figure), |range| format!("({range})"))
}

fn ratio_with_spread(cell: &Cell, figure: &Figure) -> [Span; 2] {
    let mut ratio = table::ratio(cell, figure);
    let is_small = figure.ratio.is_some_and(|ratio| ratio.estimate < 0.00995);
    if is_small && !ratio.text.is_empty() {
        ratio.text = "<0.01×".to_owned();
    }
    let spread = Span::new(table::ratio_spread(cell, figure), Look::Faint);
    [ratio, spread]
}
