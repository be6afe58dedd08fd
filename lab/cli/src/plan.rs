//! `trapline plan`, and plan files of `trapline run`.

use crate::args::{PlainFormat, PlanArgs, PlanCommand};
use crate::terminal;
use serde::Serialize;
use serde_json::json;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use trapline_host::files::{read_text, TEXT_LIMIT};
use trapline_model::file::{self, Study};
use trapline_model::{expand, Clock, Config, Operation, Plan, Request};
use trapline_runner::{packet_cpus, Failure, Inventory, Status};

/// Checks a plan, or prints the schema of plans.
///
/// # Errors
/// The plan is invalid, or output cannot be written.
pub fn plan(args: &PlanArgs) -> Result<Status, Failure> {
    match &args.command {
        PlanCommand::Check(args) => {
            let study = read(&args.file)?;
            let inventory = args.environment_options.inventory()?;
            let inventory = inventory.with_overrides(&study.configs)?;
            let checked = Checked::new(&study, &inventory);
            match args.format {
                PlainFormat::Table => terminal::print_text(&checked.text())?,
                PlainFormat::Json => terminal::print_json(&json!(checked))?,
            }
        }
        PlanCommand::Schema => terminal::print_json(&file::schema())?,
    }
    Ok(Status::Done)
}

/// Reads the study in a file.
///
/// # Errors
/// The file cannot be read, or is not a plan; the error names the line.
pub fn read(path: &Path) -> Result<Study, Failure> {
    let text = read_text(path, TEXT_LIMIT).map_err(|error| {
        Failure::usage(
            format!("cannot read the plan {}: {error}", path.display()),
            "name a file like those in plans/",
        )
    })?;
    let study = file::read(&text).map_err(|error| {
        Failure::usage(
            format!(
                "{}, {}",
                path.display(),
                terminal::one_line(error.to_string())
            ),
            "'trapline plan schema' prints the keys of a plan",
        )
    })?;
    Ok(study)
}

/// Returns the request of the study, with this seed.
pub fn request(study: &Study, inventory: &Inventory, seed: u64) -> Request {
    Request {
        long: study.long.clone(),
        packets: study.packets,
        configs: study.configs.clone(),
        ready: inventory.ready(&study.configs, &study.long),
        without_taps: inventory.without_taps(study.operations),
        operations: study.operations,
        named: study.named,
        preset: study.preset,
        boots: study.boots,
        exact_boots: study.exact_boots,
        overrides: inventory.overrides().clone(),
        with_control: true,
        seed,
        irq: study.irq.clone(),
        ..Request::default()
    }
}

/// Returns the CPUs of trials of packets, if the study has any.
///
/// # Errors
/// They need two CPUs.
pub fn cpus_of_packets(study: &Study) -> Result<[u32; 2], Failure> {
    let mut long = study.long.iter();
    if long.any(|it| matches!(it, Operation::Packets(_))) {
        packet_cpus(&[])
    } else {
        Ok(study.packets.cpus)
    }
}

/// Returns the end of the study's budget, which starts now.
pub fn deadline(study: &Study) -> Option<Instant> {
    Instant::now().checked_add(study.budget?)
}

/// The boots of a plan on this host.
#[derive(Serialize)]
struct Checked {
    about: String,
    operations: String,
    boots: usize,
    blocks: usize,
    /// `None` if each run draws a random one.
    seed: Option<u64>,
    budget_s: Option<u64>,
    #[serde(rename = "contenders")]
    configs: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    #[serde(rename = "contender")]
    config: String,
    clock: &'static str,
    boots: usize,
    /// Why it is skipped on this host.
    skip: Option<String>,
}

impl Checked {
    fn new(study: &Study, inventory: &Inventory) -> Self {
        let plan = expand(&request(study, inventory, study.seed.unwrap_or_default()));
        let rows = study.configs.iter();
        let rows = rows.map(|it| row(it, &study.long, &plan, inventory));
        let wall = plan.boots.iter();
        let wall = wall.filter(|boot| boot.config.environment.clock() == Clock::Wall);
        let of_guests = study.operations.iter().map(Operation::from);
        let operations = of_guests.chain(study.long.iter().copied());
        Self {
            about: study.about.clone(),
            operations: Operation::describe(operations),
            boots: plan.boots.len(),
            blocks: wall.map(|boot| boot.block as usize + 1).max().unwrap_or(0),
            seed: study.seed,
            budget_s: study.budget.map(|budget| budget.as_secs()),
            configs: rows.collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        if !self.about.is_empty() {
            let _ = writeln!(text, "{}\n", terminal::one_line(&self.about));
        }
        let _ = writeln!(text, "Measures {}", self.operations);
        let _ = writeln!(
            text,
            "{} boots, those on the wall clock in {} blocks, order from {}",
            self.boots,
            self.blocks,
            self.seed
                .map_or("a random seed".to_owned(), |seed| format!("seed {seed}")),
        );
        if let Some(seconds) = self.budget_s {
            let budget = humantime::format_duration(Duration::from_secs(seconds));
            let _ = writeln!(text, "No block starts after {budget}");
        }
        text.push('\n');
        for row in &self.configs {
            let text_of_row = match &row.skip {
                Some(reason) => format!("skipped: {reason}"),
                None => format!("{} boots, {} clock", row.boots, row.clock),
            };
            let _ = writeln!(text, " {}: {text_of_row}", row.config);
        }
        text
    }
}

fn row(config: &Config, long: &[Operation], plan: &Plan, inventory: &Inventory) -> Row {
    let idle = plan.without_work.iter().find(|(idle, _)| idle == config);
    let unavailable = || inventory.unavailable_config(config, long);
    let skip = idle.map(|(_, reason)| reason.clone());
    Row {
        config: config.to_string(),
        clock: config.environment.clock().name(),
        boots: plan
            .boots
            .iter()
            .filter(|boot| boot.config == *config)
            .count(),
        skip: skip.or_else(|| unavailable().map(|it| it.to_string())),
    }
}
