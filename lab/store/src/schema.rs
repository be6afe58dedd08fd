//! Tables, formats and migrations.
//!
//! Unsigned 64-bit numbers are stored in SQLite's signed integers as two's complement. SQLite keeps the
//! comments in the tables: `sqlite3 FILE .schema` documents the file.

use crate::definitions::{self, Definitions};
use crate::{earlier, settings, Problem};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::sync::OnceLock;
use trapline_model::settings::store_format;

/// The format that this version writes (`PRAGMA user_version`).
pub const VERSION: i64 = if store_format() > WITH_HOSTS {
    store_format()
} else {
    WITH_HOSTS
};

/// The first format with interrupts.
const WITH_INTERRUPTS: i64 = 2;

/// The first format with requests to disks.
const WITH_REQUESTS: i64 = 3;

/// The first format with settings of boots, as text, and with owner and plan of a run.
const WITH_VARIANTS: i64 = 4;

/// The first format with kernel builds.
const WITH_BUILDS: i64 = 5;

/// The first format with trials of packets.
const WITH_TRIALS: i64 = 17;

/// The first format with work between batches.
const WITH_IDLE_WORK: i64 = 21;

/// The first format with the number of queues of a trial.
const WITH_QUEUES: i64 = 25;

/// The first format in which kernel builds and trials of packets are operations of boots, and a request is JSON.
const WITH_LONG_OPERATIONS: i64 = 32;

/// The first format with ticks of batches that are no part of a figure.
const WITH_EXCLUDED: i64 = 33;

/// The first format with the host of a boot, and with the identity and the last heartbeat of a run.
const WITH_HOSTS: i64 = 34;

/// Identifies a store (`PRAGMA application_id`): "TRPL".
const APPLICATION: i64 = 0x5452_504c;

