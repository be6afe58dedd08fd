//! The tables, and who may open them.
//!
//! Numbers of 64 bits without sign are stored in SQLite's integers of 64 bits
//! with sign by two's complement. The comments in the tables are kept by
//! SQLite: `sqlite3 FILE .schema` explains the file.

use crate::Problem;
use rusqlite::{Connection, TransactionBehavior};

/// The format that this version writes (`PRAGMA user_version`).
pub const VERSION: i64 = 5;

/// The first format that has interrupts.
const WITH_INTERRUPTS: i64 = 2;

/// The first format that has requests to disks.
const WITH_REQUESTS: i64 = 3;

/// The first format in which an environment may be there with several settings.
const WITH_VARIANTS: i64 = 4;

/// The first format that has kernel builds.
const WITH_BUILDS: i64 = 5;

/// Marks a database as ours (`PRAGMA application_id`): "TRPL".
const APPLICATION: i64 = 0x5452_504c;

const TABLES: &str = "
CREATE TABLE runs (
    id          INTEGER PRIMARY KEY,
    started_at  INTEGER NOT NULL, -- milliseconds since 1970, UTC
    finished_at INTEGER,          -- NULL: going on, or interrupted
    seed        INTEGER NOT NULL, -- of the plan
    request     TEXT NOT NULL,    -- what was asked for
    version     TEXT NOT NULL,    -- of Trapline
    facts       TEXT NOT NULL     -- of the host, a JSON object
);
CREATE TABLE skips (              -- environments that could not be booted
    id          INTEGER PRIMARY KEY,
    run         INTEGER NOT NULL REFERENCES runs,
    environment TEXT NOT NULL,
    reason      TEXT NOT NULL
);
CREATE TABLE boots (              -- one fresh start of an environment
    id            INTEGER PRIMARY KEY,
    run           INTEGER NOT NULL REFERENCES runs,
    environment   TEXT NOT NULL,
    clock         TEXT NOT NULL,    -- wall, insn or insn-vmx
    replicate     INTEGER NOT NULL, -- which boot of this environment, from 0
    unit_per_tick REAL NOT NULL,    -- nanoseconds or instructions per tick
    facts         TEXT NOT NULL,    -- of the environment, a JSON object
    log           TEXT NOT NULL     -- what the guest printed beside its records
);
CREATE INDEX boots_of_run ON boots (run);
CREATE TABLE operations (
    id            INTEGER PRIMARY KEY,
    boot          INTEGER NOT NULL REFERENCES boots,
    operation     TEXT NOT NULL, -- workload/name
    outcome       TEXT NOT NULL, -- measured, skipped or failed
    reason        TEXT,          -- of a skip or failure; else NULL
    clock_cost    INTEGER,       -- ticks of an empty batch; if measured
    loop_cost     INTEGER,       -- ticks of 1024 turns of the empty loop; if measured
    checksum      INTEGER,       -- of the work; if measured
    exits         INTEGER,       -- during the operation, where counted
    host_cpu_ns   INTEGER,       -- that the host spent on it, where known
    elapsed_ticks INTEGER,       -- first to last batch, guest's clock, where known
    elapsed_ns    INTEGER        -- the same by the host's clock
);
CREATE INDEX operations_of_boot ON operations (boot);
CREATE TABLE samples (           -- one batch
    operation   INTEGER NOT NULL REFERENCES operations,
    number      INTEGER NOT NULL, -- from 0, in order of time
    start_tick  INTEGER NOT NULL, -- guest's clock before
    end_tick    INTEGER NOT NULL, -- guest's clock after
    count       INTEGER NOT NULL, -- operations, or bytes for a rate
    host_ns     INTEGER,          -- when the host received it, since the guest's start
    PRIMARY KEY (operation, number)
) WITHOUT ROWID;
CREATE TABLE launches (          -- starts of a guest that were observed
    id   INTEGER PRIMARY KEY,
    boot INTEGER NOT NULL REFERENCES boots
);
CREATE INDEX launches_of_boot ON launches (boot);
CREATE TABLE stages (
    launch  INTEGER NOT NULL REFERENCES launches,
    stage   TEXT NOT NULL,
    reached INTEGER NOT NULL,    -- nanoseconds or instructions since exec
    PRIMARY KEY (launch, stage)
) WITHOUT ROWID;
CREATE TABLE counters (
    launch  INTEGER NOT NULL REFERENCES launches,
    counter TEXT NOT NULL,
    value   INTEGER NOT NULL,
    PRIMARY KEY (launch, counter)
) WITHOUT ROWID;
CREATE TABLE problems (          -- what went wrong without ending the boot
    id   INTEGER PRIMARY KEY,
    boot INTEGER NOT NULL REFERENCES boots,
    text TEXT NOT NULL
);
CREATE INDEX problems_of_boot ON problems (boot);
";

/// What was added to format 1. Interrupts are up to a million an operation, so they are
/// packed: see [`crate::pack`].
const INTERRUPTS: &str = "
CREATE TABLE interrupts (        -- of an operation of workload irq
    operation INTEGER PRIMARY KEY REFERENCES operations,
    count     INTEGER NOT NULL,
    packed    BLOB NOT NULL      -- pieces: length (2 bytes, little endian), then as
                                 -- many bytes of guest/abi/src/interrupt.rs
);
";

/// What was added to format 2. Requests are up to some ten thousand an operation.
const REQUESTS: &str = "
CREATE TABLE requests (          -- of an operation of workload block
    operation INTEGER PRIMARY KEY REFERENCES operations,
    count     INTEGER NOT NULL,
    packed    BLOB NOT NULL      -- pieces: length (2 bytes, little endian), then as
                                 -- many bytes of guest/abi/src/block.rs
);
";

