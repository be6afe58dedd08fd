//! CPU time that guests left to a competitor for their CPUs (`--competitor`).

use crate::document::{Look, Marker, Section};
use crate::report::Report;
use trapline_model::{Clock, EnvironmentId, COMPETITOR};
use trapline_stats::Cell;

/// Returns the CPU time of competitors by environment, if there were any.
pub fn sections(report: &Report, _: &[Cell], clock: Clock) -> Vec<Section> {
    let mut section = Section::new("CPU time of the competitor", "beside the first boot");
    for environment in EnvironmentId::all().filter(|id| id.clock() == clock) {
        let facts = report.summary.facts.get(&environment);
        if let Some(time) = facts.and_then(|facts| facts.get(COMPETITOR)) {
            section.note(Marker::Subject(environment.to_string()), time, Look::Plain);
        }
    }
    match section.blocks.is_empty() {
        true => Vec::new(),
        false => vec![section],
    }
}
