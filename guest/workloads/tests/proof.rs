//! Work that is not done is a failure, never a number.
//!
//! A fake kernel, correct unless told to cheat in one way, runs the workloads;
//! each way of cheating must be found.

use std::ptr::NonNull;
use trapline_abi::block::{Request, Transfer};
use trapline_abi::interrupt::unpack;
use trapline_abi::job::Wait;
use trapline_abi::platform::{NO_DEVICE, SCRATCH, VIRTIO_MAGIC};
use trapline_abi::populate::Wish;
use trapline_abi::record::Speaker;
use trapline_abi::{Interrupt, Job, Op, Record};
use trapline_workloads::irq::{keep_time, Arrival, OneShot, Source, Taken, Ticking};
use trapline_workloads::system::MAPPED_PAGES;
use trapline_workloads::{ticks, Block, Machine, Origin, Processes, Reason, System, Wake};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cheat {
    None,
    ForgetScratch,
    WrongMagic,
    IgnoreMmio,
    AcceptHypercall,
    LoseInterrupt,
    NoDevice,
    ChangeAnswer,
    ChangeVersion,
    LoseEvent,
    ChangePid,
    NeverSwitch,
    WakeEarly,
    NoMemory,
    NoSleep,
    NeverTick,
    SlowHandler,
    UsedRegion,
    ShortRegion,
    NoRegion,
    KeepRegion,
    NoProcesses,
    WrongStatus,
    WrongAnswer,
    NoSwitch,
    LosePipe,
    WrongPages,
    KeepMapping,
    ShareForEver,
    UsedPages,
    NoDisk,
    WrongUnit,
    NoRequest,
    SlowFirst,
}

/// Ticks that an operation takes at first: far more than a batch.
const SLOW: u64 = 10_000_000;

/// A window and a little more.
const EXPIRIES: u64 = 1030;

struct Fake {
    cheat: Cheat,
    said: Vec<String>,
    /// Numbers of the expiries that were told as interrupts, in order.
    expiries: Vec<u64>,
    scratch: u8,
    selector: u32,
    interrupts: u64,
    versions: i64,
    events: u64,
    pids: u32,
    turns: u64,
    blocks: Vec<Vec<u128>>,
    region: Option<Vec<u128>>,
    begun: bool,
    answers: u64,
    mapped: Vec<u64>,
    shared: Option<(Block, u64)>,
    quiesced: u32,
    sleeps: u32,
}

impl Fake {
    fn new(cheat: Cheat) -> Self {
        Self {
            cheat,
            said: Vec::new(),
            expiries: Vec::new(),
            scratch: 0,
            selector: 0,
            interrupts: 0,
            versions: 0,
            events: 0,
            pids: 0,
            turns: 0,
            blocks: Vec::new(),
            region: None,
            begun: false,
            answers: 0,
            mapped: Vec::new(),
            shared: None,
            quiesced: 0,
            sleeps: 0,
        }
    }

    fn run(cheat: Cheat, names: &str) -> Vec<String> {
        let mut fake = Self::new(cheat);
        fake.obey(names);
        fake.said
    }

    /// Measures the operations of these names.
    fn obey(&mut self, names: &str) {
        let word = format!("trapline.run={names}");
        let asked = Job::parse([word.as_str()]).expect("a valid selection");
        let sizes = Job {
            blocks: 8,
            pages: 512,
            doubles: 1003,
            passes: 2,
            expiries: EXPIRIES as u32,
            period: 2_000,
            ..asked
        };
        let job = Job {
            batches: 3,
            batch_ticks: 1000,
            ..sizes
        };
        let origin = Origin {
            speaker: Speaker::Image,
            ring: 0,
            memory: 0,
            entry: ticks(),
            main: ticks(),
        };
        trapline_workloads::run(self, &job, &origin);
        assert!(self.blocks.is_empty(), "every block is released");
        assert!(self.region.is_none(), "every region is given back");
        assert!(!self.begun, "what was made ready is ended");
    }

    /// The one record of `kind` that was said about `op`.
    fn verdict(cheat: Cheat, name: &str, kind: &str) {
        let op = Op::from_path(name).expect("an operation");
        let said = Self::run(cheat, name);
        let wanted = format!("{kind} {{ op: {op:?}");
        let others = ["End", "Skip", "Fail"]
            .into_iter()
            .filter(|other| *other != kind);
        assert!(
            said.iter().any(|said| said.starts_with(&wanted)),
            "{cheat:?}: {said:#?}"
        );
        for other in others {
            let unwanted = format!("{other} {{ op: {op:?}");
            assert!(
                !said.iter().any(|said| said.starts_with(&unwanted)),
                "{cheat:?}: {said:#?}"
            );
        }
    }
}

