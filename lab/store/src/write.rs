//! Observations -> rows. Every public function is one transaction.

use crate::owner::{Owner, ALIVE};
use crate::rows::{begin, collect, json, must_exist, signed};
use crate::{pack, packets, settings, NewRun, Problem, RunId};
use rusqlite::{params, Connection, Transaction};
use trapline_abi::Workload;
use trapline_model::{time, Config, Host, Launch, Observation, OperationResult, Outcome, Sample};

pub fn begin_run(connection: &mut Connection, run: &NewRun<'_>) -> Result<RunId, Problem> {
    let transaction = begin(connection)?;
    if let Some(owner) = run.owner {
        refuse_other_hosts(&transaction, owner)?;
    }
    let id = insert_run(&transaction, run)?;
    if let Some(host) = run.host {
        add_host(&transaction, id, host)?;
    }
    transaction.commit()?;
    Ok(id)
}

/// Adds a run that begins now.
pub fn insert_run(transaction: &Transaction<'_>, run: &NewRun<'_>) -> Result<RunId, Problem> {
    transaction.execute(
        "INSERT INTO runs (started_at, seed, request, version, facts, owner, plan, uuid, heartbeat)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            now(),
            signed(run.seed),
            run.request.to_string(),
            run.version,
            json(&run.facts),
            run.owner.map(Owner::to_string),
            run.plan,
            run.uuid,
            run.owner.map(|_| now())
        ],
    )?;
    Ok(RunId(transaction.last_insert_rowid()))
}

/// Stores what is known of a host of a run.
pub fn add_host(transaction: &Transaction<'_>, run: RunId, host: &Host) -> Result<(), Problem> {
    transaction.execute(
        "INSERT OR REPLACE INTO hosts (run, id, name, facts) VALUES (?1, ?2, ?3, ?4)",
        params![run.0, host.id, host.name, json(&host.facts)],
    )?;
    Ok(())
}

/// Returns an error if a process of another host adds to a run: the locks of a file that several hosts write are those of
/// its network file system, which may have none.
fn refuse_other_hosts(transaction: &Transaction<'_>, owner: &Owner) -> Result<(), Problem> {
    let now = now();
    let sql = format!("SELECT id, owner, heartbeat FROM runs WHERE finished_at IS NULL AND abs(heartbeat - ?1) < {ALIVE}");
    let alive = collect(transaction, &sql, now, |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    for (run, other, heartbeat) in alive {
        let other: Option<String> = other;
        let other = other.and_then(|text| text.parse::<Owner>().ok());
        if let Some(other) = other.filter(|other| !other.is_of_same_kernel(owner)) {
            return Err(Problem::OtherHost {
                run,
                host: other.host,
                seconds: now.saturating_sub(heartbeat).max(0) / 1000,
            });
        }
    }
    Ok(())
}

/// Makes `owner` the owner of an unfinished run; false if `before` was not.
pub fn take_over(
    connection: &mut Connection,
    run: RunId,
    before: Option<&str>,
    owner: &Owner,
    host: &Host,
) -> Result<bool, Problem> {
    let transaction = begin(connection)?;
    refuse_other_hosts(&transaction, owner)?;
    let changed = transaction.execute(
        "UPDATE runs SET owner = ?3, heartbeat = ?4 WHERE id = ?1 AND owner IS ?2 AND finished_at IS NULL",
        params![run.0, before, owner.to_string(), now()],
    )?;
    if changed == 1 {
        add_host(&transaction, run, host)?;
    }
    transaction.commit()?;
    Ok(changed == 1)
}

/// Says that the owner of a run still runs.
pub fn beat(connection: &mut Connection, run: RunId, owner: &str) -> Result<(), Problem> {
    let transaction = begin(connection)?;
    transaction.execute(
        "UPDATE runs SET heartbeat = ?2 WHERE id = ?1 AND owner = ?3 AND finished_at IS NULL",
        params![run.0, now(), owner],
    )?;
    Ok(transaction.commit()?)
}

/// Returns an error if another process has taken over the run of `owner`.
fn must_own(transaction: &Transaction<'_>, run: RunId, owner: Option<&str>) -> Result<(), Problem> {
    let Some(owner) = owner else {
        return Ok(());
    };
    let sql = "SELECT 1 FROM runs WHERE id = ?1 AND owner = ?2";
    let is_owner = transaction
        .prepare_cached(sql)?
        .exists(params![run.0, owner])?;
    if is_owner {
        Ok(())
    } else {
        Err(Problem::TakenOver(run.0))
    }
}

/// Says that the owner of a run has ended.
pub fn end_heartbeat(connection: &mut Connection, run: RunId, owner: &str) -> Result<(), Problem> {
    let transaction = begin(connection)?;
    let sql =
        "UPDATE runs SET heartbeat = NULL WHERE id = ?1 AND owner = ?2 AND finished_at IS NULL";
    transaction.execute(sql, params![run.0, owner])?;
    Ok(transaction.commit()?)
}

pub fn finish_run(
    connection: &mut Connection,
    run: RunId,
    owner: Option<&str>,
) -> Result<(), Problem> {
    let transaction = begin(connection)?;
    must_own(&transaction, run, owner)?;
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
    config: &Config,
    reason: &str,
) -> Result<(), Problem> {
    let transaction = begin(connection)?;
    must_exist(&transaction, run)?;
    skip(&transaction, run, config, reason)?;
    Ok(transaction.commit()?)
}

/// Stores a skip of a run that exists.
pub fn skip(
    transaction: &Transaction<'_>,
    run: RunId,
    config: &Config,
    reason: &str,
) -> Result<(), Problem> {
    transaction.execute(
        "INSERT INTO skips (run, environment, reason) VALUES (?1, ?2, ?3)",
        params![run.0, config.environment.name(), reason],
    )?;
    let skip = transaction.last_insert_rowid();
    settings::write(transaction, "skips", skip, &config.overrides)
}

pub fn add_observation(
    connection: &mut Connection,
    run: RunId,
    seen: &Observation,
    owner: Option<&str>,
) -> Result<(), Problem> {
    let transaction = begin(connection)?;
    must_exist(&transaction, run)?;
    must_own(&transaction, run, owner)?;
    if find(&transaction, run, seen)?.is_some() {
        return Err(Problem::Repeated {
            run: run.0,
            config: seen.config.to_string(),
            replicate: seen.replicate,
        });
    }
    add_boot(&transaction, run, seen)?;
    Ok(transaction.commit()?)
}

/// Returns the row of this boot in the run, if it has it: of a configuration, each host has one of a number. An index cannot
/// tell, since the settings are in columns of their own, and so are those of later formats.
pub fn find(
    transaction: &Transaction<'_>,
    run: RunId,
    seen: &Observation,
) -> Result<Option<i64>, Problem> {
    let sql =
        "SELECT * FROM boots WHERE run = ?1 AND environment = ?2 AND replicate = ?3 AND host = ?4";
    let mut statement = transaction.prepare_cached(sql)?;
    let environment = seen.config.environment.name();
    let mut rows = statement.query(params![run.0, environment, seen.replicate, seen.host])?;
    while let Some(row) = rows.next()? {
        if settings::read(row)? == seen.config.overrides {
            return Ok(Some(row.get("id")?));
        }
    }
    Ok(None)
}

/// Stores an observation of a run that exists.
pub fn add_boot(
    transaction: &Transaction<'_>,
    run: RunId,
    seen: &Observation,
) -> Result<(), Problem> {
    transaction.execute(
        "INSERT INTO boots (run, environment, clock, replicate, unit_per_tick, facts, log, host)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            run.0,
            seen.config.environment.name(),
            seen.clock.name(),
            seen.replicate,
            seen.unit_per_tick,
            json(&seen.facts),
            seen.log,
            seen.host
        ],
    )?;
    let boot = transaction.last_insert_rowid();
    settings::write(transaction, "boots", boot, &seen.config.overrides)?;
    for operation in &seen.operations {
        add_operation(transaction, boot, operation)?;
    }
    for launch in &seen.launches {
        add_launch(transaction, boot, launch)?;
    }
    for problem in &seen.problems {
        transaction
            .prepare_cached("INSERT INTO problems (boot, text) VALUES (?1, ?2)")?
            .execute(params![boot, problem])?;
    }
    Ok(())
}

