//! The tables of interrupts: a row for each environment and timer.

use crate::figures;
use crate::grid::Grid;
use crate::sheet::{Align, Group, Label, Look, Sheet, Span};
use trapline_abi::{Found, Op};
use trapline_plan::irq::Settings;
use trapline_plan::Clock;
use trapline_stats::irq::{Interrupts, Lateness, Point, Spread, FIRST_WINDOWS};

/// The heading of the names.
pub const NAMES: &str = "environment";

/// The environment and the timer.
pub fn name(interrupts: &Interrupts) -> String {
    let timer = match interrupts.op {
        Op::HostTimer => "host",
        _ => "own",
    };
    format!("{} {timer}", interrupts.environment)
}

/// A time of `clock` in a table whose heading has the unit: microseconds or
/// instructions.
pub fn time(value: f64, clock: Clock) -> String {
    match clock {
        Clock::Wall => figures::microseconds(value),
        Clock::Insn | Clock::InsnVmx => figures::exact(value.round()),
    }
}

/// How late interrupts were.
pub fn lateness(shown: &[&Interrupts]) -> Grid {
    let columns = [
        "mean", "sd", "min", "p50", "p90", "p99", "p99.9", "p99.99", "max",
    ];
    let mut grid = Grid::new(NAMES, columns);
    for interrupts in shown {
        let cells = match interrupts.all.lateness {
            None => vec![],
            Some(late) => of_lateness(&late, interrupts.clock),
        };
        grid.row(name(interrupts), cells);
    }
    // 90%, the deviation, 99.9%, the least.
    grid.giving_way(&[4, 1, 6, 2])
}

fn of_lateness(late: &Lateness, clock: Clock) -> Vec<Span> {
    let Lateness {
        mean,
        sd,
        min,
        p50,
        p90,
        p99,
        p999,
        p9999,
        max,
    } = *late;
    let plain = |value| Span::new(time(value, clock), Look::Plain);
    let strong = |value| Span::new(time(value, clock), Look::Strong);
    vec![
        strong(mean),
        plain(sd),
        plain(min),
        plain(p50),
        plain(p90),
        strong(p99),
        plain(p999),
        plain(p9999),
        strong(max),
    ]
}

