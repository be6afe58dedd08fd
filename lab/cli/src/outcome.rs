//! Reports of stored runs, their output, and the status of the command.

use crate::args::{Format, OutputOptions, StoreOptions};
use crate::failure::{Failure, Status};
use crate::recorded_command::quoted;
use crate::{optimisations, terminal};
use std::collections::BTreeSet;
use trapline_model::file::{self, Table};
use trapline_model::irq::Settings;
use trapline_model::kernel_build::{BuildOutcome, BuildRequest};
use trapline_model::packets::{PacketRequest, TrialOutcome};
use trapline_model::{Config, Observation, Outcome, Overrides};
use trapline_report::kernel_build::Matrix;
use trapline_report::packets::Rates;
use trapline_report::page::Study;
use trapline_report::{by_settings, Document, Family, Report, Style};
use trapline_runner::{is_running_elsewhere, request_text, Interrupt};
use trapline_stats::aa_test::AaTest;
use trapline_stats::{verdict, FailureKind, Summary, Value};
use trapline_store::{Run, RunId, RunInfo};

/// Returns the reports of a stored run: one per set of settings, with all environments that support no
/// other. A/A controls are left out.
pub fn reports(run: &Run) -> Vec<Report> {
    reports_of(run, |overrides| !overrides.is_control)
}

/// Returns the reports of a stored run, A/A controls included.
pub fn reports_of_all(run: &Run) -> Vec<Report> {
    reports_of(run, |_| true)
}

fn reports_of(run: &Run, is_wanted: fn(&Overrides) -> bool) -> Vec<Report> {
    let booted = run.observations.iter().map(Observation::config);
    let skipped = run.skips.iter().map(|(config, _)| config.clone());
    let configs: BTreeSet<Config> = booted.chain(skipped).collect();
    let wanted = configs.iter().map(|config| &config.overrides);
    let all: BTreeSet<&Overrides> = wanted.filter(|overrides| is_wanted(overrides)).collect();
    let shown: Vec<_> = all
        .iter()
        .filter(|overrides| !is_redundant(overrides, &all, &configs))
        .collect();
    let (tables, optimisations) = match study(run) {
        Some(study) => (study.tables, study.optimisations),
        None => Default::default(),
    };
    let mut reports: Vec<Report> = match shown.is_empty() {
        true => vec![report_of(run, &Overrides::default(), &tables)],
        false => shown
            .into_iter()
            .map(|it| report_of(run, it, &tables))
            .collect(),
    };
    // It is of the whole run.
    let settings = verdict::Settings {
        seed: run.info.seed,
        ..verdict::Settings::default()
    };
    reports[0].aa_control = AaTest::new(&run.observations, &settings);
    reports[0].optimisations = optimisations::measured(&optimisations, &reports);
    reports
}

/// Returns whether other reports contain all rows of this variant: a bare row supports none of the
/// settings of a matrix, and is part of every report.
fn is_redundant(
    overrides: &Overrides,
    all: &BTreeSet<&Overrides>,
    configs: &BTreeSet<Config>,
) -> bool {
    let others = || all.iter().filter(|other| **other != overrides);
    let with_it = configs.iter().filter(|it| it.overrides == *overrides);
    let mut environments = with_it.map(|config| config.environment);
    others().next().is_some()
        && environments.all(|id| others().any(|other| other.supported_by(id) == *overrides))
}

/// Returns the reports of a stored run, each with its observations.
pub fn studies(run: &Run) -> Vec<Study> {
    let with = |report: Report| Study {
        observations: observations_with(run, &report.overrides),
        report,
    };
    reports(run).into_iter().map(with).collect()
}

/// Returns the report of a stored run in the default configuration.
pub fn report(run: &Run) -> Report {
    let tables = study(run).map_or_else(Vec::new, |study| study.tables);
    report_of(run, &Overrides::default(), &tables)
}

