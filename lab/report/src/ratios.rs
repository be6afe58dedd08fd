//! Ratios to the bare row of both exact clocks in one table.
//!
//! Figures of two clocks are never compared, but a ratio to the bare row of its own clock has no
//! clock. The two exact clocks are machines of two vendors, so their ratios are shown together;
//! ratios on the wall clock stand beside their figures. A missing base figure is explained in a
//! footnote.

use crate::document::{Align, Cell as TableCell, Section, Span, Table};
use crate::figures;
use crate::report::Report;
use crate::table::push_rows;
use std::collections::BTreeSet;
use trapline_abi::Unit;
use trapline_model::{Clock, Config, Operation};
use trapline_stats::{Cell, Figure, Value};

/// Returns the section, if both exact clocks have ratios of the same operations.
pub fn section(report: &Report, cells: &[Cell]) -> Option<Section> {
    let mut ratios = Ratios::new(cells)?;
    let columns = ratios.configs.iter().map(|config| report.name(config));
    let mut table = Table::grouped(columns, &[Align::Right]);
    let (operations, configs) = (ratios.operations.clone(), ratios.configs.clone());
    let no_remark = |_| String::new();
    push_rows(&mut table, &operations, no_remark, |op| {
        let cells = configs.iter().map(|config| ratios.cell(report, config, op));
        cells.collect()
    });
    let explanation = "times the bare row of the same clock; clocks are never mixed";
    let mut section = Section::new("Against bare", explanation);
    section.table(table);
    section.footnotes(
        ratios
            .footnotes
            .iter()
            .map(|why| format!("no ratio: {why}")),
    );
    Some(section)
}

struct Ratios<'a> {
    cells: &'a [Cell],
    /// The rows.
    operations: Vec<Operation>,
    /// The columns: configurations of environments that are not bare.
    configs: Vec<&'a Config>,
    footnotes: Vec<String>,
}

impl<'a> Ratios<'a> {
    /// Returns `None` unless both exact clocks have ratios. Rows are the operations with figures of
    /// both.
    fn new(cells: &'a [Cell]) -> Option<Self> {
        let is_compared = |cell: &&Cell| {
            let is_figure = matches!(cell.value, Value::Measured(_));
            is_figure
                && cell.clock.is_exact()
                && !cell.config.environment.is_bare()
                && cell.op.guest().is_some_and(|op| op.unit() == Unit::Time)
        };
        let compared: Vec<_> = cells.iter().filter(is_compared).collect();
        let clocks_of = |op: Operation| {
            let has = |clock: &Clock| compared.iter().any(|c| c.op == op && c.clock == *clock);
            Clock::ALL.into_iter().filter(has).count()
        };
        let operations = compared
            .iter()
            .map(|cell| cell.op)
            .filter(|op| clocks_of(*op) > 1);
        let operations = Operation::in_display_order(operations);
        let has_ratio = |cell: &&&Cell| {
            let ratio = cell.value.figure().and_then(|figure| figure.ratio);
            ratio.is_some() && operations.contains(&cell.op)
        };
        let with_ratio = compared.iter().filter(has_ratio);
        let configs: BTreeSet<&Config> = with_ratio.map(|cell| &cell.config).collect();
        let clocks: BTreeSet<Clock> = configs.iter().map(|config| config.clock()).collect();
        (clocks.len() > 1).then(|| Self {
            cells,
            operations,
            configs: configs.into_iter().collect(),
            footnotes: Vec::new(),
        })
    }

    fn figure(&self, config: &Config, op: Operation) -> Result<&'a Figure, Option<&'a str>> {
        let is_it = |cell: &&Cell| cell.config == *config && cell.op == op;
        match self.cells.iter().find(is_it).map(|cell| &cell.value) {
            Some(Value::Measured(figure)) => Ok(figure),
            Some(Value::Skip(reason)) => Err(Some(reason)),
            Some(Value::Failed(failure)) => Err(Some(&failure.reason)),
            None => Err(None),
        }
    }

