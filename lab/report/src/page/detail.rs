//! Details of the figures of the wall clock: for each operation a plot of all values by configuration
//! and a table of statistics.

use super::context::Context;
use super::distribution_plot::{Detail, DistributionPlot};
use super::help::help;
use super::labels;
use super::{heading, Section};
use crate::document::{html as document, Span, Table, ABSENT};
use crate::figures;
use maud::{html, Markup};
use trapline_model::{Clock, Operation};
use trapline_stats::modes::{modes, Mode};
use trapline_stats::Sorted;
use trapline_stats::{verdict, Cell, Figure};

/// Returns `None` without observations of the wall clock.
pub fn section(context: &Context<'_>) -> Option<Section> {
    if context.observations.is_empty() {
        return None;
    }
    let shown = context.shown(Clock::Wall)?;
    let title = "Distributions";
    let measured = context
        .cells
        .iter()
        .filter(|cell| cell.clock == Clock::Wall);
    let boots = measured.filter_map(|cell| Some(cell.value.figure()?.boots));
    let grain = Detail::fitting(boots.sum());
    Some(Section::new(
        "distributions",
        title,
        html! {
            (heading("Distributions, wall clock", help(title, &HELP)))
            p.lead { "Every batch of every boot. Open an operation, or choose it in the table above." }
            div.operations {
                @for op in &shown.operations { (operation(context, *op, grain)) }
            }
        },
    ))
}

const HELP: [&str; 3] = [
    "Above: how many batches came to which value. In the middle: the share of batches that are at \
     most so much. Below: each boot, from 5% to 95% of its batches, thicker from 25% to 75%, with \
     its median. The line through all is the estimate, the shade around it its interval over boots.",
    "Values that gather around several are modes, and named. Where boots lie apart, the boot is what \
     decides, and the interval over boots is what to look at.",
    "Pictures beside each other have one axis. What differs by more than a factor of four has a line of \
     pictures of its own.",
];

/// Returns the id of the details of an operation.
pub fn address(op: Operation) -> String {
    format!("on-{}-{}", op.workload_name(), op.name())
}

fn operation(context: &Context<'_>, op: Operation, grain: Detail) -> Markup {
    let cells = context.cells.iter();
    let here = cells.filter(|cell| cell.clock == Clock::Wall && cell.op == op);
    let rows = here.filter_map(|cell| Some((cell, cell.value.figure()?)));
    let rows: Vec<(&Cell, &Figure)> = rows.collect();
    let clouds = clouds(context, &rows, grain);
    html! {
        details #(address(op)) {
            summary { span.of { (op.workload_name()) "/" } b { (op.name()) }
                span.what { (op.description()) } }
            @for group in groups(&clouds) {
                div.clouds { @for cloud in &group { (cloud.drawn(context, common_ends(&group))) } }
            }
            (document::scrollable(&format!("{} in numbers", op.path()), &document::table(&numbers(context, &rows))))
        }
    }
}

/// The values of one configuration.
struct Cloud<'a> {
    cell: &'a Cell,
    figure: &'a Figure,
    boots: Vec<Sorted>,
    all: Sorted,
    modes: Vec<Mode>,
    grain: Detail,
}

fn clouds<'a>(
    context: &Context<'_>,
    rows: &[(&'a Cell, &'a Figure)],
    grain: Detail,
) -> Vec<Cloud<'a>> {
    let rows = rows.iter();
    rows.filter_map(|(cell, figure)| Cloud::new(context, cell, figure, grain))
        .collect()
}

/// Returns groups of plots that share an axis: estimates of a group are within a factor of
/// [`COMPARABLE`]. Configurations keep their order.
fn groups<'b, 'a>(clouds: &'b [Cloud<'a>]) -> Vec<Vec<&'b Cloud<'a>>> {
    let mut sorted: Vec<&Cloud<'_>> = clouds.iter().collect();
    sorted.sort_by(|a, b| a.figure.estimate.total_cmp(&b.figure.estimate));
    let mut groups: Vec<Vec<&Cloud<'_>>> = Vec::new();
    for cloud in sorted {
        match groups.last_mut() {
            Some(group) if cloud.figure.estimate <= group[0].figure.estimate * COMPARABLE => {
                group.push(cloud);
            }
            _ => groups.push(vec![cloud]),
        }
    }
    for group in &mut groups {
        group.sort_by_key(|cloud| &cloud.cell.config);
    }
    groups.sort_by_key(|group| &group[0].cell.config);
    groups
}

