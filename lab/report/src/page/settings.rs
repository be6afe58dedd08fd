//! Figures of runs with several sets of settings: a plot for each operation, with a line for each environment.

use super::context::Context;
use super::help::help;
use super::ordinal_plot::{self, Frame, Line};
use super::{clock_title, heading, labels, Section};
use crate::by_settings::Series;
use crate::Report;
use maud::{html, Markup};
use std::collections::BTreeMap;
use trapline_abi::{Op, Workload};
use trapline_model::{Clock, EnvironmentId};

/// Returns `None` if there are fewer sets of settings than are shown together.
pub fn section(contexts: &[Context<'_>]) -> Option<Section> {
    let reports: Vec<&Report> = contexts.iter().map(Context::report).collect();
    let series = EnvironmentId::all().filter_map(|id| Some((id, Series::new(id, &reports)?)));
    let series: Vec<(EnvironmentId, Series<'_>)> = series.collect();
    let clocks = Clock::ALL.into_iter().filter_map(|clock| {
        let plots = plots(&series, clock);
        (!plots.is_empty()).then_some((clock, plots))
    });
    let clocks: Vec<(Clock, Vec<Markup>)> = clocks.collect();
    let title = "By settings";
    (!clocks.is_empty()).then(|| Section {
        id: "settings".to_owned(),
        title: title.to_owned(),
        body: html! {
            (heading(title, help(title, &HELP)))
            @for (clock, plots) in &clocks {
                p.lead { (clock_title(*clock)) }
                div.trends { @for plot in plots { (plot) } }
            }
        },
    })
}

const HELP: [&str; 1] =
    ["Each point is a figure of the tables below, which have intervals and ranges. The settings have equal distances, in natural order."];

fn plots(series: &[(EnvironmentId, Series<'_>)], clock: Clock) -> Vec<Markup> {
    let series = series.iter().filter(|(id, _)| id.clock() == clock);
    let mut lines: BTreeMap<(&[String], Op), Vec<Line>> = BTreeMap::new();
    let mut titles = BTreeMap::new();
    for (id, series) in series {
        titles.insert(&series.names[..], series.title);
        for (op, points) in points(*id, series) {
            let of_op = lines.entry((&series.names, op)).or_default();
            of_op.push(Line {
                name: id.name().to_owned(),
                tone: labels::tone(*id),
                points,
                marks: html! {},
            });
        }
    }
    let plots = lines.into_iter().map(|((names, op), lines)| {
        let values = lines.iter().flat_map(|line| &line.points);
        let frame = Frame {
            title: titles[names],
            names: names.to_vec(),
            op,
            clock,
            values: ordinal_plot::around(values.map(|(_, value)| *value)),
        };
        frame.plot(&lines)
    });
    plots.collect()
}

/// Returns the figures of an environment by operation, with the places of their settings. Work of several CPUs has a section
/// of its own.
fn points(id: EnvironmentId, series: &Series<'_>) -> BTreeMap<Op, Vec<(usize, f64)>> {
    let mut points: BTreeMap<Op, Vec<(usize, f64)>> = BTreeMap::new();
    for (place, report) in series.reports.iter().enumerate() {
        let cells = report.summary.cells.iter();
        let cells = cells.filter(|it| it.environment == id && it.op.workload() != Workload::Smp);
        for cell in cells {
            if let Some(figure) = cell.value.figure() {
                points
                    .entry(cell.op)
                    .or_default()
                    .push((place, figure.estimate));
            }
        }
    }
    points.retain(|_, points| points.len() > 1);
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_settings::tests::report;
    use crate::page::{Run, Study};

    #[test]
    fn kernels_are_plotted_with_their_versions_in_order() {
        let run = Run::default();
        let studies = [
            ("6.12.101", 3297.0),
            ("6.1.0-9", 3254.0),
            ("6.12.95", 3290.0),
        ];
        let studies = studies.map(|(kernel, figure)| Study {
            report: report(&format!("kernel={kernel}"), figure),
            observations: Vec::new(),
        });
        let contexts: Vec<_> = studies.iter().map(|it| Context::new(&run, it, 0)).collect();
        assert!(section(&contexts[..2]).is_none());
        let page = section(&contexts).unwrap().body.into_string();
        let place = |name: &str| page.find(&format!(">{name}</text>")).unwrap();
        assert!(place("6.1.0-9") < place("6.12.95") && place("6.12.95") < place("6.12.101"));
        assert!(page.contains("rotate(-30") && page.contains(">kernel</text>"));
        assert!(
            page.contains("exits/port-out: 1 series over 3 of kernel"),
            "{page}"
        );
    }
}
