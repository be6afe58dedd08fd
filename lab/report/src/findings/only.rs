//! The sentence of a run without comparable figures: its most significant figure.

use super::{figure, people, subject, trusted, verb, Finding, Kind, BOOTS, EXITS};
use crate::figures;
use crate::report::Report;
use crate::table::Shown;
use trapline_abi::{Op, Unit};
use trapline_model::{Clock, Config, Operation};
use trapline_stats::{value, Cell, Figure};

/// Returns the most significant figure as a finding, or that there is none.
pub fn finding(report: &Report, cells: &[Cell]) -> Finding {
    let all = || {
        Clock::ALL
            .into_iter()
            .flat_map(|clock| candidates(cells, clock))
    };
    let certain = all().find_map(|(row, op)| Some((row, op, trusted(cells, row, op)?)));
    let any = || all().find_map(|(row, op)| Some((row, op, figure(cells, row, op)?)));
    let below = || all().find_map(|(row, op)| below_resolution(report, cells, row, op));
    match certain.or_else(any) {
        Some((row, op, figure)) => of_figure(report, row, op, figure),
        None => below().or_else(|| long(report, cells)).unwrap_or_else(|| {
            unsure(
                Clock::Wall,
                "Nothing was measured.",
                "the reasons are below.",
            )
        }),
    }
}

/// Returns a figure of what no guest repeats.
fn long(report: &Report, cells: &[Cell]) -> Option<Finding> {
    let figures = cells.iter().filter(|cell| cell.op.guest().is_none());
    let mut figures = figures.filter_map(|cell| Some((cell, cell.value.figure()?)));
    let (cell, figure) = figures.next()?;
    let (clock, path) = (cell.clock, cell.op.path());
    let number = figures::estimate(figure, cell.op, clock);
    let (verb, unit) = match cell.op.unit() {
        Unit::Time if clock.is_exact() => ("takes", " instructions"),
        Unit::Time => ("takes", ""),
        Unit::Rate => ("reaches", " Mpps"),
    };
    let row = report.name(&cell.config);
    Some(Finding {
        kind: Kind::Differs,
        clock,
        weight: 0.0,
        title: format!("{path} {verb} {number}{unit} in {row}."),
        text: format!("{}.", confidence(figure, cell.op, clock)),
        number,
    })
}

fn unsure(clock: Clock, title: &str, text: &str) -> Finding {
    Finding {
        kind: Kind::Unsure,
        clock,
        weight: 0.0,
        number: String::new(),
        title: title.to_owned(),
        text: text.to_owned(),
    }
}

/// Returns the upper bound of a figure that is below the resolution.
fn below_resolution(report: &Report, cells: &[Cell], row: &Config, op: Op) -> Option<Finding> {
    let is_it = |cell: &&Cell| cell.config == *row && cell.op == op;
    let limit = cells.iter().find(is_it)?.value.figure()?.resolution()?;
    let (clock, subject) = (row.clock(), subject(op));
    let (verb, limit) = (verb(op), figures::value(limit, op, clock));
    let unit = if clock.is_exact() {
        " instructions"
    } else {
        ""
    };
    let title = format!(
        "{subject} {verb} less than {limit}{unit} in {}.",
        people(report, row)
    );
    let text = "not more than the loop or the clock around it.";
    Some(unsure(clock, &capitalized(&title), text))
}

/// Returns rows and operations of a clock, the most significant first: hypervisors before others, exits before starts,
/// and these before other operations.
fn candidates(cells: &[Cell], clock: Clock) -> impl Iterator<Item = (&Config, Op)> {
    let shown = Shown::measured(cells, clock);
    let mut rows = shown.map_or_else(Vec::new, |shown| shown.configs);
    rows.sort_by_key(|row| {
        (
            super::hypervisor(row.environment).is_none(),
            row.environment.is_bare(),
        )
    });
    let operations = EXITS.into_iter().chain(BOOTS).chain(Op::ALL);
    operations.flat_map(move |op| rows.clone().into_iter().map(move |row| (row, op)))
}

