//! How each environment boots: stages down, environments across.

use crate::figures;
use crate::sheet::{Align, Group, Label, Look, Sheet, Span};
use trapline_abi::Stage;
use trapline_model::Clock;
use trapline_stats::BootTimeline;

/// The sheet of the timelines on `clock`; `None` if there is none.
pub fn sheet(timelines: &[BootTimeline], clock: Clock, unicode: bool) -> Option<Sheet> {
    let of_clock = timelines.iter().filter(|timeline| timeline.clock == clock);
    let shown: Vec<&BootTimeline> = of_clock.collect();
    if shown.is_empty() {
        return None;
    }
    let is_stamped = |stage: &Stage| {
        let mut all = shown.iter().flat_map(|timeline| &timeline.stages);
        all.any(|at| at.stage == *stage)
    };
    let stages: Vec<Stage> = Stage::ALL.into_iter().filter(is_stamped).collect();
    let rows = stages.iter().map(|stage| stage.name());
    let memory = shown.iter().any(|timeline| timeline.own_memory.is_some());
    let last = ["unexplained", "VMM memory"];
    let rows = rows.chain(last.into_iter().take(if memory { 2 } else { 1 }));
    Some(Sheet {
        labels: rows
            .map(|row| Label::Row(Span::new(row, Look::Plain)))
            .collect(),
        groups: shown
            .iter()
            .map(|timeline| group(timeline, &stages, memory, unicode))
            .collect(),
    })
}

fn group(timeline: &BootTimeline, stages: &[Stage], memory: bool, unicode: bool) -> Group {
    let mut rows = Vec::new();
    let mut before = 0.0;
    for stage in stages {
        let found = timeline.stages.iter().find(|at| at.stage == *stage);
        rows.push(match found {
            Some(at) => reached(at.reached, at.reached - before, timeline.clock, unicode),
            None => absent(unicode),
        });
        before = found.map_or(before, |at| at.reached);
    }
    rows.push(unexplained(timeline, unicode));
    if memory {
        rows.push(match timeline.own_memory {
            Some(bytes) => vec![
                Span::new(figures::bytes(bytes), Look::Strong),
                Span::default(),
            ],
            None => absent(unicode),
        });
    }
    Group {
        title: Span::new(timeline.environment.name(), Look::Strong),
        columns: vec![Align::Right, Align::Right],
        rows,
    }
}

fn reached(at: f64, step: f64, clock: Clock, unicode: bool) -> Vec<Span> {
    let sign = if step < 0.0 { "" } else { "+" };
    let step = figures::time(step, clock, unicode);
    vec![
        Span::new(figures::time(at, clock, unicode), Look::Strong),
        Span::new(format!("{sign}{step}"), Look::Faint),
    ]
}

fn unexplained(timeline: &BootTimeline, unicode: bool) -> Vec<Span> {
    let time = figures::time(timeline.unexplained, timeline.clock, unicode);
    let share = timeline.unexplained / timeline.total.max(1.0);
    let look = if share > 0.5 {
        Look::Middling
    } else {
        Look::Plain
    };
    vec![
        Span::new(time, look),
        Span::new(figures::percent(share), Look::Faint),
    ]
}

fn absent(unicode: bool) -> Vec<Span> {
    let dash = if unicode { "–" } else { "-" };
    vec![Span::new(dash, Look::Faint), Span::default()]
}
