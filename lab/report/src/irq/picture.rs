//! The stages as a picture: a bar for each environment and timer, stacked from the means
//! of its stages, all to one scale.

use super::tables::{name, time};
use crate::sheet::width;
use crate::Style;
use trapline_stats::irq::{Interrupts, Point};

/// What stands for the way to each point but the first.
const SHADES: [char; 5] = ['█', '▓', '▒', '░', '·'];
const LETTERS: [char; 5] = ['w', 'm', 'E', 'd', 'r'];

/// The fewest columns that a bar is given.
const LEAST: usize = 10;

/// The bars, with what their parts mean at the end.
pub fn lines(shown: &[&Interrupts], style: &Style) -> Vec<String> {
    let names = shown.iter().map(|interrupts| width(&name(interrupts)));
    let figures = shown
        .iter()
        .map(|i| width(&time(i.stages.total.mean, i.clock)));
    let (names, figures) = (names.max().unwrap_or(0), figures.max().unwrap_or(0));
    let room = style.width.saturating_sub(names + figures + 4).max(LEAST);
    let longest = shown
        .iter()
        .map(|i| i.stages.total.mean)
        .fold(0.0, f64::max);
    let line = |interrupts: &&Interrupts| {
        let total = time(interrupts.stages.total.mean, interrupts.clock);
        let bar = bar(
            interrupts,
            room as f64 / longest.max(f64::MIN_POSITIVE),
            style.unicode,
        );
        format!(" {:<names$}  {total:>figures$} {bar}", name(interrupts))
    };
    let mut lines: Vec<String> = shown.iter().map(line).collect();
    lines.push(format!(" {}", legend(style.unicode)));
    lines
}

fn shade(point: Point, unicode: bool) -> char {
    let shades = if unicode { SHADES } else { LETTERS };
    let points = Point::ALL.iter().skip(1);
    let found = points.zip(shades).find(|(known, _)| **known == point);
    found.map_or(' ', |(_, shade)| shade)
}

/// Every part ends where the sum of all up to it does, so that rounding does not add up.
/// What lies before it was due is not drawn.
fn bar(interrupts: &Interrupts, scale: f64, unicode: bool) -> String {
    let mut bar = String::new();
    let (mut sum, mut drawn) = (0.0, 0);
    for span in &interrupts.stages.spans {
        sum += span.mean;
        // Less than nothing is nothing.
        let end = (sum * scale).round() as usize;
        let part = end.saturating_sub(drawn);
        bar.extend(std::iter::repeat_n(shade(span.to, unicode), part));
        drawn += part;
    }
    bar
}

fn legend(unicode: bool) -> String {
    let points = Point::ALL.into_iter().skip(1);
    let words = points.map(|point| format!("{} until {}", shade(point, unicode), point.name()));
    words.collect::<Vec<_>>().join("  ")
}
