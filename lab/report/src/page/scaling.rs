//! Work of all CPUs of a guest by their number: a plot for each operation, with a line for each environment.

use super::context::Context;
use super::help::help;
use super::log_plot::{words, Frame, Line, LogAxis};
use super::{clock_title, heading, labels, Section};
use maud::{html, Markup};
use trapline_abi::{Op, Workload};
use trapline_model::{Clock, EnvironmentId};
use trapline_stats::value;

/// Returns `None` unless an environment was measured with several numbers of CPUs.
pub fn section(contexts: &[Context<'_>]) -> Option<Section> {
    let points: Vec<Point> = contexts.iter().flat_map(points).collect();
    let plots = Clock::ALL.into_iter().flat_map(|clock| {
        let operations = Workload::Smp.operations();
        operations.filter_map({
            let points = &points;
            move |op| plot(points, op, clock)
        })
    });
    let plots: Vec<Markup> = plots.collect();
    let title = "Scaling with CPUs";
    (!plots.is_empty()).then(|| Section {
        id: "scaling".to_owned(),
        title: title.to_owned(),
        body: html! {
            (heading(title, help(title, &HELP)))
            p.lead { "All CPUs of a guest at once, each with the same work. Both axes are logarithmic." }
            div.trends { @for plot in &plots { (plot) } }
        },
    })
}

const HELP: [&str; 2] = [
    "On the wall clock perfect scaling halves the time of an item, and doubles the bandwidth, with twice as many CPUs, as long \
     as the host has a CPU for each.",
    "The instruction clock adds up all CPUs: a flat line there means that no CPU has more to do because there are others.",
];

/// A figure of workload `smp`.
struct Point {
    environment: EnvironmentId,
    op: Op,
    clock: Clock,
    cpus: u32,
    figure: f64,
}

fn points<'a>(context: &'a Context<'_>) -> impl Iterator<Item = Point> + 'a {
    let cpus = context.report().overrides.value("cpus");
    let cpus = cpus.map_or(1, |value| value.number());
    let cells = context.cells.iter();
    let cells = cells.filter(|cell| cell.op.workload() == Workload::Smp);
    // The number of CPUs of a native row is that of the host, not a setting.
    let cells = cells.filter(|cell| !cell.environment.is_native_linux());
    cells.filter_map(move |cell| {
        Some(Point {
            environment: cell.environment,
            op: cell.op,
            clock: cell.clock,
            cpus,
            figure: cell.value.figure()?.estimate,
        })
    })
}

/// Plots one operation; `None` without an environment that has several points.
fn plot(points: &[Point], op: Op, clock: Clock) -> Option<Markup> {
    let lines = EnvironmentId::all().map(|id| {
        let of_it = points
            .iter()
            .filter(|it| (it.environment, it.op, it.clock) == (id, op, clock));
        let mut points: Vec<_> = of_it.map(|it| (f64::from(it.cpus), it.figure)).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line {
            name: id.name().to_owned(),
            tone: labels::tone(id),
            points,
        }
    });
    let lines: Vec<Line> = lines.filter(|line| line.points.len() > 1).collect();
    let caption = format!("smp/{}, {}", op.name(), clock_title(clock));
    let down = value::unit(op, clock);
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = LogAxis::around("CPUs", points().map(|point| point.0))?;
    let mut cpus: Vec<u32> = points().map(|point| point.0 as u32).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let cpus = cpus.into_iter().map(|cpus| (cpus.into(), cpus.to_string()));
    let across = LogAxis {
        ticks: cpus.collect(),
        ..across
    };
    let down = LogAxis::around(down, points().map(|point| point.1))?;
    Some(Frame::new(across, down).plot(&caption, &words(&caption, &lines), &lines))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{figure, measured};
    use crate::page::{Run, Study};
    use crate::Report;
    use trapline_stats::Summary;

    fn study(settings: &str, times: [f64; 2]) -> Study {
        let rows = [EnvironmentId::SIM, EnvironmentId::SIM_LINUX].into_iter();
        let cells = rows
            .zip(times)
            .map(|(id, time)| measured(id, Op::SmpPairs, figure(time)));
        let report = Report {
            overrides: settings.parse().unwrap(),
            operations: Op::SmpPairs.into(),
            summary: Summary {
                cells: cells.collect(),
                ..Summary::default()
            },
            ..Report::default()
        };
        Study {
            report,
            observations: Vec::new(),
        }
    }

    #[test]
    fn figures_of_several_numbers_of_cpus_are_plotted_but_not_native_ones() {
        let run = Run::default();
        let studies = [study("cpus=8", [300.0, 7.0]), study("cpus=2", [200.0, 7.0])];
        let contexts: Vec<_> = studies.iter().map(|it| Context::new(&run, it, 0)).collect();
        assert!(section(&contexts[..1]).is_none());
        let page = section(&contexts).unwrap().body.into_string();
        assert!(
            page.contains("smp/pairs") && page.contains("sim 300 at 8"),
            "{page}"
        );
        assert!(!page.contains("sim/linux") && !page.contains("smp/triad"));
        assert!(page.contains(">8</text>") && !page.contains(">5</text>"));
    }
}
