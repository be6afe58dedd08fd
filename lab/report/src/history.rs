//! Shifts in the series of a store.

use crate::document::json::Object;
use crate::document::{Document, Look, Marker, Section};
use crate::figures;
use serde::Serialize;
use trapline_stats::history::{Entry, Pattern, Screened, Screening, Series, Shift, FEWEST_TESTED};
use trapline_stats::value::{self, Work};

/// Characters of the value of a fact that are shown.
const FACT: usize = 24;

/// Returns the document of the shifts, those of a series in order of time.
pub fn document(screening: &Screening, date: &dyn Fn(u64) -> String) -> Document {
    let series = screening.series.iter();
    let mut sections: Vec<Section> = series.filter_map(|one| section(one, date)).collect();
    let mut last = Section::default();
    last.note(Marker::Paragraph, &summary(screening), Look::Plain);
    sections.push(last);
    Document {
        sections,
        object: object(screening),
        ..Document::default()
    }
}

/// Returns the section of a series, if it has shifts or runs without a figure.
fn section(screened: &Screened, date: &dyn Fn(u64) -> String) -> Option<Section> {
    let Screened {
        series,
        shifts,
        pattern,
    } = screened;
    let mut section = Section::new(&title(series), "");
    for shift in shifts {
        let text = describe(series, shift, date);
        section.note(Marker::Item, &text, look(series, shift));
        for (name, before, after) in &shift.changed {
            section.details([format!("{name}: {} -> {}", short(before), short(after))]);
        }
    }
    section.warnings(pattern.map(|pattern| match pattern {
        Pattern::TwoStates { changes } => format!(
            "the figures change {changes} times between two levels: the host may have two states, and a shift be one \
             of these changes"
        ),
        Pattern::Drift => {
            "the figures change slowly, also between the shifts: no run is the first of another level".to_owned()
        }
    }));
    for Entry { moment, figure, .. } in &series.entries {
        if let Err(reason) = figure {
            let (run, date) = (moment.run, date(moment.at));
            let text = format!("run {run}, {date}: no figure: {reason}");
            section.note(Marker::Item, &text, Look::Bad);
        }
    }
    (!section.blocks.is_empty()).then_some(section)
}

fn title(series: &Series) -> String {
    let work = match series.work {
        Work::Unsized => None,
        work => Some(work.to_string()),
    };
    let settings = Some(series.settings.clone()).filter(|settings| !settings.is_empty());
    let parts: Vec<String> = [
        Some(format!("{} in {}", series.op.path(), series.config)),
        settings,
        work,
        Some(format!("{} runs", series.entries.len())),
    ]
    .into_iter()
    .flatten()
    .collect();
    parts.join(", ")
}

/// The number of series with shifts, and the error rate of the search.
fn summary(screening: &Screening) -> String {
    let Screening { series, level, .. } = screening;
    let with = |exact: bool| {
        let of_clock = series
            .iter()
            .filter(move |one| one.series.clock().is_exact() == exact);
        let shifted = of_clock.clone().filter(|one| !one.shifts.is_empty());
        (shifted.count(), of_clock.count())
    };
    let (exact, wall) = (with(true), with(false));
    let mut parts = Vec::new();
    if wall.1 > 0 {
        parts.push(format!(
            "Wall clock: {} of {} series shifted. False discovery rate {:.0}% over the {} series \
             of the store that were tested; p is corrected for these.",
            wall.0,
            wall.1,
            level * 100.0,
            screening.tested
        ));
    }
    if screening.too_short > 0 {
        parts.push(format!(
            "{} series of fewer than {FEWEST_TESTED} runs were not tested.",
            screening.too_short
        ));
    }
    if exact.1 > 0 {
        parts.push(format!(
            "Exact clocks: {} of {} series changed; every changed digit is reported.",
            exact.0, exact.1
        ));
    }
    if parts.is_empty() {
        parts.push("No series.".to_owned());
    }
    parts.push("For a verdict use 'trapline compare' or 'trapline check'.".to_owned());
    parts.join(" ")
}

fn describe(series: &Series, shift: &Shift, date: &dyn Fn(u64) -> String) -> String {
    let figure = |value| figures::value(value, series.op, series.clock());
    let p = shift
        .point
        .p
        .map_or_else(String::new, |p| format!(", corrected p {p:.1e}"));
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
    match crate::compare::Direction::of(series.op, shift.point.change) {
        crate::compare::Direction::Better => Look::Good,
        crate::compare::Direction::Worse => Look::Bad,
    }
}

fn short(value: &str) -> String {
    match value.chars().count() {
        0 => "(none)".to_owned(),
        count if count > FACT => {
            let kept: String = value.chars().take(FACT - 2).collect();
            format!("{kept}..")
        }
        _ => value.to_owned(),
    }
}

/// Returns the JSON object with every figure.
fn object(screening: &Screening) -> Object {
    let series = screening.series.iter().map(JsonSeries::new);
    let mut object = Object::default();
    object.push("level", screening.level);
    // A value has its keys in alphabetical order, as the format has.
    object.push("series", serde_json::json!(series.collect::<Vec<_>>()));
    object.push("tested", screening.tested);
    object.push("too_short", screening.too_short);
    object
}

#[derive(Serialize)]
struct JsonSeries {
    #[serde(rename = "contender")]
    config: String,
    settings: String,
    work: Option<String>,
    workload: &'static str,
    operation: String,
    clock: &'static str,
    unit: &'static str,
    figures: Vec<JsonEntry>,
    shifts: Vec<JsonShift>,
    pattern: Option<&'static str>,
}

#[derive(Serialize)]
struct JsonEntry {
    run: i64,
    started_at: u64,
    figure: Option<f64>,
    problem: Option<String>,
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
    fn new(screened: &Screened) -> Self {
        let Screened {
            series,
            shifts,
            pattern,
        } = screened;
        let clock = series.clock();
        let entries = series.entries.iter().map(|entry| JsonEntry {
            run: entry.moment.run,
            started_at: entry.moment.at,
            figure: entry.figure.as_ref().ok().copied(),
            problem: entry.figure.as_ref().err().cloned(),
        });
        Self {
            config: series.config.to_string(),
            settings: series.settings.clone(),
            work: (series.work != Work::Unsized).then(|| series.work.to_string()),
            workload: series.op.workload_name(),
            operation: series.op.name(),
            clock: clock.name(),
            unit: value::unit(series.op, clock),
            figures: entries.collect(),
            shifts: shifts.iter().cloned().map(JsonShift::from).collect(),
            pattern: pattern.map(Pattern::name),
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

#[cfg(test)]
mod tests;
