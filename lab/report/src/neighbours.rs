//! How late another guest's timer is while a machine is populated: a row for each way
//! to populate it.

use crate::grid::Grid;
use crate::irq::json::JsonInterrupts;
use crate::sheet::{Look, Span};
use crate::terminal::Page;
use crate::{figures, Report};
use serde::Serialize;
use trapline_model::irq::Settings;
use trapline_model::Clock;
use trapline_stats::irq::Interrupts;

/// A guest beside a machine that was populated, and how its interrupts were made.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// The interrupts.
    pub interrupts: Interrupts,
    /// What disturbed them, among other things.
    pub settings: Settings,
}

/// The same for programs, without what only a report of interrupts needs.
#[derive(Serialize)]
pub struct JsonNeighbour(JsonInterrupts);

impl From<&Neighbour> for JsonNeighbour {
    fn from(neighbour: &Neighbour) -> Self {
        Self(JsonInterrupts::new(
            &neighbour.interrupts,
            &neighbour.settings,
        ))
    }
}

impl Page {
    /// How late neighbours were on one clock.
    pub(crate) fn neighbours(&mut self, report: &Report, clock: Clock) {
        let all = report.neighbours.iter();
        let shown: Vec<&Neighbour> = all.filter(|one| one.interrupts.clock == clock).collect();
        let Some(first) = shown.first() else {
            return;
        };
        let title = match clock {
            Clock::Wall => "Neighbour, wall clock",
            Clock::Insn => "Neighbour, instruction clock",
            Clock::InsnVmx => "Neighbour, Intel instruction clock",
        };
        let period = first.settings.period;
        self.heading(&(title, format!("how late its timer was, every {period}")));
        let grid = grid(&shown, clock, self.style.unicode);
        self.text.push_str(&grid.render(&self.style));
        let words = "the latest is the longest stretch during which the guest's timer could not \
                     be served, the first two windows left out; the machine is started, populated \
                     and ended again and again, on the same CPU";
        self.paragraph("   ", words, Look::Faint);
    }
}

fn grid(shown: &[&Neighbour], clock: Clock, unicode: bool) -> Grid {
    let mut grid = Grid::new("beside", ["p50", "p99", "latest", "missed", "of"]);
    for one in shown {
        // The guest itself has just started in the first windows.
        let Interrupts { all, rest, .. } = &one.interrupts;
        let all = rest.as_ref().unwrap_or(all);
        let absent = || "-".to_owned();
        let time = |value: Option<f64>| {
            value.map_or_else(absent, |value| figures::time(value, clock, unicode))
        };
        let late = all.lateness;
        let plain = |text: String| Span::new(text, Look::Plain);
        let cells = vec![
            plain(time(late.and_then(|late| late.p50))),
            plain(time(late.and_then(|late| late.p99))),
            Span::new(time(late.map(|late| late.max)), Look::Strong),
            plain(figures::count(all.missed())),
            plain(figures::count(all.expiries)),
        ];
        let load = one.settings.conditions.loads.to_string();
        grid.row(format!("{} {load}", one.interrupts.environment), cells);
    }
    grid
}