impl System for Fake {
    type Machine = Self;
    type Processes = Self;

    fn say(&mut self, record: &Record<'_>) {
        self.said.push(format!("{record:?}"));
        if let Record::Interrupts { packed, .. } = record {
            let mut hear = |interrupt: Interrupt| self.expiries.push(interrupt.sequence);
            unpack(packed, &mut hear).expect("whole interrupts");
        }
    }
    fn wait_for_go(&mut self) {
        self.said.push("go".to_owned());
    }
    fn quiesce(&mut self) {
        self.quiesced += 1;
    }
    fn exits(&mut self) -> Option<u64> {
        Some(7)
    }
    fn getpid(&mut self) -> u32 {
        self.pids += u32::from(self.cheat == Cheat::ChangePid);
        42 + self.pids
    }
    fn start_peer(&mut self) -> Result<(), Reason> {
        Ok(())
    }
    fn yield_now(&mut self) {
        if self.cheat == Cheat::SlowFirst && self.turns == 0 {
            let start = ticks();
            while ticks() - start < SLOW {}
        }
        self.turns += u64::from(self.cheat != Cheat::NeverSwitch);
    }
    fn peer_turns(&mut self) -> u64 {
        self.turns
    }
    fn stop_peer(&mut self) {}
    fn allocate(&mut self, bytes: usize) -> Option<Block> {
        if self.cheat == Cheat::NoMemory {
            return None;
        }
        let filling = u128::from(self.cheat == Cheat::UsedPages);
        self.blocks.push(vec![filling; bytes.div_ceil(16)]);
        let start = NonNull::new(self.blocks.last_mut()?.as_mut_ptr().cast())?;
        Some(Block {
            start,
            length: bytes,
        })
    }
    unsafe fn release(&mut self, block: Block) {
        let at = block.start.as_ptr().cast_const().cast();
        self.blocks.retain(|held| held.as_ptr() != at);
    }
    fn sleep(&mut self, ahead: u64) -> Result<Wake, Reason> {
        let woke = ticks();
        self.sleeps += 1;
        match self.cheat {
            Cheat::SlowFirst if self.sleeps < 6 => Ok(Wake {
                due: woke - SLOW,
                woke,
            }),
            Cheat::NoSleep => Err("this machine never sleeps"),
            Cheat::WakeEarly => Ok(Wake {
                due: woke + ahead,
                woke,
            }),
            _ => Ok(Wake {
                due: woke - 1,
                woke,
            }),
        }
    }
    fn can_tick(&mut self, source: Source, _: Wait) -> Result<(), Reason> {
        match (self.cheat, source) {
            (Cheat::NoSleep, Source::Host) => Err("nobody keeps time for this machine"),
            _ => Ok(()),
        }
    }
    fn tick(&mut self, ticking: &Ticking, taken: &mut Taken<'_>) -> Result<(), Reason> {
        if self.cheat != Cheat::NeverTick {
            keep_time(&mut Spinning::new(self.cheat, ticking), ticking, taken);
        }
        Ok(())
    }
    fn attach(&mut self, wish: Wish) {
        assert!(self.region.is_none(), "one region at a time");
        let length = match self.cheat {
            Cheat::NoRegion => return,
            Cheat::ShortRegion => wish.bytes() / 2,
            _ => wish.bytes(),
        };
        let filling = u128::from(self.cheat == Cheat::UsedRegion) << 64;
        self.region = Some(vec![filling; length as usize / 16]);
    }
    fn attached(&mut self) -> Result<Block, Reason> {
        let region = self.region.as_mut().ok_or("nobody gives any")?;
        Ok(Block {
            start: NonNull::new(region.as_mut_ptr().cast()).ok_or("a null pointer")?,
            length: region.len() * 16,
        })
    }
    unsafe fn detach(&mut self) -> Result<(), Reason> {
        self.region = None;
        match self.cheat {
            Cheat::KeepRegion => Err("it is wanted"),
            _ => Ok(()),
        }
    }
    fn machine(&mut self) -> Result<&mut Self, Reason> {
        Ok(self)
    }
    fn open_disk(&mut self, _: &Job) -> Result<(), Reason> {
        match self.cheat {
            Cheat::NoDisk => Err("there is no disk"),
            _ => Ok(()),
        }
    }
    fn transfer(&mut self, _: &Transfer, _: &Job, slots: &mut [Request]) -> Result<usize, Reason> {
        for (slot, start) in slots.iter_mut().zip(ticks()..) {
            let end = start + 1000;
            *slot = Request { start, end };
        }
        match self.cheat {
            Cheat::WrongUnit => Err("a unit is not what it must be"),
            Cheat::NoRequest => Ok(0),
            _ => Ok(slots.len()),
        }
    }
    fn processes(&mut self) -> Result<&mut Self, Reason> {
        match self.cheat {
            Cheat::NoProcesses => Err("this is no operating system"),
            _ => Ok(self),
        }
    }
}

