//! `trapline plan`, and plan files as `trapline run` has them.

use crate::args::{PlainFormat, PlanArgs, PlanCommand};
use crate::failure::{Failure, Status};
use crate::kernel_build;
use crate::lab::Lab;
use crate::terminal;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use trapline_environments::Availability;
use trapline_model::file::{self, Study};
use trapline_model::kernel_build::Request;
use trapline_model::{expand, names, Clock, Contender, Plan};

/// Checks a plan, or prints what a plan may hold.
///
/// # Errors
/// The plan is none, or output cannot be written.
pub fn plan(args: &PlanArgs) -> Result<Status, Failure> {
    match &args.command {
        PlanCommand::Check(args) => {
            let study = read(&args.file)?;
            let lab = Lab::open(&args.simulated)?.with_files_of(&study.contenders)?;
            let checked = match &study.builds {
                Some(builds) => Checked::of_builds(&study, builds, &lab),
                None => Checked::new(&study, &lab),
            };
            match args.format {
                PlainFormat::Table => terminal::print_text(&checked.text())?,
                PlainFormat::Json => terminal::print_json(&json!(checked))?,
            }
        }
        PlanCommand::Schema => terminal::print_json(&file::schema())?,
    }
    Ok(Status::Done)
}

/// The study in a file.
///
/// # Errors
/// There is no such file, or it is no plan; the error says in which line.
pub fn read(path: &Path) -> Result<Study, Failure> {
    let usage = |told: String, help: &str| Failure::new(told).help(help).status(Status::Usage);
    let text = std::fs::read_to_string(path).map_err(|error| {
        let told = format!("cannot read the plan {}: {error}", path.display());
        usage(told, "name a file like those in plans/")
    })?;
    file::read(&text).map_err(|error| {
        let told = format!("{}, {error}", path.display());
        usage(
            told,
            "'trapline plan schema' prints all that a plan may hold",
        )
    })
}

/// What the study asks for, in the order of this seed.
pub fn request(study: &Study, lab: &Lab, seed: u64) -> trapline_model::Request {
    let ready = |contender: &&Contender| {
        let place = lab.of(&contender.variant).place(contender.environment);
        place.is_some_and(|place| place.availability == Availability::Ready)
    };
    trapline_model::Request {
        contenders: study.contenders.clone(),
        ready: study.contenders.iter().filter(ready).cloned().collect(),
        operations: study.operations,
        named: study.named,
        preset: study.preset,
        boots: study.boots,
        scheduling: lab.scheduling(),
        twin: true,
        seed,
        irq: study.irq.clone(),
        ..trapline_model::Request::default()
    }
}

/// When the study's time is over, from now.
pub fn deadline(study: &Study) -> Option<Instant> {
    Instant::now().checked_add(study.budget?)
}

/// What a plan comes to on this host.
#[derive(Serialize)]
struct Checked {
    about: String,
    operations: String,
    boots: usize,
    blocks: usize,
    /// `None` if each run draws its own.
    seed: Option<u64>,
    budget_s: Option<u64>,
    contenders: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    contender: String,
    clock: &'static str,
    boots: usize,
    /// Why it is not measured here.
    skip: Option<String>,
}

impl Checked {
    fn new(study: &Study, lab: &Lab) -> Self {
        let plan = expand(&request(study, lab, study.seed.unwrap_or_default()));
        let rows = study.contenders.iter().map(|it| row(it, &plan, lab));
        let wall = plan.boots.iter();
        let wall = wall.filter(|boot| boot.environment.clock() == Clock::Wall);
        Self {
            about: study.about.clone(),
            operations: names::describe(study.operations),
            boots: plan.boots.len(),
            blocks: wall.map(|boot| boot.block as usize + 1).max().unwrap_or(0),
            seed: study.seed,
            budget_s: study.budget.map(|budget| budget.as_secs()),
            contenders: rows.collect(),
        }
    }

    fn of_builds(study: &Study, builds: &Request, lab: &Lab) -> Self {
        let all = builds.expand();
        let rounds = all.iter().map(|build| build.round as usize + 1).max();
        let firsts = all.iter().filter(|build| build.round == 0);
        let cells: BTreeSet<_> = firsts.map(|it| (it.environment, it.column)).collect();
        let rows = cells.into_iter().map(|(environment, column)| {
            let skip = kernel_build::why_not(lab, builds.size, environment, column);
            let boots = builds.boots_of(environment) as usize;
            Row {
                contender: format!("{environment} {column}"),
                clock: environment.clock().name(),
                boots: if skip.is_none() { boots } else { 0 },
                skip,
            }
        });
        let rows: Vec<_> = rows.collect();
        Self {
            about: study.about.clone(),
            operations: format!("kernel-build {}", builds.size),
            boots: rows.iter().map(|row| row.boots).sum(),
            blocks: rounds.unwrap_or(0),
            seed: study.seed,
            budget_s: study.budget.map(|budget| budget.as_secs()),
            contenders: rows,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a text cannot fail.
        if !self.about.is_empty() {
            let _ = writeln!(text, "{}\n", self.about);
        }
        let _ = writeln!(text, "Measures {}", self.operations);
        let _ = writeln!(
            text,
            "{} boots, those on the wall clock in {} blocks, in an order by {}",
            self.boots,
            self.blocks,
            self.seed
                .map_or("a seed drawn at random".to_owned(), |seed| format!(
                    "seed {seed}"
                )),
        );
        if let Some(seconds) = self.budget_s {
            let budget = humantime::format_duration(Duration::from_secs(seconds));
            let _ = writeln!(text, "No block is begun after {budget}");
        }
        text.push('\n');
        for row in &self.contenders {
            let told = match &row.skip {
                Some(reason) => format!("skipped: {reason}"),
                None => format!("{} boots, {} clock", row.boots, row.clock),
            };
            let _ = writeln!(text, " {}: {told}", row.contender);
        }
        text
    }
}

fn row(contender: &Contender, plan: &Plan, lab: &Lab) -> Row {
    let idle = plan.idle.iter().find(|(idle, _)| idle == contender);
    let why_not = || lab.why_not_with(contender);
    let skip = idle.map(|(_, reason)| reason.clone());
    Row {
        contender: contender.to_string(),
        clock: contender.environment.clock().name(),
        boots: plan
            .boots
            .iter()
            .filter(|boot| boot.contender() == *contender)
            .count(),
        skip: skip.or_else(|| why_not().map(str::to_owned)),
    }
}