/// Returns the ends of the axis of a group.
fn common_ends(group: &[&Cloud<'_>]) -> (f64, f64) {
    let ends = group.iter().map(|cloud| cloud.plot().ends());
    ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        .unwrap_or_default()
}

impl<'a> Cloud<'a> {
    fn new(
        context: &Context<'_>,
        cell: &'a Cell,
        figure: &'a Figure,
        grain: Detail,
    ) -> Option<Self> {
        let here = context.observations.iter();
        let here = here.filter(|seen| seen.config == cell.config);
        let mut boots = verdict::boot_values(here.clone(), cell.op);
        boots.sort_by_key(|boot| boot.block);
        let step = verdict::clock_step(here, cell.op);
        let boots = boots.into_iter();
        let boots: Vec<Sorted> = boots.filter_map(|boot| Sorted::new(boot.batches)).collect();
        let all = Sorted::new(boots.iter().flat_map(Sorted::iter).collect())?;
        let modes = modes(&all.iter().collect::<Vec<f64>>(), step);
        Some(Self {
            cell,
            figure,
            boots,
            all,
            modes,
            grain,
        })
    }

    fn plot(&self) -> DistributionPlot<'_> {
        DistributionPlot {
            op: self.cell.op,
            figure: self.figure,
            boots: &self.boots,
            all: &self.all,
            grain: self.grain,
        }
    }

    /// Renders the plot on an axis with these ends.
    fn drawn(&self, context: &Context<'_>, ends: (f64, f64)) -> Markup {
        let (plot, name) = (self.plot(), context.name(&self.cell.config));
        html! {
            figure.cloud.(labels::tone(self.cell.config.environment)) {
                figcaption { i.dot {} (name) " "
                    b { (figures::value(self.figure.estimate, self.cell.op, self.cell.clock)) } }
                (plot.drawn(&name, ends))
                (gathered(&self.modes, self.cell))
            }
        }
    }
}

/// Largest factor between estimates of plots that share an axis.
const COMPARABLE: f64 = 4.0;

/// Returns the modes, if there are several.
fn gathered(modes: &[Mode], cell: &Cell) -> Markup {
    let one = |mode: &Mode| {
        let value = figures::value(mode.location, cell.op, cell.clock);
        format!("{value} ({})", figures::percent(mode.share))
    };
    let all: Vec<String> = modes.iter().map(one).collect();
    html! {
        @if all.len() > 1 {
            p.beyond { (all.len()) " modes: " (all.join(", ")) }
        }
    }
}

const COLUMNS: [&str; 11] = [
    "estimate", "95% from", "to", "min", "p50", "p90", "p99", "max", "batches", "exits", "host CPU",
];

fn numbers(context: &Context<'_>, rows: &[(&Cell, &Figure)]) -> Table {
    let mut table = Table::new("environment", COLUMNS);
    for (cell, figure) in rows {
        table.row(context.name(&cell.config), line(cell, figure));
    }
    table
}

fn line(cell: &Cell, figure: &Figure) -> [Span; COLUMNS.len()] {
    let value = |value| figures::value(value, cell.op, cell.clock);
    let known = |value: Option<String>| value.unwrap_or_else(|| ABSENT.to_owned());
    [
        value(figure.estimate),
        known(figure.interval.map(|one| value(one.low))),
        known(figure.interval.map(|one| value(one.high))),
        value(figure.min),
        value(figure.p50),
        known(figure.p90.map(value)),
        known(figure.p99.map(value)),
        value(figure.max),
        figures::count(figure.samples as u64),
        known(figure.exits.map(figures::quantity)),
        known(figure.host_cpu_ns.map(figures::nanoseconds)),
    ]
    .map(Span::plain)
}
