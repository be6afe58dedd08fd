//! What formats before 32 had and this one has not: kernel builds and trials of packets in tables of their own, and
//! requests as words of a command line. Each is converted once, when its store is migrated.

mod request;
mod rows;

use crate::rows::collect;
use crate::Problem;
use rusqlite::Transaction;

/// Converts requests, builds and trials, and removes the tables of these.
pub fn convert(transaction: &Transaction<'_>) -> Result<(), Problem> {
    let runs = "SELECT id, request FROM runs WHERE id > ?1 ORDER BY id";
    let runs: Vec<(i64, String)> =
        collect(transaction, runs, 0, |row| Ok((row.get(0)?, row.get(1)?)))?;
    for (run, words) in runs {
        let request = request::parsed(&words);
        transaction.execute(
            "UPDATE runs SET request = ?2 WHERE id = ?1",
            (run, request.to_string()),
        )?;
        rows::convert_builds(transaction, run, &request)?;
        rows::convert_trials(transaction, run)?;
    }
    Ok(transaction.execute_batch("DROP TABLE builds; DROP TABLE trials;")?)
}