fn of_figure(report: &Report, row: &Config, op: Op, figure: &Figure) -> Finding {
    let clock = row.clock();
    let is_exit = EXITS.contains(&op) && super::hypervisor(row.environment).is_some();
    let what = if is_exit {
        "an exit".to_owned()
    } else {
        subject(op)
    };
    let (unit, row_name) = (value::unit(op, clock), people(report, row));
    let number = figures::estimate(figure, op, clock);
    let (verb, number) = match (op.unit(), clock) {
        (Unit::Rate, _) => ("reaches", format!("{number} {unit}")),
        (Unit::Time, Clock::Wall) => (verb(op), number),
        (Unit::Time, _) => (verb(op), format!("{number} instructions")),
    };
    let operation = is_exit.then(|| subject(op));
    let ratio = figure
        .ratio
        .filter(|_| figure.flags.is_empty() && !row.environment.is_bare());
    let ratio = ratio.map(|ratio| {
        let factor = figures::quantity(ratio.estimate);
        format!("{factor} times as much as in {}", report.name(&row.bare()))
    });
    let parts = [operation, ratio, Some(confidence(figure, op, clock))];
    let text: Vec<String> = parts.into_iter().flatten().collect();
    Finding {
        kind: Kind::Differs,
        clock,
        weight: 0.0,
        title: capitalized(&format!("{what} {verb} {number} in {row_name}.")),
        number,
        text: format!("{}.", text.join(", ")),
    }
}

/// Returns the confidence in one figure.
fn confidence(figure: &Figure, op: impl Into<Operation>, clock: Clock) -> String {
    match (figure.boots, figure.interval) {
        (0 | 1, _) => "by a single boot".to_owned(),
        (boots, _) if clock.is_exact() && figure.flags.is_empty() => {
            format!("the same in {boots} boots")
        }
        (_, Some(interval)) if !clock.is_exact() => format!(
            "{} interval {}",
            figures::level(interval.level),
            figures::interval(interval.low, interval.high, op, clock)
        ),
        (boots, _) => format!("by {boots} boots"),
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase());
    first.into_iter().flatten().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{cell, figure, figure_between, figure_with_ratio, measured};
    use trapline_model::EnvironmentId;
    use trapline_stats::{Flag, Value};

    fn sentence(cells: &[Cell]) -> String {
        let found = finding(&Report::default(), cells);
        format!("{} {}", found.title, found.text)
    }

    #[test]
    fn an_exit_of_a_single_hypervisor_is_a_sentence() {
        let cells = [
            measured(EnvironmentId::SIM, Op::PortOut, figure(3.0)),
            measured(EnvironmentId::SIM_KVM, Op::Getpid, figure(12.0)),
            measured(
                EnvironmentId::SIM_KVM,
                Op::PortOut,
                figure_with_ratio(3_264.0, 1_088.0),
            ),
        ];
        let expected = "An exit costs 3,264 instructions in trapline-vmm. a port write, 1,088 times as much as in sim, \
                        the same in 2 boots.";
        assert_eq!(sentence(&cells), expected);
    }

    #[test]
    fn every_figure_makes_a_sentence() {
        let of = |row, op, figure| sentence(&[measured(row, op, figure)]);
        let wall = figure_between(22_100.0, 23_300.0, 24_000.0);
        assert_eq!(
            of(EnvironmentId::KVM, Op::MmioWrite, wall.clone()),
            "An exit costs 23.3 µs in trapline-vmm. a write to a device register, 93.75% interval 22.1..24.0 µs."
        );
        assert_eq!(
            of(EnvironmentId::SIM, Op::PortOut, figure(3.0)),
            "A port write costs 3 instructions in sim. the same in 2 boots."
        );
        for op in Op::ALL {
            let sentence = of(EnvironmentId::HOST, op, wall.clone());
            assert!(sentence.contains(" in host. "), "{sentence}");
        }
    }

    #[test]
    fn figures_below_the_resolution_are_bounds() {
        let below = |limit| Figure {
            flags: vec![Flag::BelowResolution(limit)],
            ..figure(0.1)
        };
        let fast = measured(EnvironmentId::HOST, Op::Getpid, below(0.24));
        let expected = "A request for the process number costs less than 0.240 ns in host. not more than the loop or the \
                        clock around it.";
        assert_eq!(sentence(std::slice::from_ref(&fast)), expected);
        let exact = measured(EnvironmentId::SIM, Op::PortOut, below(2.0));
        assert!(
            sentence(&[exact]).starts_with("A port write costs less than 2 instructions in sim. ")
        );
        let slow = measured(EnvironmentId::HOST, Op::Fork, figure(80_000.0));
        assert!(!sentence(&[fast, slow]).contains("less than"));
    }

    #[test]
    fn a_run_without_figures_has_a_sentence() {
        let skip = Value::Skip("no /dev/kvm".to_owned());
        let skip = cell(EnvironmentId::KVM, Op::PortOut, skip);
        let expected = "Nothing was measured. the reasons are below.";
        assert_eq!(sentence(&[skip]), expected);
        assert_eq!(sentence(&[]), expected);
    }
}
