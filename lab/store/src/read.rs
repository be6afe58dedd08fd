//! Rows -> observations.
//!
//! A file that passes SQLite's checks can still hold invalid values, if it was edited. They are reported as
//! damage.

use crate::rows::{collect, damage, environment, facts, unsigned};
use crate::{earlier, pack, packets, settings, Problem, Run, RunId, RunInfo};
use rusqlite::{Connection, OptionalExtension, Row};
use std::collections::BTreeMap;
use trapline_abi::{Counter, Interrupt, Stage, Workload};
use trapline_model::observed::IdleWork;
use trapline_model::{
    Clock, Config, Host, Launch, Observation, Operation, OperationResult, Outcome, RecordedRequest,
    Sample,
};

/// The query for runs.
const RUNS: &str = "SELECT id, started_at, finished_at, seed, request, version, facts,
    (SELECT count(*) FROM boots WHERE run = runs.id), owner, plan, uuid, heartbeat FROM runs";

pub fn runs(connection: &Connection) -> Result<Vec<RunInfo>, Problem> {
    let mut statement = connection.prepare_cached(&format!("{RUNS} ORDER BY id"))?;
    let mut rows = statement.query([])?;
    let mut runs = Vec::new();
    while let Some(row) = rows.next()? {
        runs.push(run_info(row)?);
    }
    Ok(runs)
}

pub fn load(connection: &mut Connection, run: RunId) -> Result<Run, Problem> {
    // A consistent view while another process adds to the file.
    let view = connection.transaction()?;
    let info = view
        .query_row(&format!("{RUNS} WHERE id = ?1"), [run.0], |row| {
            Ok(run_info(row))
        })
        .optional()?
        .ok_or(Problem::NoSuchRun(run.0))??;
    name_environments(&view, run)?;
    Ok(Run {
        info,
        observations: observations(&view, run)?,
        skips: skips(&view, run)?,
        hosts: hosts(&view, run)?,
    })
}

/// Returns the known hosts of the boots of a run, by their ids.
fn hosts(connection: &Connection, run: RunId) -> Result<BTreeMap<String, Host>, Problem> {
    let sql = "SELECT id, name, facts FROM hosts WHERE run = ?1 ORDER BY id";
    let hosts = collect(connection, sql, run.0, |row| {
        let id: String = row.get(0)?;
        let host = Host {
            id: id.clone(),
            name: row.get(1)?,
            facts: facts(&row.get::<_, String>(2)?)?,
        };
        Ok((id, host))
    })?;
    Ok(hosts.into_iter().collect())
}

/// Gives VMMs that are not defined here their places in tables: by name, as plans define them, not by their first boot,
/// which is random.
fn name_environments(connection: &Connection, run: RunId) -> Result<(), Problem> {
    let sql = "SELECT environment FROM boots WHERE run = ?1
               UNION SELECT environment FROM skips WHERE run = ?1 ORDER BY environment";
    collect(connection, sql, run.0, |row| environment(row.get(0)?))?;
    Ok(())
}

fn run_info(row: &Row<'_>) -> Result<RunInfo, Problem> {
    Ok(RunInfo {
        id: RunId(row.get(0)?),
        started_at: unsigned(row.get(1)?),
        finished_at: row.get::<_, Option<i64>>(2)?.map(unsigned),
        seed: unsigned(row.get(3)?),
        request: request(&row.get::<_, String>(4)?),
        version: row.get(5)?,
        facts: facts(&row.get::<_, String>(6)?)?,
        boots: unsigned(row.get(7)?),
        owner: row.get(8)?,
        plan: row.get(9)?,
        uuid: row.get(10)?,
        heartbeat: row.get::<_, Option<i64>>(11)?.map(unsigned),
    })
}

/// Returns a request; what is none is kept as its text.
fn request(text: &str) -> RecordedRequest {
    RecordedRequest::parse(text).unwrap_or_else(|| earlier::parsed(text))
}

