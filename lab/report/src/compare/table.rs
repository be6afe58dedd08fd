//! The sections of a comparison.

use super::{verdict, CompareReport, Direction};
use crate::document::{Align, Look, Marker, Note, Section, Span, Table};
use crate::figures::{self, clock_title};
use std::collections::BTreeSet;
use trapline_model::{Clock, Operation};
use trapline_stats::compare::Row;
use trapline_stats::verdict::{Assessment, Design, Verdict};
use trapline_stats::Cell;

/// Returns the head and the sections of a comparison.
pub fn parts(compare: &CompareReport) -> (Vec<Note>, Vec<Section>) {
    let mut head = vec![Note::origin(
        &compare.version,
        &compare.facts,
        compare.seed(),
    )];
    for (name, side) in [("A", &compare.a), ("B", &compare.b)] {
        head.push(Note::new(Marker::Subject(name.into()), side, Look::Strong));
    }
    let mut sections: Vec<Section> = Clock::ALL
        .into_iter()
        .filter_map(|clock| of_clock(compare, clock))
        .collect();
    let mut summary = Section::default();
    summary.note(Marker::Paragraph, &compare.headline(), Look::Strong);
    for remark in &compare.remarks {
        summary.note(Marker::Paragraph, remark, Look::Plain);
    }
    sections.push(summary);
    let mut undecided = Section::new("Not compared", "");
    for (reason, operations) in compare.undecided() {
        let names = Operation::describe(operations);
        undecided.note(Marker::Subject(names), &reason, Look::Plain);
    }
    if !undecided.blocks.is_empty() {
        sections.push(undecided);
    }
    (head, sections)
}

fn of_clock(compare: &CompareReport, clock: Clock) -> Option<Section> {
    let all = compare.matches.iter().filter(|one| one.clock() == clock);
    let compared = all.filter_map(|one| Some((one, one.outcome.as_ref().ok()?)));
    let compared: Vec<(&Row, &Assessment)> = compared.collect();
    if compared.is_empty() {
        return None;
    }
    let method = if clock.is_exact() {
        "mean over batches; B/A is exact"
    } else {
        match compare.design {
            Design::Blocked => {
                "A, B: median over boots; B/A: paired within blocks, with the interval that the \
                 verdict rests on"
            }
            Design::Hosts { .. } => {
                "A, B: median over boots of all hosts; B/A: of the figures of the hosts, with the interval that \
                 the verdict rests on"
            }
            Design::Boots => {
                "A, B: median over boots; B/A: of boots of separate runs, whose conditions may \
                 differ, with the interval for these runs"
            }
            Design::Runs => {
                "A, B: median over boots; B/A: of the figures of the runs, with the interval that \
                 the verdict rests on"
            }
        }
    };
    let margin = figures::percent(compare.settings.margin);
    let explanation = format!("{method}; equivalent: within ±{margin}");
    let mut section = Section::new(clock_title(clock), explanation);
    let has_noise = compared.iter().any(|(one, _)| one.noise.is_some());
    let noise = has_noise.then_some("noise");
    let columns = ["A", "B", "B/A", "interval"].into_iter();
    let columns = columns.chain(noise).chain(["verdict"]);
    let mut table = Table::new("", columns).with_optional(&[3]);
    if let Some(verdict) = table.columns.last_mut() {
        verdict.parts = vec![Align::Left];
    }
    let pairs: BTreeSet<_> = compared
        .iter()
        .map(|(one, _)| (&one.a.config, &one.b.config))
        .collect();
    let mut heading = String::new();
    for (one, comparison) in &compared {
        let next = match pairs.len() {
            1 => one.op.workload_name().to_owned(),
            _ => format!("{} in {}", one.op.workload_name(), super::pair_name(one)),
        };
        if heading != next {
            table.heading(&next, "");
            heading = next;
        }
        table.row(one.op.name(), cells(one, comparison, has_noise));
    }
    section.table(table);
    Some(section)
}

fn cells(one: &Row, comparison: &Assessment, has_noise: bool) -> Vec<crate::document::Cell> {
    let look = match (comparison.verdict, Direction::of(one.op, comparison.effect)) {
        (Verdict::Changed, Direction::Better) => Look::Good,
        (Verdict::Changed, Direction::Worse) => Look::Bad,
        (Verdict::Equivalent | Verdict::RunsAgree, _) => Look::Plain,
        (Verdict::Unsure | Verdict::RunsDiffer, _) => Look::Middling,
    };
    let interval = comparison.decisive.map_or_else(String::new, |interval| {
        format!("{}..{}", factor(interval.low), factor(interval.high))
    });
    let noise = one.noise.map_or_else(String::new, |noise| {
        format!("±{}", figures::percent(noise.deviation))
    });
    let noise = has_noise.then(|| Span::new(noise, Look::Faint));
    let figures = [
        Span::plain(estimate(&one.a)),
        Span::plain(estimate(&one.b)),
        Span::new(factor(comparison.effect), look),
        Span::new(interval, Look::Faint),
    ];
    let verdict = Span::new(verdict(one.op, comparison), look);
    let spans = figures.into_iter().chain(noise).chain([verdict]);
    spans.map(Into::into).collect()
}

fn estimate(cell: &Cell) -> String {
    let figure = cell.value.figure();
    figure.map_or_else(String::new, |figure| {
        figures::value(figure.estimate, cell.op, cell.clock)
    })
}

/// A ratio near one, whose digits behind the point matter.
pub(super) fn factor(ratio: f64) -> String {
    match ratio {
        r if (0.1..10.0).contains(&r) => format!("{r:.3}"),
        r => figures::quantity(r),
    }
}
