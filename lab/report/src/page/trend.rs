//! The figures of all runs of a store as a page: a plot for each operation and clock, with a line for each
//! configuration, and the shifts in words.

use super::axis::px;
use super::ordinal_plot::{self, Frame};
use super::shell::{self, Head};
use super::{below_title, heading, labels, Section};
use crate::document::{json, Document};
use crate::figures::clock_title;
use maud::{html, Markup};
use std::collections::{BTreeMap, BTreeSet};
use trapline_model::{Clock, Operation};
use trapline_stats::history::{Screened, Screening};

/// Renders the page; `document` has the shifts in words.
pub fn page(screening: &Screening, document: &Document) -> String {
    let mut plots: BTreeMap<(Clock, Operation), Vec<&Screened>> = BTreeMap::new();
    for one in &screening.series {
        let key = (one.series.clock(), one.series.op);
        plots.entry(key).or_default().push(one);
    }
    let words = Section {
        id: "headline".to_owned(),
        title: "Shifts".to_owned(),
        body: html! {
            h1 { "Figures of all runs" }
            (below_title(document))
        },
    };
    let clocks = Clock::ALL.into_iter().filter_map(|clock| {
        let here = plots.iter().filter(|((of, _), _)| *of == clock);
        let here: Vec<_> = here
            .map(|((_, op), series)| (*op, series.as_slice()))
            .collect();
        (!here.is_empty()).then(|| of_clock(clock, &here))
    });
    let sections: Vec<Section> = std::iter::once(words).chain(clocks).collect();
    let data = json::render(&document.object, false);
    let head = Head {
        title: "Trapline: history".to_owned(),
        ..Head::default()
    };
    shell::document(&head, &sections, &data).into_string()
}

fn of_clock(clock: Clock, plots: &[(Operation, &[&Screened])]) -> Section {
    let title = clock_title(clock);
    Section {
        id: clock.name().to_owned(),
        title: title.to_owned(),
        body: html! {
            (heading(title, html! {}))
            p.lead { "A dashed line is a shift. All configurations of an operation have one scale." }
            div.trends { @for (op, series) in plots { (plot(*op, series)) } }
        },
    }
}

fn plot(op: Operation, all: &[&Screened]) -> Markup {
    let entries = || all.iter().flat_map(|one| &one.series.entries);
    let runs: BTreeSet<i64> = entries().map(|entry| entry.moment.run).collect();
    let runs: Vec<i64> = runs.into_iter().collect();
    let values = entries().filter_map(|entry| entry.figure.as_ref().ok().copied());
    let frame = Frame {
        title: "run",
        names: runs.iter().map(ToString::to_string).collect(),
        op,
        clock: all[0].series.clock(),
        values: ordinal_plot::around(values),
    };
    let place = |run: i64| runs.binary_search(&run).unwrap_or(0);
    let series = all.iter().map(|one| {
        let entries = one.series.entries.iter();
        let points = entries.filter_map(|entry| {
            let value = *entry.figure.as_ref().ok()?;
            Some((place(entry.moment.run), value))
        });
        ordinal_plot::Line {
            name: name(one),
            tone: labels::tone(one.series.config.environment),
            points: points.collect(),
            marks: html! { @for shift in &one.shifts {
                @let x = frame.across(place(shift.moment.run));
                (frame.rule(x))
                text.t.end x=(px(x - 3.0)) y=(frame.top() - 2.0) {
                    (format!("{:+.1}%", (shift.point.change - 1.0) * 100.0)) }
            } },
        }
    });
    frame.plot(&series.collect::<Vec<_>>())
}

/// Returns the name of a series among those of its operation.
fn name(one: &Screened) -> String {
    let settings = &one.series.settings;
    if settings.is_empty() {
        one.series.config.to_string()
    } else {
        format!("{}, {settings}", one.series.config)
    }
}
