//! Lateness of another guest's timer while a machine is populated: a row for each way to populate
//! it.

use crate::document::{Look, Section, Span, Table};
use crate::figures::{self, clock_name};
use crate::irq::json::JsonInterrupts;
use crate::report::{CoTenant, Report};
use serde::Serialize;
use trapline_model::Clock;
use trapline_stats::irq::Interrupts;
use trapline_stats::Cell;

/// A neighbour in the JSON format.
#[derive(Serialize)]
pub struct JsonCoTenant(JsonInterrupts);

impl From<&CoTenant> for JsonCoTenant {
    fn from(neighbour: &CoTenant) -> Self {
        Self(JsonInterrupts::new(
            &neighbour.interrupts,
            &neighbour.settings,
        ))
    }
}

/// Returns the neighbours of one clock, if there are any.
pub fn sections(report: &Report, _: &[Cell], clock: Clock) -> Vec<Section> {
    let all = report.co_tenants.iter();
    let shown: Vec<&CoTenant> = all.filter(|one| one.interrupts.clock == clock).collect();
    let Some(first) = shown.first() else {
        return Vec::new();
    };
    let explanation = format!("how late its timer was, every {}", first.settings.period);
    let mut section = Section::new(&format!("Co-tenant, {}", clock_name(clock)), explanation);
    section.table(table(report, &shown, clock));
    section.details([
        "the latest is the longest stretch during which the guest's timer could not be served, the \
         first two windows left out; the machine is started, populated and ended again and again, \
         on the same CPU",
    ]);
    vec![section]
}

fn table(report: &Report, shown: &[&CoTenant], clock: Clock) -> Table {
    let mut table = Table::new("beside", ["p50", "p99", "latest", "missed", "of"]);
    for one in shown {
        // The guest itself has just started in the first windows.
        let Interrupts { all, rest, .. } = &one.interrupts;
        let all = rest.as_ref().unwrap_or(all);
        let time = |value: Option<f64>, look| match value {
            Some(value) => Span::new(figures::time(value, clock), look),
            None => Span::absent(),
        };
        let late = all.lateness;
        let cells = [
            time(late.and_then(|late| late.p50), Look::Plain),
            time(late.and_then(|late| late.p99), Look::Plain),
            time(late.map(|late| late.max), Look::Strong),
            Span::plain(figures::count(all.missed())),
            Span::plain(figures::count(all.expiries)),
        ];
        let load = one.settings.conditions.loads.to_string();
        table.row(
            format!("{} {load}", report.name(&one.interrupts.config)),
            cells,
        );
    }
    table
}
