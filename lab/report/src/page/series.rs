//! Environments that were measured with several sets of settings: a plot for each operation, with a line for each
//! environment.

use super::context::Context;
use super::help::help;
use super::ordinal_plot::{self, Frame, Line};
use super::{clock_title, heading, labels, Section};
use crate::series::Series;
use maud::{html, Markup};
use std::collections::BTreeMap;
use trapline_model::{Clock, Operation};

/// Returns `None` if no environment has a series of settings.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let clocks = Clock::ALL
        .into_iter()
        .map(|clock| (clock, plots(context, clock)));
    let clocks = clocks.filter(|(_, plots)| !plots.is_empty());
    let clocks: Vec<(Clock, Vec<Markup>)> = clocks.collect();
    let title = "By settings";
    (!clocks.is_empty()).then(|| {
        let body = html! {
            (heading(title, help(title, &HELP)))
            @for (clock, plots) in &clocks {
                p.lead { (clock_title(*clock)) }
                div.trends { @for plot in plots { (plot) } }
            }
        };
        Section::new("settings", title, body)
    })
}

const HELP: [&str; 2] = [
    "Each point is a figure of the tables below, which have intervals and ranges. The settings have equal distances, in natural order.",
    "The instruction clock adds up all CPUs: a flat line over their number means that no CPU has more to do because there are \
     others.",
];

fn plots(context: &Context<'_>, clock: Clock) -> Vec<Markup> {
    let series = Series::of_clock(context.report, &context.cells, clock);
    let mut lines: BTreeMap<(&[String], Operation), Vec<Line>> = BTreeMap::new();
    let mut titles = BTreeMap::new();
    for series in &series {
        titles.insert(&series.names[..], series.title);
        for (op, points) in points(context, series) {
            let of_op = lines.entry((&series.names, op)).or_default();
            of_op.push(Line {
                name: series.environment.to_string(),
                tone: labels::tone(series.environment),
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

/// Returns the figures of a series by operation, with the places of their configurations.
fn points(context: &Context<'_>, series: &Series<'_>) -> BTreeMap<Operation, Vec<(usize, f64)>> {
    let mut points: BTreeMap<Operation, Vec<(usize, f64)>> = BTreeMap::new();
    for (place, config) in series.configs.iter().enumerate() {
        for cell in context.cells.iter().filter(|cell| cell.config == **config) {
            if let Some(figure) = cell.value.figure() {
                let of_op = points.entry(cell.op).or_default();
                of_op.push((place, figure.estimate));
            }
        }
    }
    points.retain(|_, points| points.len() > 1);
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Run;
    use crate::series::tests::report;

    #[test]
    fn kernels_are_plotted_with_their_versions_in_order() {
        let run = Run::default();
        let kernels = [
            ("sim/kvm:kernel=6.12.101", 3297.0),
            ("sim/kvm:kernel=6.1.0-9", 3254.0),
            ("sim/kvm:kernel=6.12.95", 3290.0),
        ];
        let few = report(&kernels[..2]);
        assert!(section(&Context::new(&run, &few, &[])).is_none());
        let report = report(&kernels);
        let page = section(&Context::new(&run, &report, &[])).unwrap();
        let page = page.body.into_string();
        let place = |name: &str| page.find(&format!(">{name}</text>")).unwrap();
        assert!(place("6.1.0-9") < place("6.12.95") && place("6.12.95") < place("6.12.101"));
        assert!(page.contains("rotate(-30") && page.contains(">kernel</text>"));
        assert!(
            page.contains("exits/port-out: 1 series over 3 of kernel"),
            "{page}"
        );
    }
}
