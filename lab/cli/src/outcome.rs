//! The report of a stored run, its output, and the status of the command.

use crate::args::{Format, OutputOptions, StoreOptions};
use crate::failure::{Failure, Status};
use crate::recorded_command::quoted;
use crate::terminal;
use trapline_model::file;
use trapline_model::irq::Settings;
use trapline_model::{packets, Config, Observation, Outcome};
use trapline_report::rates::Rates;
use trapline_report::{Document, HostOfRun, Report, Style};
use trapline_runner::{is_running_elsewhere, Interrupt};
use trapline_stats::aa_test::AaTest;
use trapline_stats::hosts::ids;
use trapline_stats::{layouts, verdict, FailureKind, Value};
use trapline_store::{Run, RunId, RunInfo};

/// Returns the report of a stored run. A/A controls are left out.
pub fn report(run: &Run) -> Report {
    report_of(run, &observations(run))
}

/// Returns the report of a stored run, A/A controls included.
pub fn report_of_all(run: &Run) -> Report {
    report_of(run, &run.observations)
}

/// Returns the observations of a stored run but those of A/A controls.
pub fn observations(run: &Run) -> Vec<Observation> {
    let all = run.observations.iter();
    let shown = all.filter(|seen| !seen.config.overrides.is_control);
    shown.cloned().collect()
}

fn report_of(run: &Run, observations: &[Observation]) -> Report {
    // A further layout is named only if it is alone.
    let is_skipped = |config: &Config| run.skips.iter().any(|(skipped, _)| skipped == config);
    let is_shown = |(config, _): &&(Config, String)| {
        let (default, layout) = config.without_layout();
        !config.overrides.is_control && (layout == 0 || !is_skipped(&default))
    };
    let skips: Vec<_> = run.skips.iter().filter(is_shown).cloned().collect();
    let measured = observations.iter().map(|seen| &seen.config);
    let configs = measured.chain(skips.iter().map(|(config, _)| config));
    let settings = Config::common_settings(&configs.collect());
    let mut summary = layouts::folded(trapline_stats::summarise(observations));
    // Their boots are pooled, which those of several hosts must not be.
    let of_one_host = if ids(observations).len() > 1 {
        summary.timelines.clear();
        summary.host_use.clear();
        &[]
    } else {
        observations
    };
    let irq = Settings::from_facts(&run.info.facts);
    let uses_seed = observations.iter().any(|seen| !seen.clock.is_exact());
    let verdicts = verdict::Settings {
        seed: run.info.seed,
        ..verdict::Settings::default()
    };
    Report {
        unfinished: unfinished(&run.info),
        version: run.info.version.clone(),
        seed: uses_seed.then_some(run.info.seed),
        settings,
        facts: run.info.facts.clone(),
        hosts: hosts(run),
        requests: trapline_stats::block::summarise(of_one_host, &summary),
        interrupts: trapline_stats::irq::summarise(of_one_host, &summary, &irq),
        irq,
        skips,
        co_tenants: Vec::new(),
        aa_control: AaTest::new(&run.observations, &verdicts),
        builds: trapline_stats::builds::over_base(of_one_host, &summary),
        summary,
        allowed_losses: 0,
        tables: study(run).map_or_else(Vec::new, |study| study.tables),
        operations: run.info.request.guest_operations(),
        long: run.info.request.long_operations(),
        packets: packets(run, of_one_host),
    }
}

/// Returns the hosts of a run.
fn hosts(run: &Run) -> Vec<HostOfRun> {
    let all = run.hosts.values().map(|host| HostOfRun {
        boots: run
            .observations
            .iter()
            .filter(|boot| boot.host == host.id)
            .count(),
        host: host.clone(),
    });
    let mut hosts: Vec<_> = all.filter(|one| one.boots > 0).collect();
    hosts.sort_by(|a, b| a.host.label().cmp(b.host.label()));
    hosts
}

/// Returns the trials of packets of a run.
fn packets(run: &Run, observations: &[Observation]) -> Rates {
    let settings = run.info.request.packets;
    let cpus = settings.map_or(packets::Settings::default().cpus, |settings| settings.cpus);
    Rates::new(observations, cpus)
}

/// Returns the state of a run that is not finished, as a sentence.
fn unfinished(run: &RunInfo) -> Option<String> {
    let boots = run.boots;
    match run.finished_at {
        Some(_) => None,
        None if is_running_elsewhere(run) => Some(format!("In progress: {boots} boots so far")),
        None => Some(format!("Interrupted after {boots} boots")),
    }
}

/// Returns the plan of a run, if it has one and this version can parse it.
fn study(run: &Run) -> Option<file::Study> {
    let plan = run.info.plan.as_deref();
    plan.and_then(|text| file::read(text).ok())
}

/// Prints a document in `format` to standard output.
///
/// # Errors
/// See [`terminal::print_text`]; also a document that cannot be written in that format.
pub fn print(document: &Document, format: Format) -> Result<(), Failure> {
    print_as(document, format.of_report(style()))
}

fn print_as(document: &Document, format: trapline_report::Format) -> Result<(), Failure> {
    let text = trapline_report::render(document, format);
    let text = text.map_err(|error| Failure::from_error(&error))?;
    match format {
        trapline_report::Format::Text(_) | trapline_report::Format::Brief(_) => {
            terminal::print_styled(&text)
        }
        _ => terminal::print_text(&text),
    }
}

/// Prints the report of a run as `output` says: in the brief form unless all is asked for, with the change since an
/// earlier run.
///
/// # Errors
/// See [`print`].
pub fn print_run(
    run: &Run,
    report: &Report,
    output: &OutputOptions,
    store: &StoreOptions,
    since: Option<String>,
) -> Result<(), Failure> {
    let is_brief = output.is_brief();
    let document = report.document();
    if is_brief {
        print_as(&document, trapline_report::Format::Brief(style()))?
    } else {
        print(&document, output.format)?
    }
    if output.plot {
        plot(run, report)?;
    }
    if let Some(change) = since {
        terminal::print_text(&format!("\n{change}\n"))?;
    }
    if is_brief {
        terminal::print_text(&hint(run, store))
    } else {
        Ok(())
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

/// Prints bar charts of a stored run.
///
/// # Errors
/// Output cannot be written.
fn plot(run: &Run, report: &Report) -> Result<(), Failure> {
    let plot = trapline_report::plot(report, &observations(run), &style());
    terminal::print_styled(&plot)
}

/// Returns the style of this terminal.
pub fn style() -> Style {
    Style {
        width: terminal::width(),
        colour: terminal::shows_color(),
        unicode: terminal::shows_unicode(),
    }
}

/// Returns whether any operation of a run was measured.
fn has_figures(run: &Run) -> bool {
    let mut operations = run.observations.iter().flat_map(|seen| &seen.operations);
    operations.any(|operation| matches!(operation.outcome, Outcome::Measured { .. }))
}

/// Returns the status of a command with this report. An operation that failed in more boots than are allowed has failed.
pub fn status(report: &Report) -> Status {
    let failed = |cell: &trapline_stats::Cell| match &cell.value {
        Value::Failed(_) => true,
        Value::Measured(figure) => report.lost_too_many(figure).is_some(),
        Value::Skip(_) => false,
    };
    let summary = &report.summary;
    if summary.has_failure(FailureKind::NotDeterministic) {
        Status::Undetermined
    } else if summary.cells.iter().any(failed) {
        Status::Failed
    } else {
        Status::Done
    }
}