    /// Returns the ratio, or a footnote with the reason that there is none.
    fn cell(&mut self, report: &Report, config: &Config, op: Operation) -> TableCell {
        let Ok(figure) = self.figure(config, op) else {
            return Span::absent().into();
        };
        if let Some(ratio) = figure.ratio {
            return Span::plain(figures::times(ratio.estimate)).into();
        }
        let bare_row = config.bare();
        let bare = report.name(&bare_row);
        let why = match self.figure(&bare_row, op) {
            _ if figure.resolution().is_some() => "it is below resolution".to_owned(),
            Ok(base) if base.resolution().is_some() => format!("{bare} is below resolution"),
            Ok(_) => format!("{bare} costs nothing"),
            Err(Some(reason)) => format!("{bare} has no figure: {reason}"),
            Err(None) => format!("{bare} was not measured"),
        };
        let known = self.footnotes.iter().position(|known| *known == why);
        let index = known.unwrap_or_else(|| {
            self.footnotes.push(why);
            self.footnotes.len() - 1
        });
        TableCell {
            notes: vec![index + 1],
            ..Span::absent().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::style::Style;
    use crate::document::text::render;
    use crate::document::Document;
    use crate::fixture::{cell, figure, figure_with_ratio, measured};
    use trapline_abi::Op;
    use trapline_model::EnvironmentId;
    use trapline_stats::Flag;

    /// Figures of two bare rows and of the environments beside them.
    fn cells() -> Vec<Cell> {
        use EnvironmentId as Id;
        let skip = |id| {
            let reason = Value::Skip("there is no hypervisor".to_owned());
            cell(id, Op::Hypercall, reason)
        };
        let mut unresolved = figure(0.5);
        unresolved.flags.push(Flag::BelowResolution(1.0));
        vec![
            measured(Id::SIM, Op::PortOut, figure_with_ratio(3.0, 1.0)),
            measured(Id::SIM_KVM, Op::PortOut, figure_with_ratio(3000.0, 1000.0)),
            measured(Id::SIM_VMX, Op::PortOut, figure_with_ratio(3.0, 1.0)),
            measured(
                Id::SIM_VMX_KVM,
                Op::PortOut,
                figure_with_ratio(7500.0, 2500.0),
            ),
            skip(Id::SIM),
            measured(Id::SIM_KVM, Op::Hypercall, figure(3000.0)),
            skip(Id::SIM_VMX),
            measured(Id::SIM_VMX_KVM, Op::Hypercall, figure(1000.0)),
            measured(Id::SIM_KVM, Op::Getpid, figure(1.0)),
            measured(Id::SIM_VMX, Op::Getpid, unresolved),
            measured(Id::SIM_VMX_KVM, Op::Getpid, figure(2.0)),
            measured(Id::SIM_KVM, Op::SelfIpi, figure_with_ratio(7.0, 7.0)),
        ]
    }

    #[test]
    fn ratios_of_both_exact_clocks_share_a_table() {
        let text = rendered(&cells());
        let expected = "\
Against bare: times the bare row of the same clock; clocks are never mixed
            sim/kvm   sim-vmx/kvm
            ────────  ───────────
basic
 getpid          – ¹       – ²
exits
 port-out   1,000×    2,500×
 hypercall       – ³       – ⁴
 ¹ no ratio: sim was not measured
 ² no ratio: sim-vmx is below resolution
 ³ no ratio: sim has no figure: there is no hypervisor
 ⁴ no ratio: sim-vmx has no figure: there is no hypervisor
";
        assert_eq!(text, expected);
    }

    fn rendered(cells: &[Cell]) -> String {
        let document = Document {
            sections: section(&Report::default(), cells).into_iter().collect(),
            ..Document::default()
        };
        render(&document, &Style::default())
    }

    #[test]
    fn one_exact_clock_has_no_table_of_ratios() {
        let all = cells().into_iter();
        let of_one: Vec<_> = all.filter(|cell| cell.clock == Clock::Insn).collect();
        assert_eq!(section(&Report::default(), &of_one), None);
        assert_eq!(section(&Report::default(), &[]), None);
    }
}
