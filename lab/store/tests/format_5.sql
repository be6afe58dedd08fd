-- A store of format 5, as trapline 0.1.0 wrote it.
PRAGMA foreign_keys = OFF;
PRAGMA application_id = 1414680652;
PRAGMA user_version = 5;
BEGIN TRANSACTION;
CREATE TABLE boots (              -- one fresh start of an environment
    id            INTEGER PRIMARY KEY,
    run           INTEGER NOT NULL REFERENCES runs,
    environment   TEXT NOT NULL,
    clock         TEXT NOT NULL,    -- wall, insn or insn-vmx
    replicate     INTEGER NOT NULL, -- which boot of this environment, from 0
    unit_per_tick REAL NOT NULL,    -- nanoseconds or instructions per tick
    facts         TEXT NOT NULL,    -- of the environment, a JSON object
    log           TEXT NOT NULL     -- what the guest printed beside its records
, variant TEXT NOT NULL DEFAULT '');
INSERT INTO "boots" VALUES(1,1,'kvm','wall',0,0.5,'{"scheduler":"credit2"}','a log','');
INSERT INTO "boots" VALUES(2,1,'kvm','wall',0,0.5,'{"scheduler":"credit2"}','a log','again');
INSERT INTO "boots" VALUES(3,1,'kvm','wall',1,0.5,'{"scheduler":"credit2"}','a log','memory=1024M,pages=2m,pin=exclusive,idle=in-guest,image=/a b,vmm=target/vmm');
INSERT INTO "boots" VALUES(4,1,'sim/kvm/linux','insn',0,0.5,'{"scheduler":"credit2"}','a log','cpus=2,memory=512M,agent=/agent,qemu=/q,kernel=/k,modules=/m');
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
INSERT INTO "builds" VALUES(1,2,1,'host',2,'same','done',NULL,1,2,3,'abc','{}');
CREATE TABLE counters (
    launch  INTEGER NOT NULL REFERENCES launches,
    counter TEXT NOT NULL,
    value   INTEGER NOT NULL,
    PRIMARY KEY (launch, counter)
) WITHOUT ROWID;
INSERT INTO "counters" VALUES(1,'own-memory',8);
INSERT INTO "counters" VALUES(2,'own-memory',8);
INSERT INTO "counters" VALUES(3,'own-memory',8);
INSERT INTO "counters" VALUES(4,'own-memory',8);
CREATE TABLE interrupts (        -- of an operation of workload irq
    operation INTEGER PRIMARY KEY REFERENCES operations,
    count     INTEGER NOT NULL,
    packed    BLOB NOT NULL      -- pieces: length (2 bytes, little endian), then as
                                 -- many bytes of guest/abi/src/interrupt.rs
);
INSERT INTO "interrupts" VALUES(4,3,X'1F000000000000280A0A0101E807000000E8070A0A0101E807000000E8070A0A01');
CREATE TABLE launches (          -- starts of a guest that were observed
    id   INTEGER PRIMARY KEY,
    boot INTEGER NOT NULL REFERENCES boots
);
INSERT INTO "launches" VALUES(1,1);
INSERT INTO "launches" VALUES(2,2);
INSERT INTO "launches" VALUES(3,3);
INSERT INTO "launches" VALUES(4,4);
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
INSERT INTO "operations" VALUES(1,1,'exits/port-out','measured',NULL,20,1024,-1,3,4,5,6);
INSERT INTO "operations" VALUES(2,1,'block/read-4k-1','measured',NULL,20,1024,-1,3,4,5,6);
INSERT INTO "operations" VALUES(3,2,'exits/port-out','skipped','no port',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "operations" VALUES(4,3,'irq/own-timer','measured',NULL,20,1024,-1,3,4,5,6);
INSERT INTO "operations" VALUES(5,4,'system/fork','failed','lost',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE problems (          -- what went wrong without ending the boot
    id   INTEGER PRIMARY KEY,
    boot INTEGER NOT NULL REFERENCES boots,
    text TEXT NOT NULL
);
INSERT INTO "problems" VALUES(1,1,'a damaged frame');
INSERT INTO "problems" VALUES(2,2,'a damaged frame');
INSERT INTO "problems" VALUES(3,3,'a damaged frame');
INSERT INTO "problems" VALUES(4,4,'a damaged frame');
CREATE TABLE requests (          -- of an operation of workload block
    operation INTEGER PRIMARY KEY REFERENCES operations,
    count     INTEGER NOT NULL,
    packed    BLOB NOT NULL      -- pieces: length (2 bytes, little endian), then as
                                 -- many bytes of guest/abi/src/block.rs
);
INSERT INTO "requests" VALUES(2,3,X'0B00008407E8078407E8078407');
CREATE TABLE runs (
    id          INTEGER PRIMARY KEY,
    started_at  INTEGER NOT NULL, -- milliseconds since 1970, UTC
    finished_at INTEGER,          -- NULL: going on, or interrupted
    seed        INTEGER NOT NULL, -- of the plan
    request     TEXT NOT NULL,    -- what was asked for
    version     TEXT NOT NULL,    -- of Trapline
    facts       TEXT NOT NULL     -- of the host, a JSON object
, keeper TEXT, plan TEXT);
INSERT INTO "runs" VALUES(1,1795467916890,1795467916994,-1,'--env kvm,sim/kvm --workload exits','0.1.0','{"cpu":"a \"CPU\""}','1 2','[plan]');
INSERT INTO "runs" VALUES(2,1795467917010,NULL,0,'kernel-build','','{}',NULL,NULL);
CREATE TABLE samples (           -- one batch
    operation   INTEGER NOT NULL REFERENCES operations,
    number      INTEGER NOT NULL, -- from 0, in order of time
    start_tick  INTEGER NOT NULL, -- guest's clock before
    end_tick    INTEGER NOT NULL, -- guest's clock after
    count       INTEGER NOT NULL, -- operations, or bytes for a rate
    host_ns     INTEGER,          -- when the host received it, since the guest's start
    PRIMARY KEY (operation, number)
) WITHOUT ROWID;
INSERT INTO "samples" VALUES(1,0,0,900,1,0);
INSERT INTO "samples" VALUES(1,1,1000,1900,1,1);
CREATE TABLE skips (              -- environments that could not be booted
    id          INTEGER PRIMARY KEY,
    run         INTEGER NOT NULL REFERENCES runs,
    environment TEXT NOT NULL,
    reason      TEXT NOT NULL
, variant TEXT NOT NULL DEFAULT '');
INSERT INTO "skips" VALUES(1,1,'qemu-kvm/linux','no /dev/kvm','cpus=4,pin=shared');
INSERT INTO "skips" VALUES(2,1,'host','no CPU','');
CREATE TABLE stages (
    launch  INTEGER NOT NULL REFERENCES launches,
    stage   TEXT NOT NULL,
    reached INTEGER NOT NULL,    -- nanoseconds or instructions since exec
    PRIMARY KEY (launch, stage)
) WITHOUT ROWID;
INSERT INTO "stages" VALUES(1,'exec',0);
INSERT INTO "stages" VALUES(1,'guest-main',7);
INSERT INTO "stages" VALUES(2,'exec',0);
INSERT INTO "stages" VALUES(2,'guest-main',7);
INSERT INTO "stages" VALUES(3,'exec',0);
INSERT INTO "stages" VALUES(3,'guest-main',7);
INSERT INTO "stages" VALUES(4,'exec',0);
INSERT INTO "stages" VALUES(4,'guest-main',7);
CREATE INDEX boots_of_run ON boots (run);
CREATE INDEX operations_of_boot ON operations (boot);
CREATE INDEX launches_of_boot ON launches (boot);
CREATE INDEX problems_of_boot ON problems (boot);
CREATE INDEX builds_of_run ON builds (run);
COMMIT;
