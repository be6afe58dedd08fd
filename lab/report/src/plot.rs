//! Figures as character graphics: for each operation a bar for each configuration and the histogram of
//! its batches, on an exact clock the smallest and the largest batch if they differ.
//!
//! Bars of an operation are to one scale, the batches of each configuration to their own.

use crate::document::style::width;
use crate::report::Report;
use crate::{figures, table, Style};
use std::fmt::Write;
use trapline_abi::{Direction, Op};
use trapline_model::{Clock, Observation};
use trapline_stats::Sorted;
use trapline_stats::{value, verdict, Cell, Figure};

/// Characters for the batches of a configuration.
const BATCHES: usize = 16;
/// The fewest characters that a bar may have.
const LEAST: usize = 8;

const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const SHADES: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '#', '@'];

/// Draws all measured operations, at most `style.width` columns wide unless that is too narrow for a
/// bar.
pub fn plot(report: &Report, observations: &[Observation], style: &Style) -> String {
    let cells = report.cells();
    let clocks = Clock::ALL.into_iter();
    clocks
        .map(|clock| of_clock(report, observations, &cells, clock, style))
        .collect()
}

fn of_clock(
    report: &Report,
    observations: &[Observation],
    cells: &[Cell],
    clock: Clock,
    style: &Style,
) -> String {
    let shown = if clock.is_exact() {
        "means over batches"
    } else {
        "bars of the estimates, and batches from 1% to 95%"
    };
    let title = format!("{}: {shown}", figures::clock_title(clock));
    let mut text = String::new();
    for op in Op::ALL {
        let here = cells
            .iter()
            .filter(|cell| cell.clock == clock && cell.op == op);
        let here: Vec<(&Cell, &Figure)> = here
            .filter_map(|cell| Some((cell, cell.value.figure()?)))
            .collect();
        if !here.is_empty() {
            text.push_str(&operation(report, observations, &here, style));
        }
    }
    let settings = &report.settings;
    let with = if settings.is_default() {
        String::new()
    } else {
        format!(", with {settings}")
    };
    if text.is_empty() {
        text
    } else {
        let title = textwrap::fill(&format!("{title}{with}"), style.width);
        format!("\n{title}\n{text}")
    }
}

fn operation(
    report: &Report,
    observations: &[Observation],
    here: &[(&Cell, &Figure)],
    style: &Style,
) -> String {
    let op = here[0].0.op;
    let clock = here[0].0.clock;
    let better = match op.direction() {
        Direction::Less => String::new(),
        Direction::More => format!("  {}, more is better", value::unit(op, clock)),
    };
    let figure = |cell: &Cell, figure: &Figure| match figure.resolution() {
        Some(limit) => format!("<{}", style.text(&figures::value(limit, op, cell.clock))),
        None => style.text(&figures::value(figure.estimate, op, cell.clock)),
    };
    let values: Vec<String> = here.iter().map(|(cell, it)| figure(cell, it)).collect();
    let names: Vec<String> = here
        .iter()
        .map(|(cell, _)| report.name(&cell.config))
        .collect();
    let names_wide = names.iter().map(String::len).max();
    let (names_wide, values_wide) = (
        names_wide.unwrap_or(0),
        values.iter().map(|value| width(value)).max().unwrap_or(0),
    );
    let batches: Vec<String> = here
        .iter()
        .map(|(cell, figure)| {
            if clock.is_exact() {
                table::range(cell, figure).unwrap_or_default()
            } else {
                spark(observations, cell, style.unicode)
            }
        })
        .collect();
    let batches_wide = batches.iter().map(|batches| width(batches)).max();
    let batches_wide = batches_wide
        .filter(|wide| *wide > 0)
        .map_or(0, |wide| wide + 2);
    let taken = names_wide + values_wide + batches_wide + 4;
    let room = style.width.saturating_sub(taken).max(LEAST);
    let most = here
        .iter()
        .map(|(_, figure)| figure.estimate)
        .fold(0.0, f64::max);
    let mut text = format!("{}{better}\n", op.path());
    let figures = here.iter().map(|(_, figure)| figure);
    for (((figure, name), value), batches) in figures.zip(&names).zip(&values).zip(&batches) {
        let drawn = match figure.resolution() {
            Some(_) => String::new(),
            None => bar(
                figure.estimate / most.max(f64::MIN_POSITIVE),
                room,
                style.unicode,
            ),
        };
        let pad = room - width(&drawn);
        let value = format!("{:fill$}{value}", "", fill = values_wide - width(value));
        let line = format!(
            " {name:<names_wide$}  {value} {drawn}{:pad$}  {batches}",
            ""
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Draws a share of the room, to an eighth of a character.
fn bar(share: f64, room: usize, unicode: bool) -> String {
    let eighths = (share.clamp(0.0, 1.0) * room as f64 * 8.0).round() as usize;
    if unicode {
        "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
    } else {
        "#".repeat((eighths + 4) / 8)
    }
}

/// Returns the histogram of the batches between the 1st and the 95th percentile; outliers are in the
/// table.
fn spark(observations: &[Observation], cell: &Cell, unicode: bool) -> String {
    let here = observations.iter();
    let here = here.filter(|seen| seen.config == cell.config);
    let boots = verdict::boot_values(here, cell.op);
    let all = boots.into_iter().flat_map(|boot| boot.batches);
    let Some(all) = Sorted::new(all.collect()) else {
        return String::new();
    };
    let (low, high) = (all.nearest_rank(1_000), all.nearest_rank(95_000));
    let wide = (high - low) / BATCHES as f64;
    let mut bins = [0usize; BATCHES];
    for value in all.iter().filter(|value| (low..=high).contains(value)) {
        let bin = if wide > 0.0 {
            (value - low) / wide
        } else {
            0.0
        };
        bins[(bin as usize).min(BATCHES - 1)] += 1;
    }
    let most = bins.iter().copied().max().unwrap_or(1).max(1);
    let marks = if unicode { HEIGHTS } else { SHADES };
    let mark = |count: usize| marks[(count * (marks.len() - 1)).div_ceil(most)];
    bins.into_iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(1.0, 4, true), "████");
        assert_eq!(bar(0.53, 4, true), "██▏");
        assert_eq!(bar(0.0, 4, true), "");
        assert_eq!(bar(0.5, 4, false), "##");
        assert_eq!(bar(7.0, 3, false), "###");
    }
}
