//! Values of columns, and queries of several rows.
//!
//! Unsigned numbers are stored as two's complement.

use crate::{Problem, RunId};
use rusqlite::{Connection, Row, Transaction, TransactionBehavior};
use std::collections::BTreeMap;
use trapline_model::EnvironmentId;

/// Calls `read` for every row of `sql` with `parameter`.
pub fn collect<T>(
    connection: &Connection,
    sql: &str,
    parameter: i64,
    mut read: impl FnMut(&Row<'_>) -> Result<T, Problem>,
) -> Result<Vec<T>, Problem> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([parameter])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

pub fn environment(name: String) -> Result<EnvironmentId, Problem> {
    EnvironmentId::from_recorded(&name).ok_or_else(|| damage("environment", &name))
}

pub fn facts(json: &str) -> Result<BTreeMap<String, String>, Problem> {
    serde_json::from_str(json).map_err(|_| damage("facts", json))
}

pub fn damage(what: &str, text: &str) -> Problem {
    let text: String = text.chars().take(40).collect();
    Problem::Corrupt(format!("it holds an unknown {what} '{text}'"))
}

pub fn unsigned(value: i64) -> u64 {
    value as u64
}

/// Takes the write lock at once, so that the busy timeout bounds the wait and no later statement waits.
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

pub fn signed(value: u64) -> i64 {
    value as i64
}

pub fn json(facts: &BTreeMap<String, String>) -> String {
    serde_json::to_value(facts).unwrap_or_default().to_string()
}
