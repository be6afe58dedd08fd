//! From an observation to rows. Every function here is one transaction.

use crate::{pack, NewRun, Problem, RunId};
use rusqlite::{params, Connection, Transaction, TransactionBehavior};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use trapline_abi::{Interrupt, Workload};
use trapline_model::{names, Contender, Launch, Observation, Operation, Outcome, Sample};

pub fn begin_run(connection: &mut Connection, run: &NewRun<'_>) -> Result<RunId, Problem> {
    let transaction = begin(connection)?;
    transaction.execute(
        "INSERT INTO runs (started_at, seed, request, version, facts, keeper, plan)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            now(),
            signed(run.seed),
            run.request,
            run.version,
            json(&run.facts),
            run.keeper,
            run.plan
        ],
    )?;
    let id = transaction.last_insert_rowid();
    transaction.commit()?;
    Ok(RunId(id))
}

/// Whether the run was still unfinished and kept by `before`.
pub fn take_over(
    connection: &mut Connection,
    run: RunId,
    before: Option<&str>,
    keeper: &str,
) -> Result<bool, Problem> {
    let transaction = begin(connection)?;
    let changed = transaction.execute(
        "UPDATE runs SET keeper = ?3 WHERE id = ?1 AND keeper IS ?2 AND finished_at IS NULL",
        params![run.0, before, keeper],
    )?;
    transaction.commit()?;
    Ok(changed == 1)
}

pub fn finish_run(connection: &mut Connection, run: RunId) -> Result<(), Problem> {
    let transaction = begin(connection)?;
    let changed = transaction.execute(
        "UPDATE runs SET finished_at = ?2 WHERE id = ?1",
        params![run.0, now()],
    )?;
    if changed == 0 {
        return Err(Problem::NoSuchRun(run.0));
    }
    Ok(transaction.commit()?)
}

pub fn add_skip(
    connection: &mut Connection,
    run: RunId,
    contender: &Contender,
    reason: &str,
) -> Result<(), Problem> {
    let transaction = begin(connection)?;
    must_exist(&transaction, run)?;
    transaction.execute(
        "INSERT INTO skips (run, environment, variant, reason) VALUES (?1, ?2, ?3, ?4)",
        params![
            run.0,
            contender.environment.name(),
            contender.variant.to_string(),
            reason
        ],
    )?;
    Ok(transaction.commit()?)
}

pub fn add_observation(
    connection: &mut Connection,
    run: RunId,
    seen: &Observation,
) -> Result<(), Problem> {
    let transaction = begin(connection)?;
    must_exist(&transaction, run)?;
    transaction.execute(
        "INSERT INTO boots (run, environment, clock, replicate, unit_per_tick, facts, log,
                            variant)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            run.0,
            seen.environment.name(),
            seen.clock.name(),
            seen.replicate,
            seen.unit_per_tick,
            json(&seen.facts),
            seen.log,
            seen.variant.to_string()
        ],
    )?;
    let boot = transaction.last_insert_rowid();
    for operation in &seen.operations {
        add_operation(&transaction, boot, operation)?;
    }
    for launch in &seen.launches {
        add_launch(&transaction, boot, launch)?;
    }
    for problem in &seen.problems {
        transaction
            .prepare_cached("INSERT INTO problems (boot, text) VALUES (?1, ?2)")?
            .execute(params![boot, problem])?;
    }
    Ok(transaction.commit()?)
}

