//! CPU time and energy of the host beside a guest: what it left to a competitor for its CPUs (`--competitor`), and what the
//! processor packages used.

use crate::document::{Look, Marker, Section};
use crate::figures;
use crate::report::Report;
use trapline_model::{Clock, COMPETITOR, ENERGY};
use trapline_stats::host_use::HostUse;
use trapline_stats::Cell;

/// Facts and their titles.
const FACTS: [(&str, &str); 2] = [
    (COMPETITOR, "competitor"),
    (ENERGY, "energy of the processor packages"),
];

/// Returns the facts by configuration, if there are any.
pub fn sections(report: &Report, _: &[Cell], clock: Clock) -> Vec<Section> {
    let explanation = "during a boot, of the whole host; median over boots";
    let mut section = Section::new("CPU time and energy of the host", explanation);
    for one in report
        .summary
        .host_use
        .iter()
        .filter(|one| one.config.clock() == clock)
    {
        for (_, title) in FACTS.iter().filter(|(fact, _)| *fact == one.fact) {
            let subject = Marker::Subject(report.name(&one.config));
            section.note(subject, &format!("{title}: {}", text(one)), Look::Plain);
        }
    }
    if section.blocks.is_empty() {
        Vec::new()
    } else {
        vec![section]
    }
}

fn text(one: &HostUse) -> String {
    let value = |value: f64| format!("{}{}", figures::quantity(value), one.unit);
    let spread = match one.interval {
        Some(interval) => format!(
            " ({} to {}, {} interval of {} boots)",
            figures::quantity(interval.low),
            figures::quantity(interval.high),
            figures::level(interval.level),
            one.boots
        ),
        None => " (a single boot has no interval)".to_owned(),
    };
    value(one.estimate) + &spread
}
