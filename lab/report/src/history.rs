//! What a store's runs say over time: where series shifted, and what changed there.

use crate::sheet::{Look, Span};
use crate::terminal::Page;
use crate::{figures, printable, Style};
use serde::Serialize;
use trapline_plan::names;
use trapline_stats::history::{Series, Settings, Shift};
use trapline_stats::value;

/// A store's series, and what counts as a shift.
#[derive(Clone, Debug)]
pub struct History {
    /// Every series that was asked for.
    pub series: Vec<Series>,
    /// What counts as a shift.
    pub settings: Settings,
}

/// Characters of a fact's value that are shown.
const FACT: usize = 24;

/// The history as text: the latest shift of a series last, as one reads a log.
pub fn terminal(history: &History, date: &dyn Fn(u64) -> String, style: &Style) -> String {
    let mut page = Page {
        style: *style,
        text: String::new(),
    };
    let mut found = 0;
    for series in &history.series {
        let shifts = series.shifts(&history.settings);
        found += shifts.len();
        if shifts.is_empty() {
            continue;
        }
        let runs = series.entries.len();
        let title = format!("{} in {}", names::path(series.op), series.contender);
        page.line(&Span::new(
            format!("{}, {runs} runs", printable(&title)),
            Look::Strong,
        ));
        for shift in &shifts {
            page.paragraph(" ", &told(series, shift, date, style), look(series, shift));
            for (name, before, after) in &shift.changed {
                let text = format!("{name}: {} -> {}", short(before), short(after));
                page.paragraph("   ", &printable(&text), Look::Faint);
            }
        }
    }
    if found > 0 {
        page.text.push('\n');
    }
    let runs = history
        .series
        .iter()
        .map(|series| series.entries.len())
        .max();
    let summary = format!(
        "{} of {} series shifted, in up to {} runs. It looks back, and is no gate: 'trapline check' \
         and 'trapline compare' are.",
        history.series.iter().filter(|one| !one.shifts(&history.settings).is_empty()).count(),
        history.series.len(),
        runs.unwrap_or(0)
    );
    page.paragraph("", &summary, Look::Plain);
    page.text
}

fn told(series: &Series, shift: &Shift, date: &dyn Fn(u64) -> String, style: &Style) -> String {
    let clock = series.contender.environment.clock();
    let figure = |value| figures::value(value, series.op, clock, style.unicode);
    let p = shift
        .point
        .p
        .map_or_else(String::new, |p| format!(", p {p:.1e}"));
    format!(
        "run {}, {}: {} -> {} ({:+.1}%{p})",
        shift.moment.run,
        date(shift.moment.at),
        figure(shift.point.before),
        figure(shift.point.after),
        (shift.point.change - 1.0) * 100.0,
    )
}

fn look(series: &Series, shift: &Shift) -> Look {
    match crate::versus::Direction::of(series.op, shift.point.change) {
        crate::versus::Direction::Better => Look::Good,
        crate::versus::Direction::Worse => Look::Bad,
    }
}

fn short(value: &str) -> String {
    match value.chars().count() {
        0 => "(not told)".to_owned(),
        count if count > FACT => {
            let kept: String = value.chars().take(FACT - 2).collect();
            format!("{kept}..")
        }
        _ => value.to_owned(),
    }
}

/// The history as a JSON object, with every figure.
pub fn json(history: &History) -> serde_json::Value {
    let series: Vec<_> = history
        .series
        .iter()
        .map(|series| JsonSeries::new(series, &history.settings))
        .collect();
    serde_json::json!({ "series": series })
}

#[derive(Serialize)]
struct JsonSeries {
    contender: String,
    workload: &'static str,
    operation: &'static str,
    clock: &'static str,
    unit: &'static str,
    figures: Vec<JsonEntry>,
    shifts: Vec<JsonShift>,
}

#[derive(Serialize)]
struct JsonEntry {
    run: i64,
    started_at: u64,
    figure: f64,
}

#[derive(Serialize)]
struct JsonShift {
    run: i64,
    started_at: u64,
    before: f64,
    after: f64,
    change: f64,
    p: Option<f64>,
    changed: Vec<JsonFact>,
}

#[derive(Serialize)]
struct JsonFact {
    name: String,
    before: String,
    after: String,
}

impl JsonSeries {
    fn new(series: &Series, settings: &Settings) -> Self {
        let clock = series.contender.environment.clock();
        let entries = series.entries.iter().map(|entry| JsonEntry {
            run: entry.moment.run,
            started_at: entry.moment.at,
            figure: entry.figure,
        });
        Self {
            contender: series.contender.to_string(),
            workload: series.op.workload().name(),
            operation: series.op.name(),
            clock: clock.name(),
            unit: value::unit(series.op, clock),
            figures: entries.collect(),
            shifts: series
                .shifts(settings)
                .into_iter()
                .map(JsonShift::from)
                .collect(),
        }
    }
}

impl From<Shift> for JsonShift {
    fn from(shift: Shift) -> Self {
        let changed = shift.changed.into_iter();
        Self {
            run: shift.moment.run,
            started_at: shift.moment.at,
            before: shift.point.before,
            after: shift.point.after,
            change: shift.point.change,
            p: shift.point.p,
            changed: changed
                .map(|(name, before, after)| JsonFact {
                    name,
                    before,
                    after,
                })
                .collect(),
        }
    }
}