/// The tables of format 1; those of [`settings::TABLES`] have a place for the columns of settings.
const TABLES: &str = "
CREATE TABLE runs (
    id          INTEGER PRIMARY KEY,
    started_at  INTEGER NOT NULL, -- milliseconds since 1970, UTC
    finished_at INTEGER,          -- NULL: going on, or interrupted
    seed        INTEGER NOT NULL, -- of the plan
    request     TEXT NOT NULL,    -- what was asked for, as JSON
    version     TEXT NOT NULL,    -- of Trapline
    facts       TEXT NOT NULL     -- of the host, a JSON object
);
CREATE TABLE skips (              -- environments that could not be booted
    id          INTEGER PRIMARY KEY,
    run         INTEGER NOT NULL REFERENCES runs,
    environment TEXT NOT NULL,
    reason      TEXT NOT NULL
    {settings}
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
    {settings}
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

/// Added to format 1. An operation has up to a million interrupts, so they are packed ([`crate::pack`]).
const INTERRUPTS: &str = "
CREATE TABLE interrupts (        -- of an operation of workload irq
    operation INTEGER PRIMARY KEY REFERENCES operations,
    count     INTEGER NOT NULL,
    packed    BLOB NOT NULL      -- pieces: length (2 bytes, little endian), then as
                                 -- many bytes of guest/abi/src/interrupt.rs
);
";

/// Added to format 2. An operation has up to some ten thousand requests.
const REQUESTS: &str = "
CREATE TABLE requests (          -- of an operation of workload block
    operation INTEGER PRIMARY KEY REFERENCES operations,
    count     INTEGER NOT NULL,
    packed    BLOB NOT NULL      -- pieces: length (2 bytes, little endian), then as
                                 -- many bytes of guest/abi/src/block.rs
);
";

/// Added to format 3: the settings of a boot, as `cpus=2,memory=1024M`; the process that adds to a run, so
/// that no other one does; and the text of the run's plan.
const VARIANTS: &str = "
ALTER TABLE runs ADD COLUMN owner TEXT;
ALTER TABLE runs ADD COLUMN plan TEXT;
ALTER TABLE boots ADD COLUMN variant TEXT NOT NULL DEFAULT '';
ALTER TABLE skips ADD COLUMN variant TEXT NOT NULL DEFAULT '';
";

/// Added to format 4, and gone since [`WITH_LONG_OPERATIONS`].
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

/// Added to format 16, and gone since [`WITH_LONG_OPERATIONS`].
const TRIALS: &str = "
CREATE TABLE trials (            -- of packets, of a run that has nothing else
    id            INTEGER PRIMARY KEY,
    run           INTEGER NOT NULL REFERENCES runs,
    round         INTEGER NOT NULL, -- which trial of its cell, from 0
    path          TEXT NOT NULL,    -- name of what forwards
    size          INTEGER NOT NULL, -- bytes of a frame, without checksum
    ring          TEXT NOT NULL,    -- split or packed
    direction     TEXT NOT NULL,    -- one, both or half
    purpose       TEXT NOT NULL,    -- maximum, half-load, given or search
    offered       REAL,             -- frames a second of each sender; NULL: as many as arrive
    outcome       TEXT NOT NULL,    -- done, skipped or failed
    reason        TEXT,             -- of a skip or failure; else NULL
    duration_ns   INTEGER,          -- time in which frames were sent; if done, as all that follows
    sent          INTEGER,          -- frames that were accepted
    refused       INTEGER,          -- frames that were due, but not accepted
    received      INTEGER,          -- frames that arrived
    damaged       INTEGER,
    ports_cpu_ns  INTEGER,          -- CPU time of the thread that sends and receives
    forwarder_cpu_ns INTEGER,       -- and of the forwarder; NULL: the kernel forwards
    kicks         INTEGER,          -- notifications to the forwarder
    calls         INTEGER,          -- and from it
    p50_ns        INTEGER,          -- latency; NULL with the maximum load
    p99_ns        INTEGER,
    max_ns        INTEGER,
    round_trip_ns REAL              -- of a cache line between both CPUs
);
CREATE INDEX trials_of_run ON trials (run);
";

/// Added to format 20: work of the guest between the batches of an operation, where there was any.
const IDLE_WORK: &str = "
ALTER TABLE operations ADD COLUMN idle_ticks INTEGER;
ALTER TABLE operations ADD COLUMN idle_bytes INTEGER;
";

/// Added to format 24: pairs of queues of each port.
const QUEUES: &str = "
ALTER TABLE trials ADD COLUMN queues INTEGER NOT NULL DEFAULT 1;
";

/// Added to format 31.
const PACKETS: &str = "
CREATE TABLE packets (           -- a trial of an operation of workload packets
    operation     INTEGER NOT NULL REFERENCES operations,
    number        INTEGER NOT NULL, -- from 0, in order of time
    offered       REAL,             -- frames a second of each sender; NULL: as many as arrive
    duration_ns   INTEGER NOT NULL, -- time in which frames were sent
    sent          INTEGER NOT NULL, -- frames that were accepted
    refused       INTEGER NOT NULL, -- frames that were due, but not accepted
    received      INTEGER NOT NULL, -- frames that arrived
    damaged       INTEGER NOT NULL,
    ports_cpu_ns  INTEGER NOT NULL, -- CPU time of the thread that sends and receives
    forwarder_cpu_ns INTEGER,       -- and of the forwarder; NULL: the kernel forwards
    kicks         INTEGER NOT NULL, -- notifications to the forwarder
    calls         INTEGER NOT NULL, -- and from it
    p50_ns        INTEGER,          -- latency; NULL with the maximum load
    p99_ns        INTEGER,
    max_ns        INTEGER,
    round_trip_ns REAL NOT NULL,    -- of a cache line between both CPUs
    PRIMARY KEY (operation, number)
) WITHOUT ROWID;
";

/// Added to format 32: ticks of a batch in which a simulated processor found the lengths of intercepted instructions.
const EXCLUDED: &str = "
ALTER TABLE samples ADD COLUMN excluded INTEGER NOT NULL DEFAULT 0;
";

/// Added to format 33. A boot of an earlier format has no host.
const HOSTS: &str = "
CREATE TABLE hosts (                -- of the boots of a run
    run   INTEGER NOT NULL REFERENCES runs,
    id    TEXT NOT NULL,            -- hexadecimal, from which the machine cannot be found
    name  TEXT NOT NULL,            -- that the user gave it, or empty
    facts TEXT NOT NULL,            -- a JSON object
    PRIMARY KEY (run, id)
) WITHOUT ROWID;
ALTER TABLE runs ADD COLUMN uuid TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN heartbeat INTEGER;
ALTER TABLE boots ADD COLUMN host TEXT NOT NULL DEFAULT '';
CREATE INDEX boots_of_config ON boots (run, environment, replicate);
";

/// Statements that add what a format before the first of each pair lacks.
const ADDED: [(i64, &str); 10] = [
    (WITH_INTERRUPTS, INTERRUPTS),
    (WITH_REQUESTS, REQUESTS),
    (WITH_VARIANTS, VARIANTS),
    (WITH_BUILDS, BUILDS),
    (WITH_TRIALS, TRIALS),
    (WITH_IDLE_WORK, IDLE_WORK),
    (WITH_QUEUES, QUEUES),
    (WITH_LONG_OPERATIONS, PACKETS),
    (WITH_EXCLUDED, EXCLUDED),
    (WITH_HOSTS, HOSTS),
];

/// Creates the tables of an empty file, migrates a store of an earlier format, and refuses other files.
pub fn prepare(connection: &mut Connection) -> Result<(), Problem> {
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
    // Another process may have created them before this one got the lock.
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if tables == 0 {
        // SQLite parses all definitions again for each column that is added later.
        transaction.execute_batch(&TABLES.replace("{settings}", &settings::definitions()))?;
        add_missing(&transaction, 1)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Returns every definition of every format. They are computed once for hundreds of stores.
fn known() -> Result<&'static Definitions, Problem> {
    static KNOWN: OnceLock<Definitions> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known);
    }
    let known = definitions::read(&reference()?)?;
    Ok(KNOWN.get_or_init(|| known))
}

