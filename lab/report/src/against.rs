//! Costs against bare, the environments of both exact clocks side by side.
//!
//! Figures of two clocks are never compared. What each environment costs in units of
//! its own bare row is a number without a clock, and such numbers may stand in one
//! table. Two exact clocks are two makers of processors, which is worth a table of its
//! own; ratios on the wall clock stand beside their figures already. Where there is no
//! bare figure to divide by, it is said why.

use crate::sheet::{Align, Group, Label, Look, Sheet, Span};
use crate::table::{labels, marks};
use crate::{figures, printable};
use trapline_abi::{Op, Unit};
use trapline_model::{Clock, EnvironmentId};
use trapline_stats::{Cell, Figure, Value};

/// The ratios of both exact clocks.
pub struct Against<'a> {
    cells: &'a [Cell],
    /// The rows.
    pub operations: Vec<Op>,
    /// The columns: environments that are not bare.
    pub environments: Vec<EnvironmentId>,
    refused: Vec<String>,
}

/// What stands in a place of the table.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Nothing was measured.
    Absent,
    /// So many times the bare row.
    Times(f64),
    /// There is nothing to divide by: the number of the note that says why.
    Refused(usize),
}

impl<'a> Against<'a> {
    /// `None` unless there are ratios of two exact clocks. Rows are the operations that
    /// environments of both have figures of.
    pub fn new(cells: &'a [Cell]) -> Option<Self> {
        let is_compared = |cell: &&Cell| {
            let is_figure = matches!(cell.value, Value::Measured(_));
            is_figure
                && cell.clock.is_exact()
                && !cell.environment.is_bare()
                && cell.op.unit() == Unit::Time
        };
        let compared: Vec<_> = cells.iter().filter(is_compared).collect();
        let clocks_of = |op: Op| {
            let has = |clock: &Clock| compared.iter().any(|c| c.op == op && c.clock == *clock);
            Clock::ALL.into_iter().filter(has).count()
        };
        let operations = Op::ALL.into_iter().filter(|op| clocks_of(*op) > 1);
        let operations: Vec<_> = operations.collect();
        let has_ratio = |id: &EnvironmentId| {
            compared.iter().any(|cell| {
                let ratio = cell.value.figure().and_then(|figure| figure.ratio);
                cell.environment == *id && ratio.is_some() && operations.contains(&cell.op)
            })
        };
        let environments: Vec<_> = EnvironmentId::ALL.into_iter().filter(has_ratio).collect();
        let first = environments.first()?.clock();
        environments
            .iter()
            .any(|id| id.clock() != first)
            .then_some(Self {
                cells,
                operations,
                environments,
                refused: Vec::new(),
            })
    }

    fn figure(&self, environment: EnvironmentId, op: Op) -> Result<&'a Figure, Option<&'a str>> {
        let is_it = |cell: &&Cell| cell.environment == environment && cell.op == op;
        match self.cells.iter().find(is_it).map(|cell| &cell.value) {
            Some(Value::Measured(figure)) => Ok(figure),
            Some(Value::Skip(reason)) => Err(Some(reason)),
            Some(Value::Failed(failure)) => Err(Some(&failure.reason)),
            None => Err(None),
        }
    }

    /// What stands where `environment` and `op` meet.
    pub fn entry(&mut self, environment: EnvironmentId, op: Op) -> Entry {
        let Ok(figure) = self.figure(environment, op) else {
            return Entry::Absent;
        };
        if let Some(ratio) = figure.ratio {
            return Entry::Times(ratio.estimate);
        }
        let bare = environment.clock().bare();
        let why = match self.figure(bare, op) {
            _ if figure.resolution().is_some() => "it is below resolution".to_owned(),
            Ok(base) if base.resolution().is_some() => format!("{bare} is below resolution"),
            Ok(_) => format!("{bare} costs nothing"),
            Err(Some(reason)) => format!("{bare} has no figure: {}", printable(reason)),
            Err(None) => format!("{bare} was not measured"),
        };
        let known = self.refused.iter().position(|known| *known == why);
        let number = known.unwrap_or_else(|| {
            self.refused.push(why);
            self.refused.len() - 1
        });
        Entry::Refused(number + 1)
    }

    /// Why there are no ratios, in the order of their numbers.
    pub fn refused(&self) -> Vec<String> {
        let told = self.refused.iter();
        told.map(|why| format!("no ratio: {why}")).collect()
    }
}

