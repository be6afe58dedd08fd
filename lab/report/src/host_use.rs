//! CPU time and energy of the host beside a guest: what it left to a competitor for its CPUs (`--competitor`), and what the
//! processor packages used.

use crate::document::{Look, Marker, Section};
use crate::report::Report;
use trapline_model::{Clock, COMPETITOR, ENERGY};
use trapline_stats::Cell;

/// Facts and their titles.
const FACTS: [(&str, &str); 2] = [
    (COMPETITOR, "competitor"),
    (ENERGY, "energy of the processor packages"),
];

/// Returns the facts by configuration, if there are any.
pub fn sections(report: &Report, _: &[Cell], clock: Clock) -> Vec<Section> {
    let mut section = Section::new("CPU time and energy of the host", "during the first boot");
    let facts = report.summary.facts.iter();
    for (config, facts) in facts.filter(|(config, _)| config.clock() == clock) {
        for (fact, title) in FACTS {
            if let Some(value) = facts.get(fact) {
                let subject = Marker::Subject(report.name(config));
                section.note(subject, &format!("{title}: {value}"), Look::Plain);
            }
        }
    }
    if section.blocks.is_empty() {
        Vec::new()
    } else {
        vec![section]
    }
}