/// What was added to format 3: how a contender differs from its environment as it usually
/// is, as `cpus=2,memory=1024M`; which process adds to a run, so that another one knows
/// whether it may; and the plan that a run is of, as it was written.
const VARIANTS: &str = "
ALTER TABLE runs ADD COLUMN keeper TEXT;
ALTER TABLE runs ADD COLUMN plan TEXT;
ALTER TABLE boots ADD COLUMN variant TEXT NOT NULL DEFAULT '';
ALTER TABLE skips ADD COLUMN variant TEXT NOT NULL DEFAULT '';
";

/// What was added to format 4. A build is no boot: it is one long run, and its conditions are
/// columns of a table.
const BUILDS: &str = "
CREATE TABLE builds (            -- of a kernel, of a run that has nothing else
    id          INTEGER PRIMARY KEY,
    run         INTEGER NOT NULL REFERENCES runs,
    round       INTEGER NOT NULL, -- which build of its cell, from 0
    environment TEXT NOT NULL,
    cpus        INTEGER NOT NULL, -- virtual CPUs, and jobs for make
    place       TEXT NOT NULL,    -- where those are: same or disjoint
    outcome     TEXT NOT NULL,    -- done, skipped or failed
    reason      TEXT,             -- of a skip or failure; else NULL
    own_ns      INTEGER,          -- nanoseconds by the clock of its Linux; if done
    took        INTEGER,          -- nanoseconds or instructions of its environment; if done
    objects     INTEGER,          -- files that were made; if done
    proof       TEXT,             -- hash of their symbols; if done
    facts       TEXT NOT NULL     -- of environment and sources, a JSON object
);
CREATE INDEX builds_of_run ON builds (run);
";

/// What has to be added to a format before the first of each pair.
const ADDED: [(i64, &str); 4] = [
    (WITH_INTERRUPTS, INTERRUPTS),
    (WITH_REQUESTS, REQUESTS),
    (WITH_VARIANTS, VARIANTS),
    (WITH_BUILDS, BUILDS),
];

/// Makes the tables where there are none, and refuses what is not ours.
pub fn prepare(connection: &mut Connection) -> Result<(), Problem> {
    // Nothing has to be waited for in a store that is there already.
    if pragma(connection, "user_version")? == 0 {
        create(connection)?;
    }
    verify(connection)?;
    if pragma(connection, "user_version")? < VERSION {
        migrate(connection)?;
    }
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(())
}

fn create(connection: &mut Connection) -> Result<(), Problem> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another may have been here while we waited for the lock.
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if tables == 0 {
        transaction.execute_batch(TABLES)?;
        for (_, added) in ADDED {
            transaction.execute_batch(added)?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Adds what an earlier format has not. Nothing that is there is touched.
fn migrate(connection: &mut Connection) -> Result<(), Problem> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another may have been here while we waited for the lock.
    let found = pragma(&transaction, "user_version")?;
    for (_, added) in ADDED.iter().filter(|(with, _)| found < *with) {
        transaction.execute_batch(added)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(())
}

/// Whether the store has interrupts: one of an earlier format that was only opened to
/// be read has not.
pub fn has_interrupts(connection: &Connection) -> Result<bool, Problem> {
    Ok(pragma(connection, "user_version")? >= WITH_INTERRUPTS)
}

/// Whether the store has requests to disks: the same.
pub fn has_requests(connection: &Connection) -> Result<bool, Problem> {
    Ok(pragma(connection, "user_version")? >= WITH_REQUESTS)
}

/// Whether the store has kernel builds: the same.
pub fn has_builds(connection: &Connection) -> Result<bool, Problem> {
    Ok(pragma(connection, "user_version")? >= WITH_BUILDS)
}

/// How many builds of a run were tried, as an expression of its query.
pub fn builds_of_run(connection: &Connection) -> Result<&'static str, Problem> {
    Ok(if has_builds(connection)? {
        "(SELECT count(*) FROM builds WHERE run = runs.id AND outcome <> 'skipped')"
    } else {
        "0"
    })
}

/// Whether this is a store, undamaged, and of a format that we know. Damage is
/// looked for now, because after a long run is a bad time to find it.
pub fn verify(connection: &mut Connection) -> Result<(), Problem> {
    let found = pragma(connection, "user_version")?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if found == 0 && tables == 0 {
        return Err(Problem::Corrupt("it is empty".into()));
    }
    if pragma(connection, "application_id")? != APPLICATION {
        return Err(Problem::Foreign);
    }
    if found > VERSION {
        return Err(Problem::Newer {
            found,
            known: VERSION,
        });
    }
    let health: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if health == "ok" {
        Ok(())
    } else {
        Err(Problem::Corrupt(health))
    }
}

/// The column in which a table of the store has the variant, or what stands for it.
pub fn variant_column(connection: &Connection) -> Result<&'static str, Problem> {
    Ok(if has_variants(connection)? {
        "variant"
    } else {
        "''"
    })
}

/// The columns in which a run has its keeper and its plan, or what stands for them.
pub fn keeper_and_plan(connection: &Connection) -> Result<&'static str, Problem> {
    Ok(if has_variants(connection)? {
        "keeper, plan"
    } else {
        "NULL, NULL"
    })
}

fn has_variants(connection: &Connection) -> Result<bool, Problem> {
    Ok(pragma(connection, "user_version")? >= WITH_VARIANTS)
}

fn pragma(connection: &Connection, name: &str) -> Result<i64, Problem> {
    Ok(connection.pragma_query_value(None, name, |row| row.get(0))?)
}
