//! Trials of packets <-> rows.

use crate::rows::{begin, collect, damage, must_exist, signed, unsigned};
use crate::{schema, Problem, RunId};
use rusqlite::{params, Connection, Row};
use trapline_model::packets::{
    Direction, Frames, Latency, PlannedTrial, Purpose, Ring, Trial, TrialFigures, TrialOutcome,
};

/// Stores a trial, in one transaction.
pub fn add(connection: &mut Connection, run: RunId, trial: &Trial) -> Result<(), Problem> {
    let transaction = begin(connection)?;
    must_exist(&transaction, run)?;
    let Trial {
        planned,
        purpose,
        offered,
        ..
    } = trial;
    let (outcome, reason, done) = match &trial.outcome {
        TrialOutcome::Done(done) => ("done", None, Some(done)),
        TrialOutcome::Skipped(reason) => ("skipped", Some(reason), None),
        TrialOutcome::Failed(reason) => ("failed", Some(reason), None),
    };
    let count = |count: fn(&TrialFigures) -> u64| done.map(|done| signed(count(done)));
    let latency = done.and_then(|done| done.latency);
    transaction.execute(
        "INSERT INTO trials (run, round, path, size, ring, queues, direction, purpose, offered, outcome, reason,
                             duration_ns, sent, refused, received, damaged, ports_cpu_ns,
                             forwarder_cpu_ns, kicks, calls, p50_ns, p99_ns, max_ns, round_trip_ns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
                 ?19, ?20, ?21, ?22, ?23, ?24)",
        params![
            run.0,
            planned.round,
            planned.path,
            planned.frames.size,
            planned.frames.ring.name(),
            planned.frames.queues,
            planned.frames.direction.name(),
            purpose.name(),
            offered,
            outcome,
            reason,
            count(|it| it.duration_ns),
            count(|it| it.sent),
            count(|it| it.refused),
            count(|it| it.received),
            count(|it| it.damaged),
            count(|it| it.ports_cpu_ns),
            done.and_then(|done| done.forwarder_cpu_ns).map(signed),
            count(|it| it.kicks),
            count(|it| it.calls),
            latency.map(|it| signed(it.p50)),
            latency.map(|it| signed(it.p99)),
            latency.map(|it| signed(it.max)),
            done.map(|done| done.round_trip_ns),
        ],
    )?;
    Ok(transaction.commit()?)
}

/// Returns the trials of a run, in the order in which they were stored.
pub fn of(connection: &Connection, run: RunId) -> Result<Vec<Trial>, Problem> {
    if !schema::has_trials(connection)? {
        return Ok(Vec::new());
    }
    let columns = schema::columns_of_trial(connection)?;
    let sql = format!("SELECT {columns} FROM trials WHERE run = ?1 ORDER BY id");
    collect(connection, &sql, run.0, |row| {
        let frames = Frames {
            size: row.get("size")?,
            ring: named(row, "ring", Ring::from_name)?,
            queues: row.get("queues")?,
            direction: named(row, "direction", Direction::from_name)?,
        };
        Ok(Trial {
            planned: PlannedTrial {
                round: row.get("round")?,
                path: row.get("path")?,
                frames,
            },
            purpose: named(row, "purpose", Purpose::from_name)?,
            offered: row.get("offered")?,
            outcome: outcome(row)?,
        })
    })
}

fn named<T>(
    row: &Row<'_>,
    column: &str,
    from_name: impl Fn(&str) -> Option<T>,
) -> Result<T, Problem> {
    let name: String = row.get(column)?;
    from_name(&name).ok_or_else(|| damage(column, &name))
}

fn outcome(row: &Row<'_>) -> Result<TrialOutcome, Problem> {
    let kind: String = row.get("outcome")?;
    Ok(match kind.as_str() {
        "skipped" => TrialOutcome::Skipped(row.get("reason")?),
        "failed" => TrialOutcome::Failed(row.get("reason")?),
        "done" => TrialOutcome::Done(figures(row)?),
        _ => return Err(damage("outcome", &kind)),
    })
}

fn figures(row: &Row<'_>) -> Result<TrialFigures, Problem> {
    let optional = |column: &str| -> Result<Option<u64>, Problem> {
        Ok(row.get::<_, Option<i64>>(column)?.map(unsigned))
    };
    let count = |column: &str| -> Result<u64, Problem> { Ok(unsigned(row.get(column)?)) };
    let latency = match (
        optional("p50_ns")?,
        optional("p99_ns")?,
        optional("max_ns")?,
    ) {
        (Some(p50), Some(p99), Some(max)) => Some(Latency { p50, p99, max }),
        _ => None,
    };
    Ok(TrialFigures {
        duration_ns: count("duration_ns")?,
        sent: count("sent")?,
        refused: count("refused")?,
        received: count("received")?,
        damaged: count("damaged")?,
        ports_cpu_ns: count("ports_cpu_ns")?,
        forwarder_cpu_ns: optional("forwarder_cpu_ns")?,
        kicks: count("kicks")?,
        calls: count("calls")?,
        latency,
        round_trip_ns: row.get("round_trip_ns")?,
    })
}
