//! Sections of rates: a table for each kind of frames and distance of the CPUs; and sentences.

use crate::document::{Look, Section, Span, Table};
use crate::figures;
use crate::rates::{Cell, FrameTable, Frames, Median, Rates};
use crate::report::Report;
use trapline_model::packets::{Direction, Latency};
use trapline_model::Clock;
use trapline_stats::order::Interval;
use trapline_stats::packets::GOALS;

/// Returns a section for each kind of frames.
pub fn sections(report: &Report, _: &[trapline_stats::Cell], clock: Clock) -> Vec<Section> {
    if clock != Clock::Wall {
        return Vec::new();
    }
    let rates = &report.packets;
    let tables = rates.tables.iter().map(|table| of_frames(rates, table));
    let mut sections: Vec<Section> = tables.collect();
    if let Some(last) = sections.last_mut() {
        last.details([EXPLANATION]);
    }
    sections
}

const EXPLANATION: &str = "Frames are numbered, and number, length and content of each are checked. Sizes are without \
     the checksum of 4 bytes. Latency is from the time at which a frame was due until it has arrived, at half of the \
     rate. Frames are sent and received by one thread. A ratio is the first path's rate by this one's, the median of the rounds.";

/// Returns what differs, in sentences with what stands behind them: the first path against each other.
pub fn findings(report: &Report) -> Vec<(String, String)> {
    let tables = report.packets.tables.iter();
    let all = tables.flat_map(|table| {
        let others = table.cells.iter().skip(1);
        others.filter_map(|cell| finding(table, cell))
    });
    all.collect()
}

fn finding(table: &FrameTable, other: &Cell) -> Option<(String, String)> {
    let first = table.cells.first()?;
    let ratio = table.ratio(other)?;
    let interval = ratio.interval?;
    let rates = [first.rate()?.value, other.rate()?.value].map(mpps);
    let frames = frames(table);
    let by = format!(
        "{} to {} by the {} interval",
        figures::times(interval.low),
        figures::times(interval.high),
        figures::level(interval.level)
    );
    let (one, two) = (first.path(), other.path());
    let text = format!("{} against {} Mpps; {by}.", rates[0], rates[1]);
    let title = match (interval.low > 1.0, interval.high < 1.0) {
        (true, _) => {
            let times = figures::quantity(ratio.estimate);
            format!("{frames}, {one} forwards {times} times as many frames as {two}.")
        }
        (_, true) => {
            let times = figures::quantity(1.0 / ratio.estimate);
            format!("{frames}, {two} forwards {times} times as many frames as {one}.")
        }
        _ => format!("{frames}, no clear difference between {one} and {two}."),
    };
    Some((title, text))
}

/// Returns the title of a table.
fn frames(table: &FrameTable) -> String {
    let Frames {
        direction,
        queues,
        size,
        distance,
    } = table.frames;
    format!(
        "{size} bytes, {queues}, {}, CPUs {}",
        direction.words(),
        distance.words()
    )
}

fn of_frames(rates: &Rates, of: &FrameTable) -> Section {
    let [ports, forwarder] = rates.cpus;
    let apart = of.round_trip().map_or_else(String::new, |ns| {
        format!(", {} apart", figures::nanoseconds(ns))
    });
    let title = frames(of);
    let explanation = format!("ports on CPU {ports}, forwarder on CPU {forwarder}{apart}");
    let mut section = Section::new(&title, explanation);
    let shown: Vec<&Shown> = SHOWN
        .iter()
        .filter(|shown| of.cells.iter().any(|cell| (shown.text)(of, cell).is_some()))
        .collect();
    let titles = shown.iter().map(|it| it.title);
    let mut optional: Vec<usize> = (0..shown.len())
        .filter(|index| shown[*index].leave_out > 0)
        .collect();
    optional.sort_by_key(|index| shown[*index].leave_out);
    let mut table = Table::new("", titles).with_optional(&optional);
    for cell in &of.cells {
        let cells = shown.iter().map(|shown| match (shown.text)(of, cell) {
            Some(text) => Span::new(text, shown.look),
            None => Span::absent(),
        });
        table.row(cell.path(), cells);
    }
    section.table(table);
    let share = of.least_share_of_cpu().filter(|share| *share < UNDISTURBED);
    section.warnings(share.map(|share| {
        let share = figures::percent(share);
        format!("other programs ran on CPU {ports}: in a trial the ports had it for {share} of the time")
    }));
    section
}