/// The first words of all pages of a block.
fn sum(block: &Block) -> u64 {
    let words = (0..block.length).step_by(4096).map(|page| {
        let word = block.start.as_ptr().wrapping_add(page).cast::<u64>();
        // SAFETY: the first word of a page of a block that `allocate` gave and that is
        // not released yet.
        unsafe { word.read_volatile() }
    });
    words.sum()
}

impl Processes for Fake {
    fn begin(&mut self, _: Op) -> Result<(), Reason> {
        self.begun = true;
        Ok(())
    }
    fn end(&mut self) {
        self.begun = false;
    }
    fn fork(&mut self, status: u8) -> Option<u8> {
        Some(status ^ u8::from(self.cheat == Cheat::WrongStatus))
    }
    fn exec(&mut self, status: u8) -> Option<u8> {
        self.fork(status)
    }
    fn pipe(&mut self, byte: u8) -> Option<u8> {
        (self.cheat != Cheat::LosePipe).then_some(byte)
    }
    fn answer(&mut self, byte: u8) -> Option<u8> {
        self.answers += u64::from(self.cheat != Cheat::NoSwitch);
        match self.cheat {
            Cheat::WrongAnswer => Some(byte),
            _ => Some(!byte),
        }
    }
    fn switches(&mut self) -> u64 {
        self.answers
    }
    fn map(&mut self) -> Option<Block> {
        let words_of_a_page = 4096 / 8;
        let right = self.cheat != Cheat::WrongPages;
        self.mapped = vec![0; MAPPED_PAGES as usize * words_of_a_page];
        for (page, number) in self.mapped.chunks_mut(words_of_a_page).zip(0..) {
            page[0] = number * u64::from(right);
        }
        Some(Block {
            start: NonNull::new(self.mapped.as_mut_ptr().cast())?,
            length: self.mapped.len() * 8,
        })
    }
    unsafe fn unmap(&mut self, _: Block) -> bool {
        self.cheat != Cheat::KeepMapping
    }
    fn share(&mut self, block: Block) -> Result<(), Reason> {
        self.shared = Some((block, sum(&block)));
        Ok(())
    }
    fn shared(&mut self) -> Result<u64, Reason> {
        let (block, then) = self.shared.take().ok_or("nothing was shared")?;
        match self.cheat {
            Cheat::ShareForEver => Ok(sum(&block)),
            _ => Ok(then),
        }
    }
}

/// A timer that is waited for by looking at the clock.
struct Spinning {
    due: u64,
    handling: u64,
}

impl Spinning {
    /// A slow handler takes a little more than two periods.
    fn new(cheat: Cheat, ticking: &Ticking) -> Self {
        let slow = cheat == Cheat::SlowHandler;
        let handling = if slow {
            2 * ticking.period + ticking.period / 2
        } else {
            0
        };
        Self { due: 0, handling }
    }
}

impl OneShot for Spinning {
    fn set(&mut self, due: u64) -> u64 {
        self.due = due;
        0
    }
    fn wait(&mut self, _: Wait) -> Arrival {
        while ticks() < self.due {}
        let entered = ticks();
        while ticks() < entered + self.handling {}
        Arrival {
            entered,
            done: ticks(),
            resumed: ticks(),
            ..Arrival::default()
        }
    }
}