fn report_of(run: &Run, overrides: &Overrides, tables: &[Table]) -> Report {
    let observations = observations_with(run, overrides);
    let skips = run.skips.iter();
    let skips = skips.filter(|(config, _)| fits(config, overrides));
    let summary = trapline_stats::summarise(&observations);
    let irq = Settings::from_facts(&run.info.facts);
    let uses_seed = observations.iter().any(|seen| !seen.clock.is_exact());
    Report {
        unfinished: unfinished(&run.info),
        version: run.info.version.clone(),
        seed: uses_seed.then_some(run.info.seed),
        overrides: overrides.clone(),
        facts: run.info.facts.clone(),
        requests: trapline_stats::block::summarise(&observations, &summary),
        interrupts: trapline_stats::irq::summarise(&observations, &summary, &irq),
        irq,
        summary,
        skips: skips
            .map(|(it, reason)| (it.environment, reason.clone()))
            .collect(),
        co_tenants: Vec::new(),
        aa_control: None,
        optimisations: Vec::new(),
        tables: tables.to_vec(),
        operations: request_text::operations(&run.info.request),
    }
}

/// Returns the state of a run that is not finished, as a sentence.
fn unfinished(run: &RunInfo) -> Option<String> {
    let boots = run.boots;
    match run.finished_at {
        Some(_) => None,
        None if is_in_progress(run) => Some(format!("In progress: {boots} boots so far")),
        None => Some(format!("Interrupted after {boots} boots")),
    }
}

/// Returns whether another process measures a run. This one reports its own runs when they are over.
pub fn is_in_progress(run: &RunInfo) -> bool {
    run.finished_at.is_none() && run.owner.as_deref().is_some_and(is_running_elsewhere)
}

fn observations_with(run: &Run, overrides: &Overrides) -> Vec<Observation> {
    let seen = run.observations.iter();
    let seen = seen.filter(|seen| fits(&seen.config(), overrides));
    seen.cloned().collect()
}

fn fits(config: &Config, overrides: &Overrides) -> bool {
    config.overrides == overrides.supported_by(config.environment)
}

/// Returns the plan of a run, if it has one and this version can parse it.
fn study(run: &Run) -> Option<file::Study> {
    let plan = run.info.plan.as_deref();
    plan.and_then(|text| file::read(text).ok())
}

/// Prints documents in `format` to standard output.
///
/// # Errors
/// See [`terminal::print_text`]; also documents that cannot be written in that format.
pub fn print(documents: &[Document], format: Format) -> Result<(), Failure> {
    print_as(documents, format.of_report(style()))
}

fn print_as(documents: &[Document], format: trapline_report::Format) -> Result<(), Failure> {
    let text = trapline_report::render(documents, format);
    let text = text.map_err(|error| Failure::from_error(&error))?;
    match format {
        trapline_report::Format::Text(_) | trapline_report::Format::Brief(_) => {
            terminal::print_styled(&text)
        }
        _ => terminal::print_text(&text),
    }
}

/// Prints the reports of a run in `format` to standard output.
///
/// # Errors
/// See [`print`].
pub fn print_reports(reports: &[Report], format: Format) -> Result<(), Failure> {
    let documents: Vec<Document> = reports.iter().map(Report::document).collect();
    print(&documents, format)
}

/// Prints the reports of a run as `output` says: in the brief form unless all is asked for, with the change since an
/// earlier run.
///
/// # Errors
/// See [`print`].
pub fn print_run(
    run: &Run,
    reports: &[Report],
    output: &OutputOptions,
    store: &StoreOptions,
    since: Option<String>,
) -> Result<(), Failure> {
    let is_brief = output.is_brief();
    let together = by_settings::document(reports).filter(|_| is_brief);
    let documents: Vec<Document> = match together {
        Some(document) => vec![document],
        None => reports.iter().map(Report::document).collect(),
    };
    match is_brief {
        true => print_as(&documents, trapline_report::Format::Brief(style()))?,
        false => print(&documents, output.format)?,
    }
    if output.plot {
        plot(run)?;
    }
    if let Some(change) = since {
        terminal::print_text(&format!("\n{change}\n"))?;
    }
    match is_brief {
        true => terminal::print_text(&hint(run, store)),
        false => Ok(()),
    }
}

/// Returns the command that prints all of a stored run.
fn hint(run: &Run, store: &StoreOptions) -> String {
    if run.info.id == RunId::UNSTORED {
        return String::new();
    }
    format!(
        "\nEverything: trapline show --run {}{} --all\n",
        run.info.id,
        store_words(store)
    )
}

