//! Sections of rates: a table for each kind of frames and distance of the CPUs; and sentences.

use crate::document::{Look, Section, Span, Table};
use crate::figures;
use crate::rates::{Cell, FrameTable, Frames, Median, Rates};
use crate::report::Report;
use trapline_model::packets::{Direction, Latency};
use trapline_model::Clock;
use trapline_stats::order::Interval;
use trapline_stats::packets::GOALS;
use trapline_stats::share_interval;
use trapline_stats::verdict::{
    test_table, Assessment, BootValues, Design, Settings, TestInput, Verdict,
};

/// Returns a section for each kind of frames.
pub fn sections(report: &Report, _: &[trapline_stats::Cell], clock: Clock) -> Vec<Section> {
    if clock != Clock::Wall {
        return Vec::new();
    }
    let rates = &report.packets;
    let tables = rates.tables.iter().map(|table| of_frames(rates, table));
    let mut sections: Vec<Section> = tables.collect();
    let mut cells = rates.tables.iter().flat_map(|table| &table.cells);
    let is_searched = cells.any(|cell| cell.searched(GOALS[0]).is_some());
    if let Some(last) = sections.last_mut() {
        last.details([EXPLANATION]);
        last.details(is_searched.then_some(SEARCHED));
    }
    sections
}

const EXPLANATION: &str = "Frames are numbered, and number, length and content of each are checked. Sizes are without \
     the checksum of 4 bytes. Latency is from the time at which a frame was due until it has arrived, at half of the \
     rate. Frames are sent and received by one thread. A ratio is the first path's rate by this one's, the median of the \
     rounds without disturbed trials.";

const SEARCHED: &str = "Half clean: the load of which half of the trials lose no frame, the median of the searches with \
     its interval; half <=0.5%: likewise with at most 0.5% lost; clean: of further trials with the loads found \
     these lost none, with the 95% interval of their share.";

/// Returns what differs, in sentences with what stands behind them: the first path against each other, by the tests of
/// `trapline compare` over all of them.
pub fn findings(report: &Report) -> Vec<(String, String)> {
    let tables = report.packets.tables.iter();
    let pairs = tables.flat_map(|table| table.cells.iter().skip(1).map(move |cell| (table, cell)));
    let pairs: Vec<(&FrameTable, &Cell)> = pairs.collect();
    let inputs: Vec<TestInput> = pairs
        .iter()
        .map(|(table, cell)| input(table, cell))
        .collect();
    let settings = Settings {
        seed: report.seed.unwrap_or_default(),
        ..Settings::default()
    };
    let tested = test_table(&inputs, &settings).into_iter().zip(pairs);
    let sentences = tested.filter_map(|(assessment, (table, cell))| {
        sentence(&assessment.ok()?, &table.cells[0], cell, &frames(table))
    });
    sentences.collect()
}

/// Returns the rates of undisturbed trials: A is the other path, B the first.
fn input(table: &FrameTable, other: &Cell) -> TestInput {
    let values = |cell: &Cell| {
        let rates = cell.undisturbed().into_iter();
        let values = rates.map(|(block, rate)| BootValues {
            block,
            batches: vec![rate],
            mean: Some(rate),
        });
        values.collect()
    };
    TestInput {
        clock: Clock::Wall,
        design: Design::Blocked,
        a: values(other),
        b: values(&table.cells[0]),
    }
}

fn sentence(
    assessment: &Assessment,
    first: &Cell,
    other: &Cell,
    frames: &str,
) -> Option<(String, String)> {
    let interval = assessment.decisive?;
    let rates = [first.rate()?.value, other.rate()?.value].map(mpps);
    let (one, two) = (first.path(), other.path());
    let by = format!(
        "{} to {} by the {} interval over {} rounds",
        figures::times(interval.low),
        figures::times(interval.high),
        figures::level(interval.level),
        assessment.blocks
    );
    let times = figures::quantity;
    let title = match assessment.verdict {
        Verdict::Changed if assessment.effect > 1.0 => {
            let least = times(interval.low);
            format!("{frames}, {one} forwards at least {least} times as many frames as {two}.")
        }
        Verdict::Changed => {
            let least = times(1.0 / interval.high);
            format!("{frames}, {two} forwards at least {least} times as many frames as {one}.")
        }
        Verdict::Equivalent => {
            format!("{frames}, {one} and {two} forward as many frames, within 2%.")
        }
        _ => format!("{frames}, no clear difference between {one} and {two}."),
    };
    Some((
        title,
        format!("{} against {} Mpps; {by}.", rates[0], rates[1]),
    ))
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
    let (disturbed, all, least) = of.disturbed();
    section.warnings((disturbed > 0).then(|| {
        let share = figures::percent(least);
        format!(
            "other programs ran on CPU {ports}: in {disturbed} of {all} trials, in one of which the ports had it for {share} \
             of the time; they are in no ratio"
        )
    }));
    section
}

/// A column.
struct Shown {
    /// The heading.
    title: &'static str,
    look: Look,
    /// Rank in leaving columns out where there is no room, from 1; 0: never.
    leave_out: u8,
    text: fn(&FrameTable, &Cell) -> Option<String>,
}

const SHOWN: [Shown; 14] = [
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
        text: |_, cell| {
            let (lost, due) = cell.lost()?;
            Some(figures::share(lost, due))
        },
    },
    Shown {
        title: "half clean",
        look: Look::Strong,
        leave_out: 0,
        text: |table, cell| searched(table, cell, GOALS[0]),
    },
    Shown {
        title: "interval",
        look: Look::Faint,
        leave_out: 7,
        text: searched_interval,
    },
    Shown {
        title: "clean",
        look: Look::Plain,
        leave_out: 0,
        text: |_, cell| clean(cell),
    },
    Shown {
        title: "half <=0.5%",
        look: Look::Plain,
        leave_out: 4,
        text: |table, cell| searched(table, cell, GOALS[1]),
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

fn senders(table: &FrameTable) -> f64 {
    match table.frames.direction {
        Direction::Both => 2.0,
        Direction::One | Direction::Half => 1.0,
    }
}

/// The searched load of all senders together.
fn searched(table: &FrameTable, cell: &Cell, goal: f64) -> Option<String> {
    let load = cell.searched(goal)?;
    let all = |load: f64| mpps(load * senders(table));
    Some(match (load.lower, load.upper) {
        (Some(lower), Some(_)) => all(lower),
        (Some(lower), None) => format!(">{}", all(lower)),
        (None, Some(upper)) => format!("<{}", all(upper)),
        (None, None) => return None,
    })
}

fn searched_interval(table: &FrameTable, cell: &Cell) -> Option<String> {
    let Interval { low, high, .. } = cell.searched(GOALS[0])?.interval?;
    let all = |load: f64| mpps(load * senders(table));
    Some(format!("{}..{}", all(low), all(high)))
}

/// The further trials that lost nothing: `17 of 60 (18%..41%)`.
fn clean(cell: &Cell) -> Option<String> {
    let load = cell
        .searched(GOALS[0])
        .filter(|load| load.lower.is_some())?;
    let (low, high) = share_interval(load.kept, load.further)?;
    Some(format!(
        "{} of {} ({}..{})",
        load.kept,
        load.further,
        figures::percent(low),
        figures::percent(high)
    ))
}
