//! Rates of packets: the rate by size, the latency by load, and all tables.

use super::context::Context;
use super::help::help;
use super::log_plot::{drawn, Line};
use super::{heading, Section};
use crate::document::html as document;
use crate::packets;
use crate::rates::{FrameTable, Rates};
use maud::{html, Markup};
use std::collections::BTreeMap;
use trapline_model::packets::{Direction, Distance, Purpose, Queues, Trial};
use trapline_model::Clock;

/// Returns the section of the page, if there are packets.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let rates = &context.report.packets;
    let body = html! {
        (heading("Packets", help("Packets", &HELP)))
        div.trends { (by_size(rates)) (by_load(rates)) }
        @for section in &packets::sections(context.report, &context.cells, Clock::Wall) {
            (document::section(section))
        }
    };
    (!rates.tables.is_empty()).then(|| Section::new("packets", "Packets", body))
}

const HELP: [&str; 3] = [
    "Two ports without guests send numbered frames through a forwarder and check each that arrives. The rate is the median of \
     all rounds, each of which measures every path once, with as many frames on their way as a queue holds.",
    "Rates depend on how far both CPUs are apart. The round trip of a cache line between them is measured in each trial, and \
     trials of different distances stand in different tables and plots.",
    "Latency is from the time at which a frame was due until it has arrived, so that a sender that is late does not hide it.",
];

/// Properties that the lines of a plot share: direction, format and number of queues, and distance.
type Kind = (Direction, Queues, Distance);

fn kinds(rates: &Rates) -> BTreeMap<Kind, Vec<&FrameTable>> {
    let mut kinds: BTreeMap<Kind, Vec<&FrameTable>> = BTreeMap::new();
    for table in &rates.tables {
        let frames = table.frames;
        let kind = (frames.direction, frames.queues, frames.distance);
        kinds.entry(kind).or_default().push(table);
    }
    kinds
}

/// Returns the colour of a path, on every page.
fn tone(path: &str) -> &'static str {
    const TONES: [(&str, &str); 5] = [
        ("switch", "t1"),
        ("testpmd", "t2"),
        ("veth", "t0"),
        ("bridge", "t6"),
        ("vde", "t7"),
    ];
    let known = TONES.iter().find(|(name, _)| *name == path);
    known.map_or("t4", |(_, tone)| tone)
}

/// Returns a line for each path with the points of some tables.
fn lines(
    tables: &[&FrameTable],
    points: impl Fn(&FrameTable, &str) -> Vec<(f64, f64)>,
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for table in tables {
        for cell in &table.cells {
            let points = points(table, cell.path());
            match lines.iter_mut().find(|line| line.name == cell.path()) {
                Some(line) => line.points.extend(points),
                None => lines.push(Line {
                    name: cell.path().to_owned(),
                    tone: tone(cell.path()),
                    points,
                }),
            }
        }
    }
    lines.retain(|line| !line.points.is_empty());
    lines
}

/// Plots the rate by size, if there are several sizes.
fn by_size(rates: &Rates) -> Markup {
    let plots = kinds(rates).into_values().filter(|it| it.len() > 1);
    html! { @for tables in plots {
        (drawn(&lines(&tables, |table, path| {
            let cell = table.cells.iter().find(|cell| cell.path() == path);
            let rate = cell.and_then(|cell| cell.rate());
            rate.map(|rate| (table.frames.size.into(), rate.value / 1e6)).into_iter().collect()
        }), &format!("rate by size, {}", named(tables[0])), ["bytes of a frame", "million frames a second"]))
    } }
}

/// Plots the latency by load.
fn by_load(rates: &Rates) -> Markup {
    html! { @for table in &rates.tables {
        (drawn(&lines(&[table], |table, path| {
            let cells = table.cells.iter().filter(|cell| cell.path() == path);
            let mut points: Vec<(f64, f64)> = cells.flat_map(|cell| &cell.trials).filter_map(loaded).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            points
        }), &format!("median latency by load, {} bytes, {}", table.frames.size, named(table)), ["million frames a second", "microseconds"]))
    } }
}

fn loaded((_, _, trial): &(u32, Purpose, Trial)) -> Option<(f64, f64)> {
    let latency = trial.latency.as_ref()?;
    Some((trial.offered? / 1e6, latency.p50.max(1) as f64 / 1e3))
}

fn named(FrameTable { frames, .. }: &FrameTable) -> String {
    let (direction, distance) = (frames.direction.name(), frames.distance.name());
    format!("{direction} way, {}, {distance}", frames.queues)
}