fn add_operation(
    transaction: &Transaction<'_>,
    boot: i64,
    operation: &Operation,
) -> Result<(), Problem> {
    let path = names::path(operation.op);
    let (outcome, reason) = match &operation.outcome {
        Outcome::Skipped(reason) => ("skipped", Some(reason)),
        Outcome::Failed(reason) => ("failed", Some(reason)),
        Outcome::Measured { .. } => ("measured", None),
    };
    transaction
        .prepare_cached(
            "INSERT INTO operations (boot, operation, outcome, reason) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![boot, path, outcome, reason])?;
    let id = transaction.last_insert_rowid();
    if let Outcome::Measured {
        samples,
        interrupts,
        ..
    } = &operation.outcome
    {
        add_measurement(transaction, id, &operation.outcome)?;
        let is_packed = operation.op.workload() == Workload::Block && pack::are_requests(samples);
        match is_packed {
            true => add_requests(transaction, id, samples)?,
            false => add_samples(transaction, id, samples)?,
        }
        add_interrupts(transaction, id, interrupts)?;
    }
    Ok(())
}

fn add_measurement(
    transaction: &Transaction<'_>,
    operation: i64,
    outcome: &Outcome,
) -> Result<(), Problem> {
    let Outcome::Measured {
        clock_cost,
        loop_cost,
        check,
        exits,
        host_cpu_ns,
        elapsed,
        ..
    } = outcome
    else {
        return Ok(());
    };
    transaction
        .prepare_cached(
            "UPDATE operations SET clock_cost = ?2, loop_cost = ?3, checksum = ?4, exits = ?5,
             host_cpu_ns = ?6, elapsed_ticks = ?7, elapsed_ns = ?8 WHERE id = ?1",
        )?
        .execute(params![
            operation,
            signed(*clock_cost),
            signed(*loop_cost),
            signed(*check),
            exits.map(signed),
            host_cpu_ns.map(signed),
            elapsed.map(|(ticks, _)| signed(ticks)),
            elapsed.map(|(_, ns)| signed(ns)),
        ])?;
    Ok(())
}

fn add_samples(
    transaction: &Transaction<'_>,
    operation: i64,
    samples: &[Sample],
) -> Result<(), Problem> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO samples (operation, number, start_tick, end_tick, count, host_ns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for (number, sample) in samples.iter().enumerate() {
        insert.execute(params![
            operation,
            number as i64,
            signed(sample.start),
            signed(sample.end),
            signed(sample.count),
            sample.host_ns.map(signed),
        ])?;
    }
    Ok(())
}

fn add_requests(
    transaction: &Transaction<'_>,
    operation: i64,
    requests: &[Sample],
) -> Result<(), Problem> {
    transaction
        .prepare_cached("INSERT INTO requests (operation, count, packed) VALUES (?1, ?2, ?3)")?
        .execute(params![
            operation,
            requests.len() as i64,
            pack::packed_requests(requests)
        ])?;
    Ok(())
}

fn add_interrupts(
    transaction: &Transaction<'_>,
    operation: i64,
    interrupts: &[Interrupt],
) -> Result<(), Problem> {
    if interrupts.is_empty() {
        return Ok(());
    }
    transaction
        .prepare_cached("INSERT INTO interrupts (operation, count, packed) VALUES (?1, ?2, ?3)")?
        .execute(params![
            operation,
            interrupts.len() as i64,
            pack::packed(interrupts)
        ])?;
    Ok(())
}

fn add_launch(transaction: &Transaction<'_>, boot: i64, launch: &Launch) -> Result<(), Problem> {
    transaction
        .prepare_cached("INSERT INTO launches (boot) VALUES (?1)")?
        .execute([boot])?;
    let id = transaction.last_insert_rowid();
    let mut stages = transaction
        .prepare_cached("INSERT INTO stages (launch, stage, reached) VALUES (?1, ?2, ?3)")?;
    for (stage, reached) in &launch.timeline {
        stages.execute(params![id, stage.name(), signed(*reached)])?;
    }
    let mut counters = transaction
        .prepare_cached("INSERT INTO counters (launch, counter, value) VALUES (?1, ?2, ?3)")?;
    for (counter, value) in &launch.counters {
        counters.execute(params![id, counter.name(), signed(*value)])?;
    }
    Ok(())
}

/// Takes the write lock at once, so that waiting for it is bounded by the busy
/// timeout and never fails half way.
pub fn begin(connection: &mut Connection) -> Result<Transaction<'_>, Problem> {
    Ok(connection.transaction_with_behavior(TransactionBehavior::Immediate)?)
}

pub fn must_exist(transaction: &Transaction<'_>, run: RunId) -> Result<(), Problem> {
    let known = transaction
        .prepare_cached("SELECT 1 FROM runs WHERE id = ?1")?
        .exists([run.0])?;
    if known {
        Ok(())
    } else {
        Err(Problem::NoSuchRun(run.0))
    }
}

/// Two's complement: see [`crate::schema`].
pub fn signed(value: u64) -> i64 {
    value as i64
}

pub fn json(facts: &BTreeMap<String, String>) -> String {
    serde_json::to_value(facts).unwrap_or_default().to_string()
}

/// Milliseconds since 1970; 0 on a machine whose clock is set before.
fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}