/// Returns the boots of a run: configuration and replicate.
pub fn booted(connection: &Connection, run: RunId) -> Result<Vec<(Config, u32)>, Problem> {
    let sql = "SELECT * FROM boots WHERE run = ?1 ORDER BY id";
    collect(connection, sql, run.0, |row| {
        Ok((config(row)?, row.get("replicate")?))
    })
}

fn skips(connection: &Connection, run: RunId) -> Result<Vec<(Config, String)>, Problem> {
    let sql = "SELECT * FROM skips WHERE run = ?1 ORDER BY id";
    collect(connection, sql, run.0, |row| {
        Ok((config(row)?, row.get("reason")?))
    })
}

/// Reads the configuration of a row with all columns of its table.
fn config(row: &Row<'_>) -> Result<Config, Problem> {
    Ok(Config {
        environment: environment(row.get("environment")?)?,
        overrides: settings::read(row)?,
    })
}

fn observations(connection: &Connection, run: RunId) -> Result<Vec<Observation>, Problem> {
    let sql = "SELECT * FROM boots WHERE run = ?1 ORDER BY id";
    collect(connection, sql, run.0, |row| observation(connection, row))
}

/// Returns the boot of a row that exists.
pub fn boot(connection: &Connection, id: i64) -> Result<Observation, Problem> {
    let sql = "SELECT * FROM boots WHERE id = ?1";
    let found = collect(connection, sql, id, |row| observation(connection, row))?;
    let boot = found.into_iter().next();
    boot.ok_or_else(|| damage("boot", &id.to_string()))
}

fn observation(connection: &Connection, row: &Row<'_>) -> Result<Observation, Problem> {
    let boot: i64 = row.get("id")?;
    Ok(Observation {
        config: config(row)?,
        clock: clock(row.get("clock")?)?,
        replicate: row.get("replicate")?,
        unit_per_tick: row.get("unit_per_tick")?,
        operations: operations(connection, boot)?,
        launches: launches(connection, boot)?,
        facts: facts(&row.get::<_, String>("facts")?)?,
        log: row.get("log")?,
        problems: problems(connection, boot)?,
        host: row.get("host")?,
    })
}

/// Results of a boot, at most: more than any has, and reports compare each with each.
const MOST_RESULTS: i64 = 20_000;

fn operations(connection: &Connection, boot: i64) -> Result<Vec<OperationResult>, Problem> {
    let count = "SELECT count(*) FROM operations WHERE boot = ?1";
    let count: i64 = connection
        .prepare_cached(count)?
        .query_row([boot], |row| row.get(0))?;
    if count > MOST_RESULTS {
        return Err(Problem::Corrupt(format!(
            "a boot of it has {count} results"
        )));
    }
    let sql = "SELECT id, operation, outcome, reason, clock_cost, loop_cost, checksum, exits, host_cpu_ns, elapsed_ticks,
         elapsed_ns, idle_ticks, idle_bytes FROM operations WHERE boot = ?1 ORDER BY id";
    collect(connection, sql, boot, |row| {
        let path: String = row.get(1)?;
        let op = Operation::from_path(&path).ok_or_else(|| damage("operation", &path))?;
        Ok(OperationResult {
            op,
            outcome: outcome(connection, op, row)?,
        })
    })
}

fn outcome(connection: &Connection, op: Operation, row: &Row<'_>) -> Result<Outcome, Problem> {
    let optional = |column: usize| -> Result<Option<u64>, Problem> {
        Ok(row.get::<_, Option<i64>>(column)?.map(unsigned))
    };
    let number = |column: usize| -> Result<u64, Problem> { Ok(unsigned(row.get(column)?)) };
    let kind: String = row.get(2)?;
    Ok(match kind.as_str() {
        "skipped" => Outcome::Skipped(row.get(3)?),
        "failed" => Outcome::Failed(row.get(3)?),
        "measured" => Outcome::Measured {
            clock_cost: number(4)?,
            loop_cost: number(5)?,
            samples: match samples(connection, row.get(0)?)? {
                none if none.is_empty() && op.is_of(Workload::Block) => {
                    requests(connection, row.get(0)?)?
                }
                samples => samples,
            },
            interrupts: interrupts(connection, row.get(0)?)?,
            trials: match op {
                Operation::Packets(_) => packets::of(connection, row.get(0)?)?,
                Operation::Guest(_) | Operation::Build(_) => Vec::new(),
            },
            check: number(6)?,
            exits: optional(7)?,
            host_cpu_ns: optional(8)?,
            idle: optional(11)?
                .zip(optional(12)?)
                .map(|(ticks, bytes)| IdleWork { ticks, bytes }),
            elapsed: optional(9)?.zip(optional(10)?),
        },
        _ => return Err(damage("outcome", &kind)),
    })
}