/// Returns an empty store in memory with every definition of every format.
fn reference() -> Result<Connection, Problem> {
    let mut connection = Connection::open_in_memory()?;
    create(&mut connection)?;
    // Of formats 4 and 5, and of those before 32.
    connection.execute_batch(
        "ALTER TABLE boots ADD COLUMN variant TEXT NOT NULL DEFAULT '';
         ALTER TABLE skips ADD COLUMN variant TEXT NOT NULL DEFAULT '';
         ALTER TABLE boots ADD COLUMN again INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE skips ADD COLUMN again INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE runs ADD COLUMN keeper TEXT;",
    )?;
    for earlier in [BUILDS, TRIALS, QUEUES] {
        connection.execute_batch(earlier)?;
    }
    Ok(connection)
}

/// Returns whether a store has an earlier format than this version writes.
pub fn is_earlier(connection: &Connection) -> Result<bool, Problem> {
    Ok(pragma(connection, "user_version")? < VERSION)
}

/// Migrates a store of an earlier format.
pub fn migrate(connection: &mut Connection) -> Result<(), Problem> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have migrated it before this one got the lock.
    let found = pragma(&transaction, "user_version")?;
    add_missing(&transaction, found)?;
    transaction.commit()?;
    Ok(())
}

/// Adds what format `found` lacks, and sets the version.
fn add_missing(transaction: &Transaction<'_>, found: i64) -> Result<(), Problem> {
    for (_, added) in ADDED.iter().filter(|(with, _)| found < *with) {
        transaction.execute_batch(added)?;
    }
    if (WITH_VARIANTS..WITH_LONG_OPERATIONS).contains(&found) {
        transaction.execute_batch("ALTER TABLE runs RENAME COLUMN keeper TO owner")?;
    }
    settings::add_columns(transaction)?;
    if found < WITH_LONG_OPERATIONS {
        earlier::convert(transaction)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(())
}

/// Checks that the file is an undamaged store of a known format. Damage is searched for now rather than
/// found after a long run.
pub fn verify(connection: &mut Connection) -> Result<(), Problem> {
    let found = pragma(connection, "user_version")?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if found == 0 && tables == 0 {
        return Err(Problem::Empty);
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
    if found < 1 {
        return Err(Problem::Corrupt(format!("it is of format {found}")));
    }
    definitions::check(connection, known()?)?;
    let health: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if health == "ok" {
        Ok(())
    } else {
        Err(Problem::Corrupt(health))
    }
}

fn pragma(connection: &Connection, name: &str) -> Result<i64, Problem> {
    Ok(connection.pragma_query_value(None, name, |row| row.get(0))?)
}
