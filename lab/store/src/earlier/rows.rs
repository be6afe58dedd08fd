//! Rows of tables `builds` and `trials` -> boots.

use crate::rows::{collect, damage, environment, facts, unsigned};
use crate::{packets, write, Problem, RunId};
use rusqlite::{Row, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use trapline_model::kernel_build::{Column, Place, Size, PROOF_FACTS};
use trapline_model::packets::{Direction, PacketOperation, Purpose, Queues, Ring, Trial};
use trapline_model::{
    Config, EnvironmentId, Observation, Operation, OperationResult, Outcome, RecordedRequest,
};

/// Converts the builds of a run, each to a boot. Facts have its size, or else the request.
pub fn convert_builds(
    transaction: &Transaction<'_>,
    run: i64,
    request: &RecordedRequest,
) -> Result<(), Problem> {
    let asked = request.long_operations().first().copied();
    let usual = asked.unwrap_or(Operation::Build(Size::Mini));
    let sql = "SELECT * FROM builds WHERE run = ?1 ORDER BY id";
    let builds = collect(transaction, sql, run, |row| {
        let name: String = row.get("place")?;
        let place = Place::from_name(&name).ok_or_else(|| damage("place", &name))?;
        let cpus = row.get("cpus")?;
        let config = Column { cpus, place }.config(environment(row.get("environment")?)?);
        let mut boot = boot(config, row.get("round")?);
        boot.facts = facts(&row.get::<_, String>("facts")?)?;
        let outcome = match outcome(row)? {
            Some(outcome) => outcome,
            None => {
                let proof: String = row.get("proof")?;
                let (own_ns, took) = (unsigned(row.get("own_ns")?), unsigned(row.get("took")?));
                let outcome = Outcome::of_build(own_ns, took, &proof);
                let facts = [row.get::<_, u32>("objects")?.to_string(), proof];
                let facts = PROOF_FACTS.map(str::to_owned).into_iter().zip(facts);
                boot.facts.extend(facts);
                outcome
            }
        };
        let size = boot
            .facts
            .get("build-size")
            .and_then(|name| Size::from_name(name));
        let operation = size.map_or(usual, Operation::Build);
        boot.operations = vec![OperationResult::new(operation, outcome)];
        Ok(boot)
    })?;
    add(transaction, run, builds)
}

/// Returns the outcome of a row that is not done.
fn outcome(row: &Row<'_>) -> Result<Option<Outcome>, Problem> {
    let kind: String = row.get("outcome")?;
    Ok(match kind.as_str() {
        "skipped" => Some(Outcome::Skipped(row.get("reason")?)),
        "failed" => Some(Outcome::Failed(row.get("reason")?)),
        "done" => None,
        _ => return Err(damage("outcome", &kind)),
    })
}

/// Returns a boot without results.
fn boot(config: Config, replicate: u32) -> Observation {
    Observation {
        clock: config.clock(),
        config,
        replicate,
        unit_per_tick: 1.0,
        operations: Vec::new(),
        launches: Vec::new(),
        facts: BTreeMap::new(),
        log: String::new(),
        problems: Vec::new(),
        host: String::new(),
    }
}

/// Converts the trials of a run, those of one forwarder, its queues and round to a boot.
pub fn convert_trials(transaction: &Transaction<'_>, run: i64) -> Result<(), Problem> {
    type Key = (u32, Config);
    let sql = "SELECT * FROM trials WHERE run = ?1 ORDER BY id";
    let trials = collect(transaction, sql, run, |row| {
        let path: String = row.get("path")?;
        let name = format!("net/{path}");
        let id = EnvironmentId::from_recorded(&name).ok_or_else(|| damage("path", &path))?;
        let queues = Queues {
            ring: named(row, "ring", Ring::from_name)?,
            pairs: row.get("queues")?,
        };
        let key: Key = (row.get("round")?, queues.config(id));
        let outcome = outcome(row)?;
        let trial = match outcome {
            None => Some(packets::trial(row)?),
            Some(_) => None,
        };
        Ok((key, operation(row)?, outcome, trial))
    })?;
    // In order of time.
    let (mut boots, mut places) = (Vec::new(), BTreeMap::new());
    for (key, operation, outcome, trial) in trials {
        let place = *places.entry(key.clone()).or_insert(boots.len());
        if place == boots.len() {
            boots.push((key, Vec::new()));
        }
        let results: &mut Vec<Trials> = &mut boots[place].1;
        let at = trial.map(|trial: Trial| trial.distance());
        let operation = at.map_or(operation, |distance| operation.at(distance));
        let known = results
            .iter_mut()
            .find(|it| it.operation == operation && it.outcome == outcome);
        match known {
            Some(known) => known.trials.extend(trial),
            None => results.push(Trials {
                operation,
                outcome,
                trials: trial.into_iter().collect(),
            }),
        }
    }
    let boots = boots.into_iter().map(|((round, config), all)| Observation {
        operations: all.into_iter().map(Trials::result).collect(),
        ..boot(config, round)
    });
    add(transaction, run, boots)
}

/// Trials of one operation in one round, with CPUs of one distance.
struct Trials {
    operation: PacketOperation,
    /// Outcome if there are none.
    outcome: Option<Outcome>,
    trials: Vec<Trial>,
}

impl Trials {
    fn result(self) -> OperationResult {
        let measured = || Outcome::of_trials(self.operation, self.trials);
        let outcome = self.outcome.unwrap_or_else(measured);
        OperationResult::new(Operation::Packets(self.operation), outcome)
    }
}

fn named<T>(
    row: &Row<'_>,
    column: &str,
    from_name: impl Fn(&str) -> Option<T>,
) -> Result<T, Problem> {
    let name: String = row.get(column)?;
    from_name(&name).ok_or_else(|| damage(column, &name))
}

fn operation(row: &Row<'_>) -> Result<PacketOperation, Problem> {
    let offered: Option<f64> = row.get("offered")?;
    let purpose = |name: &str| match name {
        "maximum" => Some(Purpose::Maximum),
        "half-load" => Some(Purpose::HalfLoad),
        "given" => Some(Purpose::Given(offered.unwrap_or_default() as u32)),
        "search" => Some(Purpose::Search),
        _ => None,
    };
    Ok(PacketOperation {
        direction: named(row, "direction", Direction::from_name)?,
        size: row.get("size")?,
        purpose: named(row, "purpose", purpose)?,
        distance: None,
    })
}

/// Stores boots. Skips are those of their configurations.
fn add(
    transaction: &Transaction<'_>,
    run: i64,
    boots: impl IntoIterator<Item = Observation>,
) -> Result<(), Problem> {
    let mut skipped = BTreeSet::new();
    for mut boot in boots {
        let mut reasons = Vec::new();
        boot.operations.retain(|it| match &it.outcome {
            Outcome::Skipped(reason) => {
                reasons.push(reason.clone());
                false
            }
            _ => true,
        });
        for reason in reasons {
            let skip = (boot.config.clone(), reason);
            if !skipped.contains(&skip) {
                write::skip(transaction, RunId(run), &skip.0, &skip.1)?;
                skipped.insert(skip);
            }
        }
        if !boot.operations.is_empty() {
            write::add_boot(transaction, RunId(run), &boot)?;
        }
    }
    Ok(())
}