fn add_operation(
    transaction: &Transaction<'_>,
    boot: i64,
    operation: &OperationResult,
) -> Result<(), Problem> {
    let path = operation.op.path();
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
        trials,
        ..
    } = &operation.outcome
    {
        add_measurement(transaction, id, &operation.outcome)?;
        let is_packed = operation.op.is_of(Workload::Block) && pack::are_requests(samples);
        if is_packed {
            let packed = pack::packed_requests(samples);
            add_packed(transaction, "requests", id, samples.len(), &packed)?;
        } else {
            add_samples(transaction, id, samples)?
        }
        if !interrupts.is_empty() {
            let packed = pack::packed(interrupts);
            add_packed(transaction, "interrupts", id, interrupts.len(), &packed)?;
        }
        packets::add(transaction, id, trials)?;
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
        idle,
        elapsed,
        ..
    } = outcome
    else {
        return Ok(());
    };
    transaction
        .prepare_cached(
            "UPDATE operations SET clock_cost = ?2, loop_cost = ?3, checksum = ?4, exits = ?5,
             host_cpu_ns = ?6, elapsed_ticks = ?7, elapsed_ns = ?8, idle_ticks = ?9, idle_bytes = ?10
             WHERE id = ?1",
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
            idle.map(|work| signed(work.ticks)),
            idle.map(|work| signed(work.bytes)),
        ])?;
    Ok(())
}

fn add_samples(
    transaction: &Transaction<'_>,
    operation: i64,
    samples: &[Sample],
) -> Result<(), Problem> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO samples (operation, number, start_tick, end_tick, count, host_ns, excluded)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for (number, sample) in samples.iter().enumerate() {
        insert.execute(params![
            operation,
            number as i64,
            signed(sample.start),
            signed(sample.end),
            signed(sample.count),
            sample.host_ns.map(signed),
            signed(sample.excluded),
        ])?;
    }
    Ok(())
}

/// Adds a row of table `interrupts` or `requests`.
fn add_packed(
    transaction: &Transaction<'_>,
    table: &str,
    operation: i64,
    count: usize,
    packed: &[u8],
) -> Result<(), Problem> {
    let sql = format!("INSERT INTO {table} (operation, count, packed) VALUES (?1, ?2, ?3)");
    transaction
        .prepare_cached(&sql)?
        .execute(params![operation, count as i64, packed])?;
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

/// Returns the milliseconds since 1970.
fn now() -> i64 {
    signed(time::now())
}
