//! Standard deviations of boots and of batches, and the operations for which other numbers of batches would give narrower intervals
//! in the same time.

use crate::document::{Look, Section, Span, Table};
use crate::figures::{self, clock_name};
use crate::report::Report;
use trapline_model::Clock;
use trapline_stats::components::Components;
use trapline_stats::Cell;

/// Factor between the advised number of batches and that of the run from which on it is shown.
const WORTHWHILE: f64 = 4.0;

/// Most operations that are shown.
const MOST: usize = 8;

/// Returns the operations of the wall clock whose number of batches is far from the best, if there are any.
pub fn sections(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Section> {
    let of_clock = cells.iter().filter(|cell| cell.clock == clock);
    let advised = of_clock.filter_map(|cell| {
        let components = cell.value.figure()?.components?;
        let factor = components.advised? as f64 / components.batches.max(1) as f64;
        let distance = factor.ln().abs();
        (distance >= WORTHWHILE.ln()).then_some((cell, components, distance))
    });
    let mut advised: Vec<(&Cell, Components, f64)> = advised.collect();
    advised.sort_by(|a, b| b.2.total_cmp(&a.2));
    advised.truncate(MOST);
    if advised.is_empty() {
        return Vec::new();
    }
    let title = format!("Boots and batches, {}", clock_name(clock));
    let explanation = "standard deviations; the batches of a boot that give the narrowest interval in the same time";
    let mut section = Section::new(&title, explanation);
    let mut table = Table::new("", ["between boots", "batches", "has", "better"]);
    for (cell, components, _) in advised {
        let share = |value: f64| Span::plain(figures::percent(value));
        let count = |value: Option<usize>, look| {
            let value = value.unwrap_or_default() as u64;
            Span::new(figures::count(value), look)
        };
        let cells = [
            share(components.between),
            share(components.within),
            count(Some(components.batches), Look::Plain),
            count(components.advised, Look::Strong),
        ];
        table.row(
            format!("{} {}", cell.op.path(), report.name(&cell.config)),
            cells,
        );
    }
    section.table(table);
    vec![section]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{figure_between, measured};
    use trapline_abi::Op;
    use trapline_model::EnvironmentId;
    use trapline_stats::Figure;

    #[test]
    fn only_numbers_far_from_the_best_are_shown() {
        let cell = |op, advised| {
            let components = Components {
                between: 0.02,
                within: 0.3,
                batches: 30,
                advised,
            };
            let figure = Figure {
                components: Some(components),
                ..figure_between(9.0, 10.0, 11.0)
            };
            measured(EnvironmentId::KVM, op, figure)
        };
        let cells = [
            cell(Op::PortOut, Some(300)),
            cell(Op::Cpuid, Some(60)),
            cell(Op::PortIn, None),
        ];
        let report = Report::default();
        let [section] = sections(&report, &cells, Clock::Wall).try_into().unwrap();
        let document = crate::Document {
            sections: vec![section],
            ..crate::Document::default()
        };
        let text = crate::document::text::render(&document, &crate::Style::default());
        let row = text.lines().find(|line| line.contains("port-out")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["exits/port-out", "kvm", "2%", "30%", "30", "300"]);
        assert!(
            !text.contains("cpuid") && !text.contains("port-in"),
            "{text}"
        );
        assert!(sections(&report, &cells[1..], Clock::Wall).is_empty());
    }
}
