//! From a stored run to what is printed and how the command ends. The same for
//! `run` and `show`: a table can always be made again from the store.

use crate::args::Format;
use crate::failure::{Failure, Status};
use crate::{keep, terminal};
use std::collections::BTreeSet;
use trapline_model::file::{self, Table};
use trapline_model::irq::Settings;
use trapline_model::kernel_build::Request;
use trapline_model::{Contender, Observation, Variant};
use trapline_report::kernel_build::Matrix;
use trapline_report::page::Study;
use trapline_report::{study, Report, Style};
use trapline_stats::chance::Chance;
use trapline_stats::{judge, FailureKind, Summary, Value};
use trapline_store::Run;

/// Makes the reports of a stored run: one for each set of settings, with all environments
/// that have no other. What was measured again only to see what chance does is in none.
pub fn reports(run: &Run) -> Vec<Report> {
    reports_of(run, |variant| !variant.again)
}

/// The same with one of what was measured again.
pub fn reports_of_all(run: &Run) -> Vec<Report> {
    reports_of(run, |_| true)
}

fn reports_of(run: &Run, is_wanted: fn(&Variant) -> bool) -> Vec<Report> {
    let booted = run.observations.iter().map(Observation::contender);
    let skipped = run.skips.iter().map(|(contender, _)| contender.clone());
    let contenders: BTreeSet<Contender> = booted.chain(skipped).collect();
    let wanted = contenders.iter().map(|contender| &contender.variant);
    let all: BTreeSet<&Variant> = wanted.filter(|variant| is_wanted(variant)).collect();
    let shown: Vec<_> = all
        .iter()
        .filter(|variant| !stands_elsewhere(variant, &all, &contenders))
        .collect();
    let mut reports: Vec<Report> = match shown.is_empty() {
        true => vec![report(run)],
        false => shown.into_iter().map(|it| report_of(run, it)).collect(),
    };
    // It is of the run, and told once.
    reports[0].chance = Chance::of(&run.observations, &judgement(run.info.seed));
    reports
}

/// Whether another report has everyone with this variant: a matrix of settings has a bare
/// row that none of them means anything to.
fn stands_elsewhere(
    variant: &Variant,
    all: &BTreeSet<&Variant>,
    contenders: &BTreeSet<Contender>,
) -> bool {
    let others = || all.iter().filter(|other| **other != variant);
    let with_it = contenders.iter().filter(|it| it.variant == *variant);
    let mut environments = with_it.map(|contender| contender.environment);
    others().next().is_some()
        && environments.all(|id| others().any(|other| other.fitting(id) == *variant))
}

/// The reports of a stored run, each with the observations that it was made of.
pub fn studies(run: &Run) -> Vec<Study> {
    let with = |report: Report| Study {
        observations: seen_with(run, &report.variant),
        report,
    };
    reports(run).into_iter().map(with).collect()
}

/// Makes the report of a stored run as far as its settings are the usual ones.
pub fn report(run: &Run) -> Report {
    report_of(run, &Variant::default())
}

fn report_of(run: &Run, variant: &Variant) -> Report {
    let observations = seen_with(run, variant);
    let skips = run.skips.iter();
    let skips = skips.filter(|(contender, _)| fits(contender, variant));
    let summary = trapline_stats::summarise(&observations);
    let irq = Settings::from_facts(&run.info.facts);
    let uses_seed = observations.iter().any(|seen| !seen.clock.is_exact());
    Report {
        version: run.info.version.clone(),
        seed: uses_seed.then_some(run.info.seed),
        variant: variant.clone(),
        facts: run.info.facts.clone(),
        requests: trapline_stats::block::summarise(&observations, &summary),
        interrupts: trapline_stats::irq::summarise(&observations, &summary, &irq),
        irq,
        summary,
        skips: skips
            .map(|(it, reason)| (it.environment, reason.clone()))
            .collect(),
        neighbours: Vec::new(),
        chance: None,
        tables: tables(run),
        operations: keep::operations(&run.info.request),
    }
}

fn seen_with(run: &Run, variant: &Variant) -> Vec<Observation> {
    let seen = run.observations.iter();
    let seen = seen.filter(|seen| fits(&seen.contender(), variant));
    seen.cloned().collect()
}

fn fits(contender: &Contender, variant: &Variant) -> bool {
    contender.variant == variant.fitting(contender.environment)
}

/// The tables that the plan of a run has of its own. One that this version cannot read any
/// more has none.
fn tables(run: &Run) -> Vec<Table> {
    let study = run
        .info
        .plan
        .as_deref()
        .and_then(|text| file::read(text).ok());
    study.map_or_else(Vec::new, |study| study.tables)
}

/// What verdicts keep where nobody says what.
fn judgement(seed: u64) -> judge::Settings {
    judge::Settings {
        seed,
        ..judge::Settings::default()
    }
}

/// Prints reports in the chosen form, and nothing else, to standard output.
///
/// # Errors
/// Those of [`terminal::print_text`]; or the reports cannot be written in that form.
pub fn print(reports: &[Report], format: Format) -> Result<(), Failure> {
    let text = match format {
        Format::Table => study::terminal(reports, &style()),
        Format::Json => study::json(reports),
        Format::Csv => study::csv(reports),
        Format::Markdown => study::markdown(reports),
        Format::Junit => study::junit(reports).map_err(|error| Failure::from_error(&error))?,
        Format::Bencher => study::bencher(reports),
    };
    terminal::print_text(&text)
}

/// Says what is left of a run that somebody ended.
pub fn tell_interrupted(run: &Run) {
    anstream::eprintln!(
        "interrupted; {} finished boots are kept as run {}",
        run.info.boots,
        run.info.id
    );
}

/// The table of a run's kernel builds, if it is a run of those.
pub fn builds(run: &Run) -> Option<Matrix> {
    let request: Request = run.info.request.parse().ok()?;
    Some(Matrix::new(request.size, &run.builds))
}

/// Draws the figures of a stored run below its tables.
///
/// # Errors
/// Those of [`terminal::print_text`].
pub fn plot(run: &Run) -> Result<(), Failure> {
    terminal::print_text(&trapline_report::plot(&studies(run), &style()))
}

/// How this terminal is to be written to.
pub fn style() -> Style {
    Style {
        width: terminal::width(),
        colour: terminal::shows_color(),
        unicode: terminal::shows_unicode(),
    }
}

/// How a command ends whose run has these reports: the worst of them counts.
pub fn status_of(reports: &[Report]) -> Status {
    let all = || reports.iter().map(|report| status(&report.summary));
    let worst = |wanted: Status| all().find(|status| *status == wanted);
    worst(Status::Undetermined)
        .or_else(|| worst(Status::Failed))
        .unwrap_or(Status::Done)
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
