//! The comparison for people at a terminal.

use super::{verdict, Direction, Versus};
use crate::figures;
use crate::grid::Grid;
use crate::sheet::{width, Look, Span};
use crate::terminal::Page;
use crate::{printable, Style};
use trapline_abi::Workload;
use trapline_model::{names, Clock};
use trapline_stats::contest::Match;
use trapline_stats::judge::{Comparison, Verdict};
use trapline_stats::Cell;

/// The comparison as text, no line wider than the style allows.
pub fn terminal(versus: &Versus, style: &Style) -> String {
    let mut page = Page {
        style: *style,
        text: String::new(),
    };
    page.measured_by(&versus.version, &versus.facts, versus.seed());
    page.paragraph(" A  ", &printable(&versus.a), Look::Strong);
    page.paragraph(" B  ", &printable(&versus.b), Look::Strong);
    for clock in Clock::ALL {
        let of_clock: Vec<&Match> = versus
            .matches
            .iter()
            .filter(|one| one.clock() == clock && one.outcome.is_ok())
            .collect();
        if !of_clock.is_empty() {
            page.heading(&explanation(clock, versus, style));
            page.text.push_str(&grid(&of_clock, style).render(style));
        }
    }
    page.text.push('\n');
    page.paragraph("", &versus.headline(), Look::Strong);
    for remark in &versus.remarks {
        page.paragraph("", &printable(remark), Look::Plain);
    }
    let undecided = versus.undecided();
    if !undecided.is_empty() {
        page.text.push('\n');
        page.line(&Span::new("Not compared", Look::Strong));
    }
    for (reason, operations) in undecided {
        let set = operations.iter().fold(0, |set, op| set | op.bit());
        let before = format!(" {}: ", names::describe(set));
        page.paragraph(&before, &reason, Look::Plain);
    }
    page.text
}

fn explanation(clock: Clock, versus: &Versus, style: &Style) -> (&'static str, String) {
    let margin = figures::percent(versus.settings.margin);
    let about = if style.unicode { "±" } else { "+-" };
    match clock {
        Clock::Wall => (
            "Wall clock",
            format!(
                "A, B: median over boots; B/A: paired within blocks, with the interval that \
                 the verdict rests on; equivalent: within {about}{margin}"
            ),
        ),
        Clock::Insn | Clock::InsnVmx => (
            match clock {
                Clock::InsnVmx => "Intel instruction clock",
                _ => "Instruction clock",
            },
            format!("mean over batches; B/A is exact; equivalent: within {about}{margin}"),
        ),
    }
}

fn grid(matches: &[&Match], style: &Style) -> Grid {
    let mut workload: Option<Workload> = None;
    let verdicts = matches
        .iter()
        .filter_map(|one| Some(width(&verdict(one.op, one.outcome.as_ref().ok()?))));
    let verdict_width = verdicts.max().unwrap_or(0);
    let verdict_head = format!("{:verdict_width$}", "verdict");
    let columns = ["A", "B", "B/A", "interval", &verdict_head];
    let mut grid = Grid::new("", columns).giving_way(&[3]);
    for one in matches {
        let Ok(told) = &one.outcome else { continue };
        if workload != Some(one.op.workload()) {
            workload = Some(one.op.workload());
            grid.row(one.op.workload().name(), vec![Span::default(); 5]);
        }
        grid.row(
            format!(" {}", one.op.name()),
            cells(one, told, verdict_width, style),
        );
    }
    grid
}

/// Words are read from their beginning: those of the last column are padded to its width.
fn cells(one: &Match, told: &Comparison, verdict_width: usize, style: &Style) -> Vec<Span> {
    let look = match (told.verdict, Direction::of(one.op, told.effect)) {
        (Verdict::Changed, Direction::Better) => Look::Good,
        (Verdict::Changed, Direction::Worse) => Look::Bad,
        (Verdict::Equivalent, _) => Look::Plain,
        (Verdict::Unsure, _) => Look::Middling,
    };
    let interval = told.decisive.map_or_else(String::new, |interval| {
        format!("{}..{}", factor(interval.low), factor(interval.high))
    });
    vec![
        Span::new(estimate(&one.a, style), Look::Plain),
        Span::new(estimate(&one.b, style), Look::Plain),
        Span::new(factor(told.effect), look),
        Span::new(interval, Look::Faint),
        Span::new(format!("{:verdict_width$}", verdict(one.op, told)), look),
    ]
}

fn estimate(cell: &Cell, style: &Style) -> String {
    let figure = cell.value.figure();
    figure.map_or_else(String::new, |figure| {
        figures::value(figure.estimate, cell.op, cell.clock, style.unicode)
    })
}

/// A ratio near one, whose digits behind the point matter.
pub(super) fn factor(ratio: f64) -> String {
    match ratio {
        r if (0.1..10.0).contains(&r) => format!("{r:.3}"),
        r => figures::quantity(r),
    }
}