/// Returns the option of a printed command for the store, after a space, if it is not the usual one.
pub fn store_words(store: &StoreOptions) -> String {
    let file = store.file.as_ref();
    file.map_or_else(String::new, |file| {
        format!(" --store {}", quoted(&file.to_string_lossy()))
    })
}

/// Returns the status of the command that measured a run whose results have `status`: nothing measured is no success
/// (docs/exit-status.md). If it was cancelled, prints how much is stored.
pub fn of_command(run: &Run, status: Status, interrupt: &Interrupt) -> Status {
    let Some(signal) = interrupt.signal() else {
        return match status {
            Status::Done if !has_figures(run) => Status::Unmeasured,
            status => status,
        };
    };
    let (boots, id) = (run.info.boots, run.info.id);
    terminal::print_error(&format!(
        "interrupted: {boots} finished boots are stored as run {id}"
    ));
    Status::Interrupted(signal)
}

/// Returns what a run of kernel builds or of packets has measured; `None` of other runs.
pub fn family(run: &Run) -> Option<Family> {
    let request = &run.info.request;
    if let Ok(request) = request.parse::<BuildRequest>() {
        return Some(Family::Builds(Matrix::new(request.size, &run.builds)));
    }
    let request: PacketRequest = request.parse().ok()?;
    Some(Family::Packets(Rates::new(&request, &run.trials)))
}

/// Prints kernel builds or packets.
///
/// # Errors
/// The format is not supported, or output cannot be written.
pub fn print_family(family: &Family, format: Format) -> Result<(), Failure> {
    let format = supported_by_family(family.name(), format)?;
    print(&[family.document(env!("CARGO_PKG_VERSION"))], format)
}

/// Returns `format` if kernel builds and packets have it.
///
/// # Errors
/// They do not.
pub fn supported_by_family(family: &str, format: Format) -> Result<Format, Failure> {
    match format {
        Format::Table | Format::Json | Format::Markdown => Ok(format),
        _ => Err(Failure::usage(
            format!("--format: not supported by {family}"),
            "choose table, json or markdown",
        )),
    }
}

/// Prints bar charts of a stored run.
///
/// # Errors
/// Output cannot be written.
pub fn plot(run: &Run) -> Result<(), Failure> {
    terminal::print_styled(&trapline_report::plot(&studies(run), &style()))
}

/// Returns the style of this terminal.
pub fn style() -> Style {
    Style {
        width: terminal::width(),
        colour: terminal::shows_color(),
        unicode: terminal::shows_unicode(),
    }
}

/// Returns whether any operation, build or trial of a run was measured.
fn has_figures(run: &Run) -> bool {
    let mut operations = run.observations.iter().flat_map(|seen| &seen.operations);
    let (mut builds, mut trials) = (run.builds.iter(), run.trials.iter());
    operations.any(|operation| matches!(operation.outcome, Outcome::Measured { .. }))
        || builds.any(|build| matches!(build.outcome, BuildOutcome::Done(_)))
        || trials.any(|trial| matches!(trial.outcome, TrialOutcome::Done(_)))
}

/// Returns the status of a command with these reports: the worst one.
pub fn status_of(reports: &[Report]) -> Status {
    let all = || reports.iter().map(|report| status(&report.summary));
    let worst = |wanted: Status| all().find(|status| *status == wanted);
    worst(Status::Undetermined)
        .or_else(|| worst(Status::Failed))
        .unwrap_or(Status::Done)
}

/// Returns the status of a command with this summary. An operation that failed in some boots has failed.
pub fn status(summary: &Summary) -> Status {
    let failed = |cell: &trapline_stats::Cell| match &cell.value {
        Value::Failed(_) => true,
        Value::Measured(figure) => figure.boots_lost().is_some(),
        Value::Skip(_) => false,
    };
    if summary.has_failure(FailureKind::NotDeterministic) {
        Status::Undetermined
    } else if summary.cells.iter().any(failed) {
        Status::Failed
    } else {
        Status::Done
    }
}
