PRAGMA foreign_keys = OFF;
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
    ,
    cpus INTEGER /* Virtual CPUs of the guest */,
    guests INTEGER /* Equal guests that are measured at the same time (docs/guests.md) */,
    memory_mib INTEGER /* Guest memory [default: the preset's] */,
    pages TEXT /* Guest memory: an anonymous file, private pages of 4 KiB or 2 MiB, or as devices need */,
    crossing TEXT /* Hypercalls of a guest that is a process: the mechanism (docs/process.md) */,
    spaces TEXT /* Linux processes for the address spaces of a guest that is a process, in workload system */,
    switch TEXT /* Switches between these processes: by themselves, or by the VMM */,
    batching TEXT /* System calls that the VMM needs of a guest that is a process: together when it continues, or one by one */,
    state TEXT /* Registers of a guest that is a process: in memory that the VMM has mapped, or copied by system calls */,
    paging TEXT /* Translation of guest addresses by KVM: nested page tables of the processor, or shadow page tables */,
    thp TEXT /* Transparent huge pages of the simulated machine's Linux [default: never around a guest, else as its kernel has them] */,
    cgroup TEXT /* Control group of the VMM on the simulated machine: that of all programs, or one of its own, in which CPU time and memory are accounted */,
    wake TEXT /* Wait for a semaphore in workloads ipc and smp: halt, poll for microseconds and then halt, or mwait; haltpoll and idle-poll of Linux guests (docs/ipc.md) */,
    path TEXT /* Way of the packets of workload net from guest to guest: trapline-switch, a bridge, or a bridge with vhost-net (docs/network.md) */,
    peer TEXT /* Peer of tcp-… and udp-… of workload net: a process behind a tap, or another guest of the same kind on the way of --path (docs/network.md) */,
    zeroing TEXT /* Zeroing of the image's memory in workload basic: in the allocation or while idle, with ordinary or non-temporal stores (docs/memory.md) */,
    isolation TEXT /* Page tables of programs in workload system and in Linux guests: as the kernel has them by default, or isolated from it (docs/processes.md) */,
    file_mib INTEGER /* Size in MiB of the large file of workload files (docs/files.md) [default: 64] */,
    pin TEXT /* CPU affinity of the virtual CPU: none, alone on a CPU, or on one CPU with its VMM */,
    competitor TEXT /* Program that computes on each CPU of the guest, whenever no other thread runs there (docs/ipc.md) */,
    idle TEXT /* HLT of the guest: exits, or is not intercepted by KVM */,
    scheduler TEXT /* Xen's scheduler of virtual CPUs */,
    cap INTEGER /* Limit of a Xen domain's CPU time, in percent of a CPU */,
    weight INTEGER /* Weight of a Xen domain under contention [default: 256] */,
    image TEXT /* File of the unikernel */,
    agent TEXT /* File of the Linux program */,
    vmm TEXT /* File of trapline-vmm; in custom and sim/custom a command with {image} */,
    nova TEXT /* File of the NOVA hypervisor [default: TRAPLINE_NOVA, or nova/hypervisor in the cache] */,
    qemu TEXT /* File of QEMU */,
    kernel TEXT /* Kernel of the simulated machine: a file, or a kernel package of the distribution or its version, downloaded once [default: its newest] */,
    modules TEXT /* Directory of the kernel's modules [default: lib/modules/VERSION beside the kernel's file] */,
    again INTEGER NOT NULL DEFAULT 0 /* 1: A/A control */
);
INSERT INTO "boots" VALUES(1,4,'host','wall',0,4.08927375547443239245e-01,'{"cpu":"one"}','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0);
INSERT INTO "boots" VALUES(4,6,'host','wall',0,4.08927391999711509207e-01,'{"cpu":"one"}','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0);
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
INSERT INTO "builds" VALUES(1,7,0,'sim/linux',1,'same','done',NULL,28588005150,28587576017,30,'2ef4f987e3309cab5c92f9dde59463a071ea3af51f2eeb71074f245bff135ef3','{"build-root-sha256":"13dddbf6b06e59cca57ac3f01476288fb9fa4938f41aa103d51d0d0149457d68","build-size":"mini","build-source":"package linux-source-6.1_6.1.192-3"}');
INSERT INTO "builds" VALUES(2,7,0,'host',1,'disjoint','done',NULL,10006160892,10005962074,30,'2ef4f987e3309cab5c92f9dde59463a071ea3af51f2eeb71074f245bff135ef3','{"build-root-sha256":"13dddbf6b06e59cca57ac3f01476288fb9fa4938f41aa103d51d0d0149457d68","build-size":"mini","build-source":"package linux-source-6.1_6.1.192-3"}');
INSERT INTO "builds" VALUES(3,7,0,'host',2,'same','done',NULL,10284988920,10281303421,30,'2ef4f987e3309cab5c92f9dde59463a071ea3af51f2eeb71074f245bff135ef3','{"build-root-sha256":"13dddbf6b06e59cca57ac3f01476288fb9fa4938f41aa103d51d0d0149457d68","build-size":"mini","build-source":"package linux-source-6.1_6.1.192-3"}');
INSERT INTO "builds" VALUES(4,7,0,'host',2,'disjoint','skipped','2(d) needs 3 CPUs, and this process may use 2',NULL,NULL,NULL,NULL,'{}');
INSERT INTO "builds" VALUES(5,7,0,'host',1,'same','done',NULL,8580199293,8580025321,30,'2ef4f987e3309cab5c92f9dde59463a071ea3af51f2eeb71074f245bff135ef3','{"build-root-sha256":"13dddbf6b06e59cca57ac3f01476288fb9fa4938f41aa103d51d0d0149457d68","build-size":"mini","build-source":"package linux-source-6.1_6.1.192-3"}');
INSERT INTO "builds" VALUES(6,7,1,'host',1,'disjoint','done',NULL,9130970435,9132111488,30,'2ef4f987e3309cab5c92f9dde59463a071ea3af51f2eeb71074f245bff135ef3','{"build-root-sha256":"13dddbf6b06e59cca57ac3f01476288fb9fa4938f41aa103d51d0d0149457d68","build-size":"mini","build-source":"package linux-source-6.1_6.1.192-3"}');
INSERT INTO "builds" VALUES(7,7,1,'sim/linux',1,'same','done',NULL,28588005150,28587576017,30,'2ef4f987e3309cab5c92f9dde59463a071ea3af51f2eeb71074f245bff135ef3','{"build-root-sha256":"13dddbf6b06e59cca57ac3f01476288fb9fa4938f41aa103d51d0d0149457d68","build-size":"mini","build-source":"package linux-source-6.1_6.1.192-3"}');
INSERT INTO "builds" VALUES(8,7,1,'host',1,'same','done',NULL,10133659265,10133453133,30,'2ef4f987e3309cab5c92f9dde59463a071ea3af51f2eeb71074f245bff135ef3','{"build-root-sha256":"13dddbf6b06e59cca57ac3f01476288fb9fa4938f41aa103d51d0d0149457d68","build-size":"mini","build-source":"package linux-source-6.1_6.1.192-3"}');
INSERT INTO "builds" VALUES(9,7,1,'host',2,'same','done',NULL,9631080612,9630130585,30,'2ef4f987e3309cab5c92f9dde59463a071ea3af51f2eeb71074f245bff135ef3','{"build-root-sha256":"13dddbf6b06e59cca57ac3f01476288fb9fa4938f41aa103d51d0d0149457d68","build-size":"mini","build-source":"package linux-source-6.1_6.1.192-3"}');
CREATE TABLE counters (
    launch  INTEGER NOT NULL REFERENCES launches,
    counter TEXT NOT NULL,
    value   INTEGER NOT NULL,
    PRIMARY KEY (launch, counter)
) WITHOUT ROWID;
INSERT INTO "counters" VALUES(1,'ring',3);
INSERT INTO "counters" VALUES(4,'ring',3);
CREATE TABLE interrupts (        -- of an operation of workload irq
    operation INTEGER PRIMARY KEY REFERENCES operations,
    count     INTEGER NOT NULL,
    packed    BLOB NOT NULL      -- pieces: length (2 bytes, little endian), then as
                                 -- many bytes of guest/abi/src/interrupt.rs
);
CREATE TABLE launches (          -- starts of a guest that were observed
    id   INTEGER PRIMARY KEY,
    boot INTEGER NOT NULL REFERENCES boots
);
INSERT INTO "launches" VALUES(1,1);
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
, idle_ticks INTEGER, idle_bytes INTEGER);
INSERT INTO "operations" VALUES(1,1,'basic/getpid','measured',NULL,70,1375,0,NULL,3846190,NULL,NULL,NULL,NULL);
INSERT INTO "operations" VALUES(2,1,'exits/cpuid','measured',NULL,70,1375,36,NULL,4554361,NULL,NULL,NULL,NULL);
INSERT INTO "operations" VALUES(7,4,'block/read-4k-1','measured',NULL,73,0,1048672,NULL,170508643,NULL,NULL,NULL,NULL);
CREATE TABLE problems (          -- what went wrong without ending the boot
    id   INTEGER PRIMARY KEY,
    boot INTEGER NOT NULL REFERENCES boots,
    text TEXT NOT NULL
);
CREATE TABLE requests (          -- of an operation of workload block
    operation INTEGER PRIMARY KEY REFERENCES operations,
    count     INTEGER NOT NULL,
    packed    BLOB NOT NULL      -- pieces: length (2 bytes, little endian), then as
                                 -- many bytes of guest/abi/src/block.rs
);
CREATE TABLE runs (
    id          INTEGER PRIMARY KEY,
    started_at  INTEGER NOT NULL, -- milliseconds since 1970, UTC
    finished_at INTEGER,          -- NULL: going on, or interrupted
    seed        INTEGER NOT NULL, -- of the plan
    request     TEXT NOT NULL,    -- what was asked for
    version     TEXT NOT NULL,    -- of Trapline
    facts       TEXT NOT NULL     -- of the host, a JSON object
, keeper TEXT, plan TEXT);
INSERT INTO "runs" VALUES(1,1795971150756,1795971160220,2190715404,'net --path switch,veth --size 60,200 --ring split --direction one --duration 20 --rounds 2 --cpus 1,0 --seed 2190715404','0.2.0','{"cpu":"one"}','566bf79b-2996-45d0-9a36-423cf38b9d28 13300 84094',NULL);
INSERT INTO "runs" VALUES(2,1795971160403,1795971162590,2425961358,'net --path switch,bridge --size 60 --ring split,packed --direction one,half --duration 20 --rounds 1 --cpus 1,0 --seed 2425961358 --load 200000','0.2.0','{"cpu":"one"}','566bf79b-2996-45d0-9a36-423cf38b9d28 13534 85063',NULL);
INSERT INTO "runs" VALUES(3,1795971162725,1795971232378,2040587838,'net --path switch,mine --size 60 --ring split --direction one --duration 10 --rounds 1 --cpus 1,0 --seed 2040587838 --forwarder ''mine=false {a} {b}'' --load search','0.2.0','{"cpu":"one"}','566bf79b-2996-45d0-9a36-423cf38b9d28 13685 85299',NULL);
INSERT INTO "runs" VALUES(4,1795971232620,1795971232707,2959947795,'--env host --workload basic/getpid,exits/cpuid --preset quick --seed 2959947795 --boots 2','0.2.0','{"cpu":"one"}','566bf79b-2996-45d0-9a36-423cf38b9d28 15300 92278',NULL);
INSERT INTO "runs" VALUES(5,1795971232878,1795971233312,2164281214,'--env host --workload irq --preset quick --seed 2164281214 --between halt --load none --period 1ms --pin free --samples 64 --sched other --threshold 30us','0.2.0','{"cpu":"one"}','566bf79b-2996-45d0-9a36-423cf38b9d28 15311 92311',NULL);
INSERT INTO "runs" VALUES(6,1795971233489,1795971235862,2658752098,'--env host --workload block/read-4k-1 --preset quick --seed 2658752098 --size 16M --requests 32768','0.2.0','{"cpu":"one"}','566bf79b-2996-45d0-9a36-423cf38b9d28 15328 92371',NULL);
INSERT INTO "runs" VALUES(7,1795971275199,1795972052858,3541241847,'kernel-build --env host,sim/linux --size mini --cpus 1,2 --place same,disjoint --seed 3541241847 --boots 2','0.2.0','{"cpu":"one"}','566bf79b-2996-45d0-9a36-423cf38b9d28 16105 96118',NULL);
CREATE TABLE samples (           -- one batch
    operation   INTEGER NOT NULL REFERENCES operations,
    number      INTEGER NOT NULL, -- from 0, in order of time
    start_tick  INTEGER NOT NULL, -- guest's clock before
    end_tick    INTEGER NOT NULL, -- guest's clock after
    count       INTEGER NOT NULL, -- operations, or bytes for a rate
    host_ns     INTEGER,          -- when the host received it, since the guest's start
    PRIMARY KEY (operation, number)
) WITHOUT ROWID;
INSERT INTO "samples" VALUES(1,0,2257499800167,2257501520214,512,2434699);
INSERT INTO "samples" VALUES(1,1,2257501593150,2257501883083,512,2579450);
INSERT INTO "samples" VALUES(1,2,2257501942202,2257502231890,512,2721896);
INSERT INTO "samples" VALUES(2,0,2257513939141,2257514239903,14,7633794);
INSERT INTO "samples" VALUES(2,1,2257514303554,2257514666203,14,7809322);
INSERT INTO "samples" VALUES(2,2,2257514730565,2257515084884,14,7979691);
CREATE TABLE skips (              -- environments that could not be booted
    id          INTEGER PRIMARY KEY,
    run         INTEGER NOT NULL REFERENCES runs,
    environment TEXT NOT NULL,
    reason      TEXT NOT NULL
    ,
    cpus INTEGER /* Virtual CPUs of the guest */,
    guests INTEGER /* Equal guests that are measured at the same time (docs/guests.md) */,
    memory_mib INTEGER /* Guest memory [default: the preset's] */,
    pages TEXT /* Guest memory: an anonymous file, private pages of 4 KiB or 2 MiB, or as devices need */,
    crossing TEXT /* Hypercalls of a guest that is a process: the mechanism (docs/process.md) */,
    spaces TEXT /* Linux processes for the address spaces of a guest that is a process, in workload system */,
    switch TEXT /* Switches between these processes: by themselves, or by the VMM */,
    batching TEXT /* System calls that the VMM needs of a guest that is a process: together when it continues, or one by one */,
    state TEXT /* Registers of a guest that is a process: in memory that the VMM has mapped, or copied by system calls */,
    paging TEXT /* Translation of guest addresses by KVM: nested page tables of the processor, or shadow page tables */,
    thp TEXT /* Transparent huge pages of the simulated machine's Linux [default: never around a guest, else as its kernel has them] */,
    cgroup TEXT /* Control group of the VMM on the simulated machine: that of all programs, or one of its own, in which CPU time and memory are accounted */,
    wake TEXT /* Wait for a semaphore in workloads ipc and smp: halt, poll for microseconds and then halt, or mwait; haltpoll and idle-poll of Linux guests (docs/ipc.md) */,
    path TEXT /* Way of the packets of workload net from guest to guest: trapline-switch, a bridge, or a bridge with vhost-net (docs/network.md) */,
    peer TEXT /* Peer of tcp-… and udp-… of workload net: a process behind a tap, or another guest of the same kind on the way of --path (docs/network.md) */,
    zeroing TEXT /* Zeroing of the image's memory in workload basic: in the allocation or while idle, with ordinary or non-temporal stores (docs/memory.md) */,
    isolation TEXT /* Page tables of programs in workload system and in Linux guests: as the kernel has them by default, or isolated from it (docs/processes.md) */,
    file_mib INTEGER /* Size in MiB of the large file of workload files (docs/files.md) [default: 64] */,
    pin TEXT /* CPU affinity of the virtual CPU: none, alone on a CPU, or on one CPU with its VMM */,
    competitor TEXT /* Program that computes on each CPU of the guest, whenever no other thread runs there (docs/ipc.md) */,
    idle TEXT /* HLT of the guest: exits, or is not intercepted by KVM */,
    scheduler TEXT /* Xen's scheduler of virtual CPUs */,
    cap INTEGER /* Limit of a Xen domain's CPU time, in percent of a CPU */,
    weight INTEGER /* Weight of a Xen domain under contention [default: 256] */,
    image TEXT /* File of the unikernel */,
    agent TEXT /* File of the Linux program */,
    vmm TEXT /* File of trapline-vmm; in custom and sim/custom a command with {image} */,
    nova TEXT /* File of the NOVA hypervisor [default: TRAPLINE_NOVA, or nova/hypervisor in the cache] */,
    qemu TEXT /* File of QEMU */,
    kernel TEXT /* Kernel of the simulated machine: a file, or a kernel package of the distribution or its version, downloaded once [default: its newest] */,
    modules TEXT /* Directory of the kernel's modules [default: lib/modules/VERSION beside the kernel's file] */,
    again INTEGER NOT NULL DEFAULT 0 /* 1: A/A control */
);
CREATE TABLE stages (
    launch  INTEGER NOT NULL REFERENCES launches,
    stage   TEXT NOT NULL,
    reached INTEGER NOT NULL,    -- nanoseconds or instructions since exec
    PRIMARY KEY (launch, stage)
) WITHOUT ROWID;
INSERT INTO "stages" VALUES(1,'exec',0);
INSERT INTO "stages" VALUES(1,'guest-entry',936019);
INSERT INTO "stages" VALUES(1,'guest-exit',12631713);
INSERT INTO "stages" VALUES(1,'guest-main',936019);
INSERT INTO "stages" VALUES(1,'reaped',12920042);
INSERT INTO "stages" VALUES(4,'exec',0);
INSERT INTO "stages" VALUES(4,'guest-entry',866750);
INSERT INTO "stages" VALUES(4,'guest-exit',445819003);
INSERT INTO "stages" VALUES(4,'guest-main',866750);
INSERT INTO "stages" VALUES(4,'reaped',450366716);
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
, queues INTEGER NOT NULL DEFAULT 1);
INSERT INTO "trials" VALUES(1,1,0,'switch',60,'split','one','maximum',NULL,'done',NULL,23730051,29760,0,29760,0,17763926,12001341,0,0,NULL,NULL,NULL,857.19975,1);
INSERT INTO "trials" VALUES(2,1,0,'switch',60,'split','one','half-load',6.2705301391893345864e+05,'done',NULL,20015311,5255,7296,5255,0,11933914,13544724,0,0,2172,13858241,13954565,2439.25145,1);
INSERT INTO "trials" VALUES(3,1,0,'switch',200,'split','one','maximum',NULL,'done',NULL,26126290,17792,0,17792,0,16264253,20022717,0,0,NULL,NULL,NULL,841.9638,1);
INSERT INTO "trials" VALUES(4,1,0,'switch',200,'split','one','half-load',3.40499933209039620123e+05,'done',NULL,23842893,3330,4789,3330,0,12408341,16036880,0,0,2421,11916852,12091356,1051.9131,1);
INSERT INTO "trials" VALUES(5,1,0,'veth',200,'split','one','maximum',NULL,'done',NULL,44673265,16384,0,16384,0,44650784,NULL,0,0,NULL,NULL,NULL,827.6706,1);
INSERT INTO "trials" VALUES(6,1,0,'veth',200,'split','one','half-load',1.83375896075650613057e+05,'done',NULL,20694550,3794,0,3794,0,20672690,NULL,0,0,9742,18256,57843,1247.3132,1);
INSERT INTO "trials" VALUES(7,1,0,'veth',60,'split','one','maximum',NULL,'done',NULL,47382298,16384,0,16384,0,47351069,NULL,0,0,NULL,NULL,NULL,448.50205,1);
INSERT INTO "trials" VALUES(8,1,0,'veth',60,'split','one','half-load',1.72891572291407239394e+05,'done',NULL,20400711,3527,0,3527,0,20320191,NULL,0,0,6127,869983,887308,628.32355,1);
INSERT INTO "trials" VALUES(9,1,1,'switch',200,'split','one','maximum',NULL,'done',NULL,22625177,24896,0,24896,0,10762296,10150792,0,0,NULL,NULL,NULL,2046.6128,1);
INSERT INTO "trials" VALUES(10,1,1,'switch',200,'split','one','half-load',5.50183541105556883849e+05,'done',NULL,20016873,3161,7852,3160,0,12108500,7997852,0,0,3050,8129476,8129476,1636.08465,1);
INSERT INTO "trials" VALUES(11,1,1,'veth',60,'split','one','maximum',NULL,'done',NULL,36615850,16384,0,16384,0,36599364,NULL,0,0,NULL,NULL,NULL,962.1784,1);
INSERT INTO "trials" VALUES(12,1,1,'veth',60,'split','one','half-load',2.23728248832131444939e+05,'done',NULL,23123018,4549,0,4549,0,14792194,NULL,0,0,1109075,5213817,5299824,453.5285,1);
INSERT INTO "trials" VALUES(13,1,1,'switch',60,'split','one','maximum',NULL,'done',NULL,20007355,21312,0,21312,0,12069116,7986060,0,0,NULL,NULL,NULL,2027.3934,1);
INSERT INTO "trials" VALUES(14,1,1,'switch',60,'split','one','half-load',5.32604134829416521815e+05,'done',NULL,20001665,6475,4178,6475,0,27090351,11989719,0,0,2062,7968215,8077113,961.0383,1);
INSERT INTO "trials" VALUES(15,1,1,'veth',200,'split','one','maximum',NULL,'done',NULL,54427693,16384,0,16384,0,42342463,NULL,0,0,NULL,NULL,NULL,463.35685,1);
INSERT INTO "trials" VALUES(16,1,1,'veth',200,'split','one','half-load',150511.615474865,'done',NULL,20523941,3089,0,3089,0,20493344,NULL,0,0,6480,117530,117530,791.3662,1);
INSERT INTO "trials" VALUES(17,2,0,'switch',60,'split','half','given',200000.0,'done',NULL,23787639,1246,3512,990,0,7919524,14015037,0,0,NULL,NULL,NULL,71.73055,1);
INSERT INTO "trials" VALUES(18,2,0,'switch',60,'packed','half','given',200000.0,'done',NULL,44329303,2172,4788,1916,0,8302778,27936029,0,0,NULL,NULL,NULL,71.1625,1);
INSERT INTO "trials" VALUES(19,2,0,'bridge',60,'split','half','given',200000.0,'done',NULL,20012766,4003,0,4003,0,20018488,NULL,0,0,NULL,NULL,NULL,70.098,1);
INSERT INTO "trials" VALUES(20,2,0,'switch',60,'packed','one','given',200000.0,'done',NULL,20026642,1300,2706,1300,0,12119873,7952075,0,0,2367,12093658,12093658,70.9566,1);
INSERT INTO "trials" VALUES(21,2,0,'bridge',60,'split','one','given',200000.0,'done',NULL,28379740,5671,0,5671,0,21583796,NULL,0,0,783945,6705759,6857555,71.5878,1);
INSERT INTO "trials" VALUES(22,2,0,'switch',60,'split','one','given',200000.0,'done',NULL,20010842,1844,2159,1844,0,27500245,11953622,0,0,587,11907332,11907332,76.7504,1);
INSERT INTO "trials" VALUES(23,3,0,'switch',60,'split','one','maximum',NULL,'done',NULL,11743694,49856,0,49856,0,3940902,7996769,0,0,NULL,NULL,NULL,73.5965,1);
INSERT INTO "trials" VALUES(24,3,0,'switch',60,'split','one','half-load',2.12267111183244409043e+06,'done',NULL,17593976,12089,22032,12089,0,9689010,18085858,0,0,862,16027738,16079453,67.5237,1);
INSERT INTO "trials" VALUES(25,3,0,'switch',60,'split','one','search',3.82080800129839964224e+06,'done',NULL,10035359,7729,30613,7729,0,6161169,3986106,0,0,967,8071533,8081541,67.184,1);
INSERT INTO "trials" VALUES(26,3,0,'switch',60,'split','one','search',3.82080800129839964224e+06,'done',NULL,15850027,14634,16437,14634,0,7928304,4009110,0,0,1213,12120158,12143430,72.4559,1);
INSERT INTO "trials" VALUES(27,3,0,'switch',60,'split','one','search',3.82080800129839964224e+06,'done',NULL,10015705,15354,22914,15354,0,11913005,7089611,0,0,919,7431771,7448661,75.04125,1);
INSERT INTO "trials" VALUES(161,3,0,'mine',60,'split','one','maximum',NULL,'skipped','the forwarder opens no sockets: try it',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1);
CREATE INDEX boots_of_run ON boots (run);
CREATE INDEX operations_of_boot ON operations (boot);
CREATE INDEX launches_of_boot ON launches (boot);
CREATE INDEX problems_of_boot ON problems (boot);
CREATE INDEX builds_of_run ON builds (run);
CREATE INDEX trials_of_run ON trials (run);
COMMIT;
PRAGMA application_id = 1414680652;
PRAGMA user_version = 28;