fn samples(connection: &Connection, operation: i64) -> Result<Vec<Sample>, Problem> {
    let sql = "SELECT start_tick, end_tick, count, host_ns, excluded
               FROM samples WHERE operation = ?1 ORDER BY number";
    collect(connection, sql, operation, |row| {
        Ok(Sample {
            start: unsigned(row.get(0)?),
            end: unsigned(row.get(1)?),
            count: unsigned(row.get(2)?),
            host_ns: row.get::<_, Option<i64>>(3)?.map(unsigned),
            excluded: unsigned(row.get(4)?),
        })
    })
}

fn interrupts(connection: &Connection, operation: i64) -> Result<Vec<Interrupt>, Problem> {
    let sql = "SELECT count, packed FROM interrupts WHERE operation = ?1";
    packed(connection, sql, operation, "interrupts", pack::unpacked)
}

fn requests(connection: &Connection, operation: i64) -> Result<Vec<Sample>, Problem> {
    let sql = "SELECT count, packed FROM requests WHERE operation = ?1";
    packed(
        connection,
        sql,
        operation,
        "requests",
        pack::unpacked_requests,
    )
}

/// Unpacks the only row of a query, if there is one.
fn packed<T>(
    connection: &Connection,
    sql: &str,
    operation: i64,
    what: &str,
    unpack: impl Fn(&[u8]) -> Option<Vec<T>>,
) -> Result<Vec<T>, Problem> {
    let found = collect(connection, sql, operation, |row| {
        let (count, packed): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        unpack(&packed)
            .filter(|all| all.len() as i64 == count)
            .ok_or_else(|| Problem::Corrupt(format!("{what} in it are damaged")))
    })?;
    Ok(found.into_iter().next().unwrap_or_default())
}

fn launches(connection: &Connection, boot: i64) -> Result<Vec<Launch>, Problem> {
    let sql = "SELECT id FROM launches WHERE boot = ?1 ORDER BY id";
    collect(connection, sql, boot, |row| {
        let launch = row.get(0)?;
        let stages = "SELECT stage, reached FROM stages WHERE launch = ?1";
        let counters = "SELECT counter, value FROM counters WHERE launch = ?1";
        Ok(Launch {
            timeline: named(connection, stages, launch, |name| {
                Stage::ALL.into_iter().find(|stage| stage.name() == name)
            })?,
            counters: named(connection, counters, launch, |name| {
                Counter::ALL
                    .into_iter()
                    .find(|counter| counter.name() == name)
            })?,
        })
    })
}

/// Reads numbers with the names of their keys.
fn named<K: Ord>(
    connection: &Connection,
    sql: &str,
    of: i64,
    find: impl Fn(&str) -> Option<K>,
) -> Result<BTreeMap<K, u64>, Problem> {
    let pairs = collect(connection, sql, of, |row| {
        let name: String = row.get(0)?;
        let key = find(&name).ok_or_else(|| damage("name", &name))?;
        Ok((key, unsigned(row.get(1)?)))
    })?;
    Ok(pairs.into_iter().collect())
}

fn problems(connection: &Connection, boot: i64) -> Result<Vec<String>, Problem> {
    let sql = "SELECT text FROM problems WHERE boot = ?1 ORDER BY id";
    collect(connection, sql, boot, |row| Ok(row.get(0)?))
}

fn clock(name: String) -> Result<Clock, Problem> {
    Clock::ALL
        .into_iter()
        .find(|clock| clock.name() == name)
        .ok_or_else(|| damage("clock", &name))
}
