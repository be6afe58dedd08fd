//! Boot timelines: stages by configuration.

use crate::document::{Align, Bar, Bars, Look, Part, Section, Span, Table};
use crate::figures::{self, clock_name};
use crate::report::Report;
use trapline_abi::{Stage, Workload};
use trapline_model::Clock;
use trapline_stats::{BootTimeline, Cell};

/// Returns the timelines of one clock, if operations of booting were asked for.
pub fn sections(report: &Report, _: &[Cell], clock: Clock) -> Vec<Section> {
    let all = report.summary.timelines.iter();
    let shown: Vec<&BootTimeline> = all.filter(|timeline| timeline.clock == clock).collect();
    if shown.is_empty() || !report.operations.intersects(Workload::Boot.set()) {
        return Vec::new();
    }
    vec![section(report, &shown, clock)]
}

/// Returns the section of the timelines of one clock.
pub fn section(report: &Report, shown: &[&BootTimeline], clock: Clock) -> Section {
    let explanation = if clock.is_exact() {
        "since exec, and since the stage before; means over launches"
    } else {
        "since exec, and since the stage before; medians over launches of each launch's own"
    };
    let mut section = Section::new(&format!("Boot, {}", clock_name(clock)), explanation);
    section.table(table(report, shown));
    section.warnings(disordered(report, shown));
    section
}

/// Returns a warning for each timeline whose stages are out of order.
fn disordered(report: &Report, shown: &[&BootTimeline]) -> Vec<String> {
    let disordered = shown.iter().filter(|timeline| timeline.disordered > 0);
    let warning = |timeline: &&BootTimeline| {
        format!(
            "{}: in {} of {} launches a stage seems to precede the one before it: guest's and \
             host's clock could not be reconciled",
            report.name(&timeline.config),
            timeline.disordered,
            timeline.launches
        )
    };
    disordered.map(warning).collect()
}

/// Returns the stages as bars.
pub fn bars(report: &Report, shown: &[&BootTimeline]) -> Bars {
    let stages = Stage::ALL.into_iter().skip(1);
    Bars {
        legend: stages.map(|stage| stage.name().to_owned()).collect(),
        bars: shown.iter().map(|timeline| bar(report, timeline)).collect(),
    }
}

fn bar(report: &Report, timeline: &BootTimeline) -> Bar {
    let mut parts = Vec::new();
    let mut before = Stage::Exec;
    for at in &timeline.stages {
        parts.push(Part {
            kind: (at.stage as usize).saturating_sub(1),
            length: at.step,
            text: figures::time(at.step, timeline.clock),
            is_gap: at.stage as u8 != before as u8 + 1,
        });
        before = at.stage;
    }
    Bar {
        label: report.name(&timeline.config),
        total: figures::time_with_unit(timeline.total, timeline.clock),
        parts,
        length: timeline.total,
    }
}

/// Returns the table of stages by configuration.
fn table(report: &Report, shown: &[&BootTimeline]) -> Table {
    let names = shown.iter().map(|timeline| report.name(&timeline.config));
    let mut table = Table::grouped(names, &[Align::Right; 2]);
    let is_stamped = |stage: &Stage| {
        let mut all = shown.iter().flat_map(|timeline| &timeline.stages);
        all.any(|at| at.stage == *stage)
    };
    for stage in Stage::ALL.into_iter().filter(is_stamped) {
        let cells = shown.iter().map(|timeline| reached(timeline, stage));
        table.row(stage.name(), cells);
    }
    table.row("unexplained", shown.iter().map(|it| unexplained(it)));
    if shown.iter().any(|timeline| timeline.own_memory.is_some()) {
        let memory = shown.iter().map(|timeline| {
            let bytes = timeline.own_memory.map(figures::bytes);
            bytes.map_or_else(Span::absent, |bytes| Span::new(bytes, Look::Strong))
        });
        table.row("VMM memory", memory);
    }
    table
}

/// Returns the time of a stage since exec and since the stamped stage before it.
fn reached(timeline: &BootTimeline, stage: Stage) -> Vec<Span> {
    let Some(at) = timeline.stages.iter().find(|at| at.stage == stage) else {
        return vec![Span::absent()];
    };
    let sign = if at.step < 0.0 { "" } else { "+" };
    let time = |value| figures::time(value, timeline.clock);
    let side = at.step_interval.map_or_else(String::new, |interval| {
        format!(" ±{}", figures::percent(interval.larger_side(at.step)))
    });
    vec![
        Span::new(time(at.reached), Look::Strong),
        Span::new(format!("{sign}{}{side}", time(at.step)), Look::Faint),
    ]
}

fn unexplained(timeline: &BootTimeline) -> Vec<Span> {
    let time = figures::time(timeline.unexplained, timeline.clock);
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