/// A table with its heading and what there is to say of it.
pub type Titled = (&'static str, String, Grid);

/// How many came too late.
pub fn counts(shown: &[&Interrupts], settings: &Settings) -> Titled {
    let threshold = settings.threshold;
    let columns = ["expiries", "late", "missed", "too late", "in time"];
    let has_interval = shown.iter().any(|one| one.in_time_interval.is_some());
    let further = has_interval.then_some("95%");
    let mut grid = Grid::new(NAMES, columns.into_iter().chain(further));
    for interrupts in shown {
        let all = &interrupts.all;
        let count = |value| Span::new(figures::count(value), Look::Plain);
        let share = |part| figures::share(part, all.expiries);
        let look = if all.too_late() > 0 {
            Look::Middling
        } else {
            Look::Good
        };
        let mut spans = vec![
            count(all.expiries),
            count(all.above),
            count(all.missed()),
            Span::new(share(all.too_late()), look),
            Span::new(share(all.in_time()), Look::Strong),
        ];
        if has_interval {
            let interval = interval(interrupts.in_time_interval);
            spans.push(Span::new(interval, Look::Plain));
        }
        grid.row(name(interrupts), spans);
    }
    let in_insn = match shown.first().map(|interrupts| interrupts.clock) {
        Some(Clock::Insn | Clock::InsnVmx) => {
            format!(" = {} insn", figures::count(threshold.0))
        }
        _ => String::new(),
    };
    let explanation = format!("later than {threshold}{in_insn}, or missed");
    ("Too late", explanation, grid)
}

/// From which share to which, in percent.
fn interval(shares: Option<(f64, f64)>) -> String {
    shares.map_or_else(String::new, |(low, high)| {
        format!("{:.1}-{:.1}%", low * 100.0, high * 100.0)
    })
}

/// The first windows apart from the rest, and how the windows differ.
pub fn windows(shown: &[&Interrupts]) -> Titled {
    let columns = [
        "first mean",
        "p99",
        "max",
        "rest mean",
        "p99",
        "max",
        "means of all",
    ];
    let mut grid = Grid::new(NAMES, columns);
    for interrupts in shown {
        let clock = interrupts.clock;
        let mut cells = three(Some(&interrupts.first), clock);
        cells.extend(three(interrupts.rest.as_ref(), clock));
        cells.push(Span::new(range_of_means(interrupts), Look::Plain));
        grid.row(name(interrupts), cells);
    }
    let explanation = format!("the first {FIRST_WINDOWS} of 1,024 expiries, and the rest");
    // The range of means, then both 99%.
    ("Windows", explanation, grid.giving_way(&[6, 4, 1]))
}

fn three(spread: Option<&Spread>, clock: Clock) -> Vec<Span> {
    let late = spread.and_then(|spread| spread.lateness);
    let told = late.map_or([None; 3], |late| [late.mean, late.p99, late.max].map(Some));
    let cell = |value: Option<f64>| match value {
        Some(value) => Span::new(time(value, clock), Look::Plain),
        None => Span::new("-", Look::Faint),
    };
    told.map(cell).to_vec()
}

fn range_of_means(interrupts: &Interrupts) -> String {
    let windows = interrupts.windows.iter();
    let means: Vec<f64> = windows
        .filter_map(|w| Some(w.spread.lateness?.mean))
        .collect();
    let time = |value| time(value, interrupts.clock);
    let ends = means
        .iter()
        .copied()
        .reduce(f64::min)
        .zip(means.iter().copied().reduce(f64::max));
    ends.map_or_else(String::new, |(least, most)| {
        format!("{}-{}", time(least), time(most))
    })
}

/// What was interrupted.
pub fn found(shown: &[&Interrupts]) -> Titled {
    let columns = Found::ALL.map(|found| [found.name().to_owned(), "p99".to_owned()]);
    let mut grid = Grid::new(NAMES, columns.into_iter().flatten());
    for interrupts in shown {
        let cells = Found::ALL
            .into_iter()
            .flat_map(|found| of_found(interrupts, found));
        grid.row(name(interrupts), cells.collect());
    }
    let explanation = "interrupts of each kind, and how late 99% of those were".to_owned();
    ("What they found", explanation, grid)
}

fn of_found(interrupts: &Interrupts, found: Found) -> [Span; 2] {
    let spread = interrupts.found.iter().find(|(kind, _)| *kind == found);
    match spread.and_then(|(_, spread)| Some((spread.count, spread.lateness?))) {
        None => ["-", ""].map(|text| Span::new(text, Look::Faint)),
        Some((count, late)) => [
            Span::new(figures::count(count), Look::Plain),
            Span::new(time(late.p99, interrupts.clock), Look::Plain),
        ],
    }
}

/// Where the time went: points down, environments across.
pub fn stages(shown: &[&Interrupts], unicode: bool) -> Sheet {
    let points = Point::ALL.into_iter().skip(1);
    let names = points
        .clone()
        .map(|point| format!("until {}", point.name()));
    let rows = names.chain(["all of it".to_owned()]);
    let group = |interrupts: &&Interrupts| {
        let stages = &interrupts.stages;
        let spans = points
            .clone()
            .map(|point| stages.spans.iter().find(|span| span.to == point));
        let rows = spans.chain([Some(&stages.total)]).map(|span| match span {
            None => {
                let dash = if unicode { "–" } else { "-" };
                vec![
                    Span::new(dash, Look::Faint),
                    Span::default(),
                    Span::default(),
                ]
            }
            Some(span) => [span.p50, span.p99, span.max]
                .map(|value| Span::new(time(value, interrupts.clock), Look::Plain))
                .to_vec(),
        });
        Group {
            title: Span::new(name(interrupts), Look::Strong),
            columns: vec![Align::Right; 3],
            rows: rows.collect(),
        }
    };
    Sheet {
        labels: rows
            .map(|row| Label::Row(Span::new(row, Look::Plain)))
            .collect(),
        groups: shown.iter().map(group).collect(),
    }
}
