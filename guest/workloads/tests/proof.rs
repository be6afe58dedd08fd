//! Work that is not done is a failure, never a number.
//!
//! A fake kernel, correct unless told to cheat in one way, runs the workloads;
//! each way of cheating must be found.

use std::ptr::NonNull;
use trapline_abi::platform::{NO_DEVICE, SCRATCH, VIRTIO_MAGIC};
use trapline_abi::record::Speaker;
use trapline_abi::{Job, Op, Record};
use trapline_workloads::{ticks, Block, Machine, Origin, Reason, System, Wake};

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
}

struct Fake {
    cheat: Cheat,
    said: Vec<String>,
    scratch: u8,
    selector: u32,
    interrupts: u64,
    versions: i64,
    events: u64,
    pids: u32,
    turns: u64,
    blocks: Vec<Vec<u128>>,
}

impl Fake {
    fn run(cheat: Cheat, names: &str) -> Vec<String> {
        let mut fake = Fake {
            cheat,
            said: Vec::new(),
            scratch: 0,
            selector: 0,
            interrupts: 0,
            versions: 0,
            events: 0,
            pids: 0,
            turns: 0,
            blocks: Vec::new(),
        };
        let word = format!("trapline.run={names}");
        let asked = Job::parse([word.as_str()]).expect("a valid selection");
        let sizes = Job {
            blocks: 8,
            pages: 512,
            doubles: 1003,
            passes: 2,
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
        trapline_workloads::run(&mut fake, &job, &origin);
        assert!(fake.blocks.is_empty(), "every block is released");
        fake.said
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

    fn say(&mut self, record: &Record<'_>) {
        self.said.push(format!("{record:?}"));
    }
    fn wait_for_go(&mut self) {
        self.said.push("go".to_owned());
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
        self.blocks.push(vec![0; bytes.div_ceil(16)]);
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
        match self.cheat {
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
    fn machine(&mut self) -> Result<&mut Self, Reason> {
        Ok(self)
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
        (Cheat::ChangePid, "basic/getpid"),
        (Cheat::NeverSwitch, "basic/yield"),
        (Cheat::WakeEarly, "exits/timer-wake"),
        (Cheat::NoMemory, "basic/malloc-1m"),
        (Cheat::NoMemory, "basic/first-touch-4k"),
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
    Fake::verdict(Cheat::NoMemory, "stream/copy", "Skip");
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
