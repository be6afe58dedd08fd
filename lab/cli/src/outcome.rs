//! From a stored run to what is printed and how the command ends. The same for
//! `run` and `show`: a table can always be made again from the store.

use crate::args::Format;
use crate::failure::{Failure, Status};
use crate::{keep, terminal};
use trapline_plan::irq::Settings;
use trapline_report::{Report, Style};
use trapline_stats::{FailureKind, Summary, Value};
use trapline_store::Run;

/// Makes the report of a stored run.
pub fn report(run: &Run) -> Report {
    let summary = trapline_stats::summarise(&run.observations, run.info.seed);
    let irq = Settings::from_facts(&run.info.facts);
    Report {
        version: run.info.version.clone(),
        facts: run.info.facts.clone(),
        requests: trapline_stats::block::summarise(&run.observations, &summary, run.info.seed),
        interrupts: trapline_stats::irq::summarise(&run.observations, &summary, &irq),
        irq,
        summary,
        skips: run.skips.clone(),
        neighbours: Vec::new(),
        operations: keep::operations(&run.info.request),
    }
}

/// Prints a report in the chosen form, and nothing else, to standard output.
///
/// # Errors
/// Those of [`terminal::print_text`].
pub fn print(report: &Report, format: Format) -> Result<(), Failure> {
    let text = match format {
        Format::Table => trapline_report::terminal(report, &style()),
        Format::Json => trapline_report::json(report),
        Format::Csv => trapline_report::csv(report),
        Format::Markdown => trapline_report::markdown(report),
    };
    terminal::print_text(&text)
}

fn style() -> Style {
    Style {
        width: terminal::width(),
        colour: terminal::shows_color(),
        unicode: terminal::shows_unicode(),
    }
}

/// How a command ends whose run is summarised so.
pub fn status(summary: &Summary) -> Status {
    let failed = |cell: &trapline_stats::Cell| matches!(cell.value, Value::Failed(_));
    if summary.has_failure(FailureKind::NotDeterministic) {
        Status::Undetermined
    } else if summary.cells.iter().any(failed) {
        Status::Failed
    } else {
        Status::Done
    }
}