impl Machine for Fake {
    fn supports(&self, op: Op) -> Result<(), Reason> {
        if op == Op::Hypercall && self.cheat == Cheat::NoSleep {
            return Err("there is no hypervisor");
        }
        Ok(())
    }
    fn port_out(&mut self, port: u16, value: u8) {
        assert_eq!(port, SCRATCH);
        if self.cheat != Cheat::ForgetScratch {
            self.scratch = value;
        }
    }
    fn port_in(&mut self, _: u16) -> u8 {
        match self.cheat {
            Cheat::NoDevice => NO_DEVICE,
            Cheat::ChangeAnswer => {
                self.scratch = self.scratch.wrapping_add(1);
                self.scratch
            }
            _ => self.scratch,
        }
    }
    fn mmio_read(&mut self, address: u64) -> u32 {
        match address & 0xff {
            0 if self.cheat == Cheat::WrongMagic => !0,
            0 => VIRTIO_MAGIC,
            _ => self.selector,
        }
    }
    fn mmio_write(&mut self, _: u64, value: u32) {
        if self.cheat != Cheat::IgnoreMmio {
            self.selector = value;
        }
    }
    fn hypercall(&mut self) -> i64 {
        if self.cheat == Cheat::AcceptHypercall {
            0
        } else {
            -1000
        }
    }
    fn self_ipi(&mut self) {
        let lost = self.cheat == Cheat::LoseInterrupt && self.interrupts == 1;
        self.interrupts += u64::from(!lost);
        self.cheat = if lost { Cheat::None } else { self.cheat };
    }
    fn self_ipis(&mut self) -> u64 {
        self.interrupts
    }
    fn xen_version(&mut self) -> i64 {
        self.versions += i64::from(self.cheat == Cheat::ChangeVersion);
        0x4_0011 + self.versions
    }
    fn send_event(&mut self) {
        let lost = self.cheat == Cheat::LoseEvent && self.events == 1;
        self.events += u64::from(!lost);
        self.cheat = if lost { Cheat::None } else { self.cheat };
    }
    fn events(&mut self) -> u64 {
        self.events
    }
}

#[test]
fn honest_work_ends_every_operation() {
    for op in Op::ALL
        .into_iter()
        .filter(|op| op.workload().name() != "boot")
        // They take a gibibyte each.
        .filter(|op| !op.name().contains("-18"))
    {
        let name = format!("{}/{}", op.workload().name(), op.name());
        Fake::verdict(Cheat::None, &name, "End");
    }
}

#[test]
fn each_way_of_cheating_is_found() {
    for (cheat, name) in [
        (Cheat::ForgetScratch, "exits/port-out"),
        (Cheat::ForgetScratch, "exits/port-in"),
        (Cheat::WrongMagic, "exits/mmio-read"),
        (Cheat::IgnoreMmio, "exits/mmio-write"),
        (Cheat::AcceptHypercall, "exits/hypercall"),
        (Cheat::LoseInterrupt, "exits/self-ipi"),
        (Cheat::ForgetScratch, "exits/port-emulated"),
        (Cheat::ChangeAnswer, "exits/port-emulated"),
        (Cheat::ChangeVersion, "exits/xen-hypercall"),
        (Cheat::LoseEvent, "exits/event-channel"),
        (Cheat::UsedRegion, "populate/attach-0"),
        (Cheat::UsedRegion, "populate/touch-9-2m"),
        (Cheat::ChangePid, "basic/getpid"),
        (Cheat::NeverSwitch, "basic/yield"),
        (Cheat::WakeEarly, "exits/timer-wake"),
        (Cheat::NoMemory, "basic/malloc-1m"),
        (Cheat::NoMemory, "basic/first-touch-4k"),
        (Cheat::NoMemory, "irq/own-timer"),
        (Cheat::WrongStatus, "system/fork"),
        (Cheat::WrongStatus, "system/exec"),
        (Cheat::UsedPages, "system/page-fault"),
        (Cheat::NoMemory, "system/page-fault"),
        (Cheat::ShareForEver, "system/page-fault-cow"),
        (Cheat::WrongAnswer, "system/context-switch"),
        (Cheat::NoSwitch, "system/context-switch"),
        (Cheat::LosePipe, "system/pipe"),
        (Cheat::WrongPages, "system/mmap"),
        (Cheat::KeepMapping, "system/mmap"),
        (Cheat::WrongUnit, "block/read-4k-1"),
        (Cheat::NoRequest, "block/write-1m-32"),
        (Cheat::NoMemory, "block/read-4k-32"),
        (Cheat::NeverTick, "irq/own-timer"),
        (Cheat::NeverTick, "irq/host-timer"),
    ] {
        Fake::verdict(cheat, name, "Fail");
    }
}

#[test]
fn a_port_that_nobody_has_is_answered_for() {
    Fake::verdict(Cheat::NoDevice, "exits/port-emulated", "End");
    Fake::verdict(Cheat::NoDevice, "exits/port-in", "Fail");
}

