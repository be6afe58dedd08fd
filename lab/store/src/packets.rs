//! Trials of packets <-> rows.

use crate::rows::{collect, signed, unsigned};
use crate::Problem;
use rusqlite::{params, Connection, Row, Transaction};
use trapline_model::packets::{Latency, Trial};

/// Stores the trials of an operation, in order of time.
pub fn add(transaction: &Transaction<'_>, operation: i64, trials: &[Trial]) -> Result<(), Problem> {
    for (number, trial) in trials.iter().enumerate() {
        let latency = |of: fn(&Latency) -> u64| trial.latency.as_ref().map(of).map(signed);
        transaction
            .prepare_cached(
                "INSERT INTO packets (operation, number, offered, duration_ns, sent, refused, received, damaged,
                                      ports_cpu_ns, forwarder_cpu_ns, kicks, calls, p50_ns, p99_ns, max_ns,
                                      round_trip_ns)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
            )?
            .execute(params![
                operation,
                number as i64,
                trial.offered,
                signed(trial.duration_ns),
                signed(trial.sent),
                signed(trial.refused),
                signed(trial.received),
                signed(trial.damaged),
                signed(trial.ports_cpu_ns),
                trial.forwarder_cpu_ns.map(signed),
                signed(trial.kicks),
                signed(trial.calls),
                latency(|it| it.p50),
                latency(|it| it.p99),
                latency(|it| it.max),
                trial.round_trip_ns,
            ])?;
    }
    Ok(())
}

/// Returns the trials of an operation, in order of time.
pub fn of(connection: &Connection, operation: i64) -> Result<Vec<Trial>, Problem> {
    let sql = "SELECT * FROM packets WHERE operation = ?1 ORDER BY number";
    collect(connection, sql, operation, trial)
}

/// Reads a trial from a row with its columns.
pub fn trial(row: &Row<'_>) -> Result<Trial, Problem> {
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
    Ok(Trial {
        offered: row.get("offered")?,
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