/// The sheet, and the notes on it; `None` if there are no ratios of two exact clocks.
pub fn sheet(cells: &[Cell], unicode: bool) -> Option<(Sheet, Vec<String>)> {
    let mut against = Against::new(cells)?;
    // Notes are numbered as they are read.
    let entries: Vec<Vec<Entry>> = against
        .operations
        .clone()
        .iter()
        .map(|op| {
            let environments = against.environments.clone();
            environments
                .iter()
                .map(|id| against.entry(*id, *op))
                .collect()
        })
        .collect();
    let group = |(column, id): (usize, &EnvironmentId)| Group {
        title: Span::new(id.name(), Look::Strong),
        columns: vec![Align::Right, Align::Left],
        rows: entries
            .iter()
            .map(|row| spans(&row[column], unicode))
            .collect(),
    };
    let groups = against.environments.iter().enumerate().map(group).collect();
    let labels = labels(&against.operations, Clock::Insn);
    let plain = |label| match label {
        Label::Heading(name, _) => Label::Heading(name, Span::default()),
        row => row,
    };
    let labels = labels.into_iter().map(plain).collect();
    Some((Sheet { labels, groups }, against.refused()))
}

fn spans(entry: &Entry, unicode: bool) -> Vec<Span> {
    let absent = if unicode { "–" } else { "-" };
    match entry {
        Entry::Absent => vec![Span::new(absent, Look::Faint), Span::default()],
        Entry::Times(ratio) => vec![
            Span::new(figures::times(*ratio, unicode), Look::Plain),
            Span::default(),
        ],
        Entry::Refused(number) => vec![
            Span::new(absent, Look::Faint),
            Span::new(marks(&[*number], unicode), Look::Faint),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::EnvironmentId::{Sim, SimKvm, SimVmx, SimVmxKvm};
    use trapline_stats::{value, Flag, Ratio};

    fn figure(estimate: f64, ratio: Option<f64>, flags: Vec<Flag>) -> Value {
        let ratio = ratio.map(|estimate| Ratio {
            estimate,
            interval: None,
        });
        Value::Measured(Box::new(Figure {
            estimate,
            interval: None,
            min: estimate,
            max: estimate,
            p50: estimate,
            p90: estimate,
            p99: estimate,
            samples: 24,
            boots: 2,
            ratio,
            exits: None,
            host_cpu_ns: None,
            flags,
        }))
    }

    fn cell(environment: EnvironmentId, op: Op, value: Value) -> Cell {
        let clock = environment.clock();
        let unit = value::unit(op, clock);
        Cell {
            environment,
            op,
            clock,
            unit,
            value,
        }
    }

    /// Of each operation what two bare rows and the rows beside them say.
    fn cells() -> Vec<Cell> {
        let unresolved = || figure(0.5, None, vec![Flag::BelowResolution(1.0)]);
        let nobody = || Value::Skip("there is no hypervisor".to_owned());
        vec![
            cell(Sim, Op::PortOut, figure(3.0, Some(1.0), vec![])),
            cell(SimKvm, Op::PortOut, figure(3000.0, Some(1000.0), vec![])),
            cell(SimVmx, Op::PortOut, figure(3.0, Some(1.0), vec![])),
            cell(SimVmxKvm, Op::PortOut, figure(7500.0, Some(2500.0), vec![])),
            cell(Sim, Op::Hypercall, nobody()),
            cell(SimKvm, Op::Hypercall, figure(3000.0, None, vec![])),
            cell(SimVmx, Op::Hypercall, nobody()),
            cell(SimVmxKvm, Op::Hypercall, figure(1000.0, None, vec![])),
            cell(SimKvm, Op::Getpid, figure(1.0, None, vec![])),
            cell(SimVmx, Op::Getpid, unresolved()),
            cell(SimVmxKvm, Op::Getpid, figure(2.0, None, vec![])),
            cell(SimKvm, Op::SelfIpi, figure(7.0, Some(7.0), vec![])),
        ]
    }

    #[test]
    fn clocks_stand_side_by_side_and_are_never_divided_by_each_other() {
        let cells = cells();
        let mut against = Against::new(&cells).unwrap();
        assert_eq!(against.environments, [SimKvm, SimVmxKvm]);
        assert_eq!(
            against.operations,
            [Op::Getpid, Op::PortOut, Op::Hypercall],
            "what one clock has only is not compared"
        );
        assert_eq!(against.entry(SimKvm, Op::PortOut), Entry::Times(1000.0));
        assert_eq!(against.entry(SimVmxKvm, Op::PortOut), Entry::Times(2500.0));
    }

    #[test]
    fn a_ratio_is_refused_with_its_reason() {
        let cells = cells();
        let (_, notes) = sheet(&cells, true).unwrap();
        let expected = [
            "no ratio: sim was not measured",
            "no ratio: sim-vmx is below resolution",
            "no ratio: sim has no figure: there is no hypervisor",
            "no ratio: sim-vmx has no figure: there is no hypervisor",
        ];
        assert_eq!(notes, expected);
    }

    #[test]
    fn one_clock_has_its_ratios_beside_its_figures() {
        let all = cells();
        let of_one = all.into_iter().filter(|cell| cell.clock == Clock::Insn);
        assert!(Against::new(&of_one.collect::<Vec<_>>()).is_none());
        assert!(sheet(&[], true).is_none());
    }
}