#[test]
fn what_cannot_be_done_is_skipped_with_the_systems_reason() {
    Fake::verdict(Cheat::NoSleep, "exits/timer-wake", "Skip");
    Fake::verdict(Cheat::NoSleep, "exits/hypercall", "Skip");
    Fake::verdict(Cheat::NoSleep, "irq/host-timer", "Skip");
    Fake::verdict(Cheat::NoMemory, "stream/copy", "Skip");
    Fake::verdict(Cheat::NoProcesses, "system/fork", "Skip");
    Fake::verdict(Cheat::NoDisk, "block/read-4k-1", "Skip");
    Fake::verdict(Cheat::NoProcesses, "system/page-fault", "Skip");
    for cheat in [Cheat::NoRegion, Cheat::ShortRegion, Cheat::KeepRegion] {
        Fake::verdict(cheat, "populate/attach-3", "Skip");
        Fake::verdict(cheat, "populate/touch-9-2m-prefault", "Skip");
    }
    let said = Fake::run(Cheat::NoSleep, "exits/timer-wake");
    assert!(
        said.iter()
            .any(|said| said.contains("this machine never sleeps")),
        "{said:#?}"
    );
}

#[test]
fn the_checksum_tells_the_size_of_the_work() {
    let check = |names: &str| {
        let said = Fake::run(Cheat::None, names);
        let end = said
            .iter()
            .find(|said| said.starts_with("End"))
            .expect("an end")
            .clone();
        end.split("check: ")
            .nth(1)
            .expect("a checksum")
            .split(',')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(check("stream/triad"), check("stream/triad"));
    assert_ne!(check("stream/triad"), check("stream/add"));
    assert_eq!(check("basic/first-touch-4k"), (256 + 2 * 256).to_string());
}

#[test]
fn a_boot_tells_its_stages_after_its_first_sample() {
    let said = Fake::run(Cheat::None, "boot");
    let place = |what: &str| said.iter().position(|said| said.contains(what));
    assert_eq!(place("Hello"), Some(0));
    assert!(place("Sample") < place("FirstSample"), "{said:#?}");
    assert!(place("FirstSample") < place("GuestEntry"), "{said:#?}");
    assert!(place("GuestExit").is_some(), "{said:#?}");
    assert_eq!(said.last().map(String::as_str), Some("Done"));
}

fn told_expiries(cheat: Cheat) -> Vec<u64> {
    let mut fake = Fake::new(cheat);
    fake.obey("irq/own-timer");
    fake.expiries
}

#[test]
fn an_expiry_that_passes_while_another_is_handled_is_missed_by_its_number() {
    let told = told_expiries(Cheat::SlowHandler);
    let apart = |pair: &[u64]| pair[1] >= pair[0] + 3 || pair[1] == 1024;
    assert!(told.windows(2).all(apart), "{told:?}");
    assert!(told.contains(&1024), "each window begins with its first");
    assert!(told.iter().all(|expiry| *expiry < EXPIRIES));
    let told = told_expiries(Cheat::None);
    assert!(told.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
}

/// The numbers behind `field` in all samples.
fn in_samples(said: &[String], field: &str) -> Vec<u64> {
    let samples = said.iter().filter(|said| said.starts_with("Sample"));
    let number = |sample: &String| {
        let behind = sample.split(&format!("{field}: ")).nth(1)?;
        behind.split([',', ' ']).next()?.parse().ok()
    };
    samples.filter_map(number).collect()
}

#[test]
fn one_slow_batch_does_not_end_the_growth() {
    let said = Fake::run(Cheat::SlowFirst, "basic/yield");
    let counts = in_samples(&said, "count");
    assert_eq!(counts.len(), 3, "{said:#?}");
    // Two switches a repetition.
    assert!(counts.iter().all(|count| *count > 2), "{counts:?}");
}

#[test]
fn warm_up_sleeps_are_not_recorded() {
    let said = Fake::run(Cheat::SlowFirst, "exits/timer-wake");
    let (start, end) = (in_samples(&said, "start"), in_samples(&said, "end"));
    assert_eq!(start.len(), 3, "{said:#?}");
    let late = start.iter().zip(&end).map(|(start, end)| end - start);
    assert!(late.max() < Some(SLOW), "{said:#?}");
}

#[test]
fn interrupts_are_shut_before_the_first_operation_and_after_each_that_uses_them() {
    let quiesced = |names: &str| {
        let mut fake = Fake::new(Cheat::None);
        fake.obey(names);
        fake.quiesced
    };
    assert_eq!(quiesced("boot"), 0, "a boot is measured as it is");
    assert_eq!(quiesced("basic/getpid"), 1);
    assert_eq!(quiesced("exits/self-ipi"), 2);
    assert_eq!(quiesced("exits/timer-wake"), 2);
    assert_eq!(quiesced("irq"), 3);
}
