//! Figures that differ between layouts of a simulated machine's memory.

use crate::document::{Align, Look, Section, Span, ABSENT};
use crate::figures::{self, clock_name};
use crate::report::Report;
use crate::table::Shown;
use trapline_model::Clock;
use trapline_stats::Cell;

/// Returns the figures that differ between layouts of memory, if several were measured.
pub fn sections(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Section> {
    let range_of = |cell: &Cell| {
        let layouts = cell.value.figure()?.layouts?;
        figures::range(layouts.min, layouts.max)
    };
    let measured = cells.iter().filter(|cell| cell.clock == clock);
    let measured = measured.filter_map(|cell| Some((cell, cell.value.figure()?.layouts?)));
    let measured: Vec<_> = measured.collect();
    let Some(count) = measured.iter().map(|(_, layouts)| layouts.count).max() else {
        return Vec::new();
    };
    let same = measured.iter().filter(|(cell, _)| range_of(cell).is_none());
    let title = format!("Layouts of memory, {}", clock_name(clock));
    let explanation = format!(
        "{} of {} figures are the same in {count} layouts; the range of the others",
        same.count(),
        measured.len()
    );
    let mut section = Section::new(&title, explanation);
    if let Some(shown) = Shown::new(cells, clock, |cell| range_of(cell).is_some()) {
        let mut table = shown.table(report, &[Align::Right; 2]);
        for op in &shown.operations {
            let cells = shown.configs.iter().map(|it| shown.cell(it, *op));
            table.row(op.path(), cells.map(layout_spans));
        }
        section.table(table);
    }
    vec![section]
}

/// Returns the range of a figure over layouts, and its width as a share of the figure.
fn layout_spans(cell: Option<&Cell>) -> Vec<Span> {
    let figure = cell.and_then(|cell| cell.value.figure());
    let layouts = figure.and_then(|figure| Some((figure, figure.layouts?)));
    let range = layouts.and_then(|(figure, it)| {
        let width = 100.0 * (it.max - it.min) / figure.estimate;
        Some((figures::range(it.min, it.max)?, format!("{width:.2}%")))
    });
    match range {
        Some((range, width)) => vec![Span::plain(range), Span::new(width, Look::Faint)],
        None => vec![Span::new(ABSENT, Look::Faint)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::style::Style;
    use crate::document::text::render;
    use crate::document::Document;
    use crate::fixture::{figure, measured};
    use expect_test::expect;
    use trapline_abi::Op;
    use trapline_model::EnvironmentId;
    use trapline_stats::layouts::Layouts;
    use trapline_stats::{Summary, Value};

    #[test]
    fn figures_that_differ_between_layouts_have_their_range() {
        let in_layouts = |op: Op, figures: &[f64]| {
            let layouts = Layouts::of(figures);
            let estimate = figures[0];
            let mut cell = measured(EnvironmentId::SIM_KVM, op, figure(estimate));
            if let Value::Measured(figure) = &mut cell.value {
                figure.layouts = layouts;
            }
            cell
        };
        let cells = [
            in_layouts(Op::PortOut, &[3_264.0, 3_264.0, 3_264.0]),
            in_layouts(Op::MmioWrite, &[5_496.0, 5_494.0, 5_497.0]),
            in_layouts(Op::Cpuid, &[1_231.0]),
        ];
        let report = Report {
            summary: Summary {
                cells: cells.to_vec(),
                ..Summary::default()
            },
            ..Report::default()
        };
        let text = |cells: &[Cell]| {
            let document = Document {
                sections: sections(&report, cells, Clock::Insn),
                ..report.document()
            };
            render(&document, &Style::default())
        };
        let shown = text(&cells);
        let shown = shown.split_once("Layouts").map_or("", |(_, shown)| shown);
        expect![[r#"
             of memory, instruction clock
            1 of 2 figures are the same in 3 layouts; the range of the others
                               sim/kvm
                               ──────────────────
             exits/mmio-write  5,494..5,497 0.05%
        "#]]
        .assert_eq(shown);
        assert!(!text(&cells[2..]).contains("Layouts"));
    }
}
