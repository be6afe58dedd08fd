//! Migration from formats before 32, which had kernel builds and trials of packets in tables of their own, and
//! requests as words of a command line. Each is converted once, when its store is migrated.

mod request;
mod rows;

pub use request::parsed;

use crate::rows::{collect, facts, json};
use crate::Problem;
use rusqlite::Transaction;
use std::collections::BTreeMap;
use trapline_model::observed::HOST_NOISE;
use trapline_model::{irq, RecordedRequest};

/// Start of the names of facts about noise of the host, before [`HOST_NOISE`].
const EARLIER_HOST_NOISE: &str = "unrest-";

/// Converts requests, builds and trials, and removes the tables of these.
pub fn convert(transaction: &Transaction<'_>) -> Result<(), Problem> {
    let runs = "SELECT id, request, facts FROM runs WHERE id >= ?1 ORDER BY id";
    let runs: Vec<(i64, String, String)> = collect(transaction, runs, i64::MIN, |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    for (run, words, of_run) in runs {
        let mut request = request::parsed(&words);
        complete(&mut request, &facts(&of_run)?);
        transaction.execute(
            "UPDATE runs SET request = ?2 WHERE id = ?1",
            (run, request.to_string()),
        )?;
        rows::convert_builds(transaction, run, &request)?;
        rows::convert_trials(transaction, run)?;
    }
    rename_facts(transaction)?;
    Ok(transaction.execute_batch("DROP TABLE builds; DROP TABLE trials;")?)
}

fn rename_facts(transaction: &Transaction<'_>) -> Result<(), Problem> {
    let boots = "SELECT id, facts FROM boots WHERE id >= ?1 AND facts LIKE '%\"unrest-%'";
    let boots: Vec<(i64, String)> = collect(transaction, boots, i64::MIN, |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    for (boot, text) in boots {
        let renamed = facts(&text)?.into_iter().map(|(name, value)| {
            match name.strip_prefix(EARLIER_HOST_NOISE) {
                Some(kind) => (format!("{HOST_NOISE}{kind}"), value),
                None => (name, value),
            }
        });
        let renamed: BTreeMap<_, _> = renamed.collect();
        transaction.execute(
            "UPDATE boots SET facts = ?2 WHERE id = ?1",
            (boot, json(&renamed)),
        )?;
    }
    Ok(())
}

/// Adds the settings of workload irq that words did not have: those of the formats before it could be set.
fn complete(request: &mut RecordedRequest, facts: &BTreeMap<String, String>) {
    if request.unparsed.is_some() || !request.guest_operations().intersects(irq::operations()) {
        return;
    }
    let known = irq::Settings::from_facts(facts).facts();
    for (name, value) in known {
        let name = name.trim_start_matches("irq-").to_owned();
        request.irq.entry(name).or_insert(value);
    }
}
