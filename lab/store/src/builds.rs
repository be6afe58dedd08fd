//! Kernel builds <-> rows.

use crate::rows::{begin, collect, damage, environment, facts, json, must_exist, signed, unsigned};
use crate::{schema, Problem, RunId};
use rusqlite::{params, Connection, Row};
use trapline_model::kernel_build::{
    Build, BuildFigures, BuildOutcome, Column, Place, PlannedBuild,
};

/// Stores a build, in one transaction.
pub fn add(connection: &mut Connection, run: RunId, build: &Build) -> Result<(), Problem> {
    let transaction = begin(connection)?;
    must_exist(&transaction, run)?;
    let PlannedBuild {
        round,
        environment,
        column,
    } = build.planned;
    let (outcome, reason, done) = match &build.outcome {
        BuildOutcome::Done(done) => ("done", None, Some(done)),
        BuildOutcome::Skipped(reason) => ("skipped", Some(reason), None),
        BuildOutcome::Failed(reason) => ("failed", Some(reason), None),
    };
    transaction.execute(
        "INSERT INTO builds (run, round, environment, cpus, place, outcome, reason, own_ns,
                             took, objects, proof, facts)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            run.0,
            round,
            environment.name(),
            column.cpus,
            column.place.name(),
            outcome,
            reason,
            done.map(|done| signed(done.own_ns)),
            done.map(|done| signed(done.took)),
            done.map(|done| done.objects),
            done.map(|done| &done.proof),
            json(&build.facts)
        ],
    )?;
    Ok(transaction.commit()?)
}

/// Returns the builds of a run, in the order in which they were stored.
pub fn of(connection: &Connection, run: RunId) -> Result<Vec<Build>, Problem> {
    if !schema::has_builds(connection)? {
        return Ok(Vec::new());
    }
    let sql = "SELECT round, environment, cpus, place, facts, outcome, reason, own_ns, took,
               objects, proof FROM builds WHERE run = ?1 ORDER BY id";
    collect(connection, sql, run.0, |row| {
        Ok(Build {
            planned: PlannedBuild {
                round: row.get(0)?,
                environment: environment(row.get(1)?)?,
                column: Column {
                    cpus: row.get(2)?,
                    place: place(&row.get::<_, String>(3)?)?,
                },
            },
            facts: facts(&row.get::<_, String>(4)?)?,
            outcome: outcome(row)?,
        })
    })
}

fn outcome(row: &Row<'_>) -> Result<BuildOutcome, Problem> {
    let kind: String = row.get(5)?;
    Ok(match kind.as_str() {
        "skipped" => BuildOutcome::Skipped(row.get(6)?),
        "failed" => BuildOutcome::Failed(row.get(6)?),
        "done" => BuildOutcome::Done(BuildFigures {
            own_ns: unsigned(row.get(7)?),
            took: unsigned(row.get(8)?),
            objects: row.get(9)?,
            proof: row.get(10)?,
        }),
        _ => return Err(damage("outcome", &kind)),
    })
}

fn place(name: &str) -> Result<Place, Problem> {
    Place::from_name(name).ok_or_else(|| damage("place", name))
}
