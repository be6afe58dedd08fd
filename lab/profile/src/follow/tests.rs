use super::*;
use crate::worlds::{KERNEL, XEN};

const NOP: &[u8] = &[0x90];
const JMP: &[u8] = &[0xeb, 0x00];
const STORE: &[u8] = &[0x88, 0x07];
const HLT: &[u8] = &[0xf4];
const IRET: &[u8] = &[0x48, 0xcf];
const OUT: &[u8] = &[0xee];
const RDTSC: &[u8] = &[0x0f, 0x31];

const WOKE: u64 = KERNEL + 0x100;
const EXPIRED: u64 = KERNEL + 0x200;
const MARKED: u64 = KERNEL + 0x300;
const LEAVE: u64 = KERNEL + 0x400;
const HANDLER: u64 = 0x11_0000;

/// A machine whose instructions are executed one by one.
struct Machinery {
    follower: Follower,
    told: Vec<Passage>,
}

impl Machinery {
    fn new() -> Self {
        let follower = Follower::new();
        follower.follow(Way {
            woke: WOKE,
            expired: EXPIRED,
            marked: MARKED,
            handler: HANDLER,
        });
        Self {
            follower,
            told: Vec::new(),
        }
    }

    /// Executes a block as QEMU does, but only the first `begun` of its instructions.
    fn begin(&mut self, address: u64, block: &[&[u8]], begun: usize) {
        let mut at = address;
        let insns = block.iter().enumerate().map(|(index, bytes)| {
            let insn = Insn {
                address: at,
                physical: at as usize,
                bytes,
                ends: index + 1 == block.len(),
                page: None,
            };
            at += bytes.len() as u64;
            insn
        });
        let known = self.follower.block(insns);
        self.follower.begin(known);
        for index in 0..begun {
            let stopped = known.stop(index).and_then(|stop| self.follower.stop(stop));
            self.told.extend(stopped);
            self.follower.executed.fetch_add(1, Relaxed);
        }
    }

    fn run(&mut self, address: u64, block: &[&[u8]]) {
        self.begin(address, block, block.len());
    }

    fn enter_guest(&mut self) {
        self.run(LEAVE - 3, &[&VMRUN]);
    }

    /// The handler, whose second instruction reads the clock.
    fn handle(&mut self) {
        self.run(HANDLER, &[NOP, RDTSC]);
    }
}

fn passage(woke: u64, marked: u64, in_guest: u64) -> Passage {
    Passage {
        woke: Some(woke),
        marked: Some(marked),
        in_guest: Some(in_guest),
    }
}

#[test]
fn an_interrupt_is_followed_from_the_timer_to_its_handler() {
    let mut machine = Machinery::new();
    for _ in 0..2 {
        machine.run(WOKE, &[NOP, JMP]);
        machine.run(EXPIRED, &[JMP]);
        machine.run(MARKED, &[NOP, NOP, JMP]);
        machine.enter_guest();
        machine.handle();
        machine.run(LEAVE, &[JMP]);
    }
    assert_eq!(machine.told, [passage(9, 6, 2); 2]);
}

#[test]
fn what_the_clock_was_not_charged_is_left_out() {
    let mut machine = Machinery::new();
    machine.run(WOKE, &[JMP]);
    machine.run(EXPIRED, &[JMP]);
    // A fault of data in the kernel, in the midst of a block: the store is tried again.
    machine.begin(MARKED, &[NOP, STORE, JMP], 2);
    machine.run(KERNEL, &[NOP, IRET]);
    machine.run(MARKED + 1, &[STORE, JMP]);
    // A guest that is left by what it does.
    machine.enter_guest();
    machine.run(0x2000, &[NOP, OUT]);
    machine.run(LEAVE, &[JMP]);
    machine.enter_guest();
    machine.handle();
    // 15 were executed until the clock was read behind them, of which two were not charged.
    assert_eq!(machine.told, [passage(13, 11, 2)]);
}

#[test]
fn interrupts_of_the_timer_that_lead_to_nothing_are_forgotten() {
    let mut machine = Machinery::new();
    machine.run(WOKE, &[NOP; 50]);
    machine.run(WOKE, &[JMP]);
    machine.run(EXPIRED, &[JMP]);
    // One that comes later has not set out earlier.
    machine.run(WOKE, &[JMP]);
    machine.run(MARKED, &[JMP]);
    machine.run(MARKED, &[JMP]);
    machine.enter_guest();
    machine.handle();
    assert_eq!(machine.told, [passage(8, 5, 2)]);
}

#[test]
fn what_expired_last_led_to_the_handler() {
    let mut machine = Machinery::new();
    for _ in 0..2 {
        machine.run(WOKE, &[JMP]);
        machine.run(EXPIRED, &[JMP]);
        machine.run(MARKED, &[JMP]);
    }
    machine.enter_guest();
    machine.handle();
    assert_eq!(machine.told, [passage(6, 4, 2)]);
}

#[test]
fn nobody_knows_how_long_a_machine_slept() {
    let mut machine = Machinery::new();
    machine.run(WOKE, &[JMP]);
    machine.run(EXPIRED, &[JMP]);
    machine.run(KERNEL, &[HLT]);
    machine.run(MARKED, &[JMP]);
    machine.enter_guest();
    machine.handle();
    assert_eq!(machine.told, [Passage::default()]);
}

#[test]
fn only_a_handler_reads_the_clock_for_an_interrupt() {
    let mut machine = Machinery::new();
    machine.run(0x5000, &[RDTSC]);
    machine.run(HANDLER, &[NOP, RDTSC]);
    machine.enter_guest();
    machine.run(0x5000, &[RDTSC]);
    // A guest may have the addresses of its host.
    machine.run(WOKE, &[JMP]);
    machine.run(EXPIRED, &[JMP]);
    assert_eq!(machine.told, []);
    machine.handle();
    assert_eq!(machine.told, [Passage::default()]);
}

#[test]
fn below_xen_only_xen_is_on_the_way() {
    let mut machine = Machinery::new();
    machine.follower.expect(Machine::Xen);
    machine.run(WOKE, &[JMP]);
    machine.run(EXPIRED, &[JMP]);
    machine.run(XEN.start, &[&VMRUN]);
    machine.handle();
    assert_eq!(machine.told, [Passage::default()]);
}