/// Share of a CPU that a thread without competitors has.
const UNDISTURBED: f64 = 0.95;

/// A column.
struct Shown {
    /// The heading.
    title: &'static str,
    look: Look,
    /// Rank in leaving columns out where there is no room, from 1; 0: never.
    leave_out: u8,
    text: fn(&FrameTable, &Cell) -> Option<String>,
}

const SHOWN: [Shown; 12] = [
    Shown {
        title: "Mpps",
        look: Look::Strong,
        leave_out: 0,
        text: |_, cell| Some(mpps(cell.rate()?.value)),
    },
    Shown {
        title: "interval",
        look: Look::Faint,
        leave_out: 6,
        text: |_, cell| cell.rate().and_then(rates_interval),
    },
    Shown {
        title: "ratio",
        look: Look::Plain,
        leave_out: 0,
        text: |table, cell| Some(figures::times(table.ratio(cell)?.estimate)),
    },
    Shown {
        title: "interval",
        look: Look::Faint,
        leave_out: 5,
        text: |table, cell| table.ratio(cell)?.interval.map(ratios_interval),
    },
    Shown {
        title: "lost",
        look: Look::Plain,
        leave_out: 0,
        text: |_, cell| Some(figures::percent(cell.loss()?)),
    },
    Shown {
        title: "no loss",
        look: Look::Strong,
        leave_out: 0,
        text: |table, cell| without_loss(table, cell, GOALS[0]),
    },
    Shown {
        title: "0.5% loss",
        look: Look::Plain,
        leave_out: 4,
        text: |table, cell| without_loss(table, cell, GOALS[1]),
    },
    Shown {
        title: "CPU ports",
        look: Look::Plain,
        leave_out: 3,
        text: |_, cell| Some(figures::nanoseconds(cell.ports_cpu()?)),
    },
    Shown {
        title: "forwarder",
        look: Look::Plain,
        leave_out: 2,
        text: |_, cell| Some(figures::nanoseconds(cell.forwarder_cpu()?)),
    },
    Shown {
        title: "notified",
        look: Look::Plain,
        leave_out: 1,
        text: |_, cell| Some(figures::quantity(cell.notifications()?)),
    },
    Shown {
        title: "p50",
        look: Look::Plain,
        leave_out: 0,
        text: |_, cell| percentile(cell, |it| it.p50),
    },
    Shown {
        title: "p99",
        look: Look::Plain,
        leave_out: 0,
        text: |_, cell| percentile(cell, |it| it.p99),
    },
];

fn percentile(cell: &Cell, of: fn(&Latency) -> u64) -> Option<String> {
    Some(figures::nanoseconds(cell.latency(of)?))
}

/// Million frames in a second.
fn mpps(rate: f64) -> String {
    figures::quantity(rate / 1e6)
}

fn rates_interval(median: Median) -> Option<String> {
    let Interval { low, high, .. } = median.interval?;
    Some(format!("{}..{}", mpps(low), mpps(high)))
}

fn ratios_interval(interval: Interval) -> String {
    let [low, high] = [interval.low, interval.high].map(figures::quantity);
    format!("{low}..{high}")
}

/// The searched rate of all senders together.
fn without_loss(table: &FrameTable, cell: &Cell, goal: f64) -> Option<String> {
    let senders = match table.frames.direction {
        Direction::Both => 2.0,
        Direction::One | Direction::Half => 1.0,
    };
    let bounds = cell.bounds(goal)?;
    Some(match (bounds.lower, bounds.upper) {
        (Some(lower), Some(_)) => mpps(lower * senders),
        (Some(lower), None) => format!(">{}", mpps(lower * senders)),
        (None, Some(upper)) => format!("<{}", mpps(upper * senders)),
        (None, None) => return None,
    })
}
