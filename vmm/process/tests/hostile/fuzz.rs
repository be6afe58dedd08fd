//! Random crossings: any register values at an instruction that leaves the guest, or at any address of the backend.

use crate::attack::{attack_by, Attack, ALIAS, CODE, CONTROLS, STACK, SWITCHER};
use std::sync::mpsc::{channel, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use trapline_interface::{Entry, Exit, General, RegSet, Vcpu};
use trapline_process::Crossing;

/// Crossings of the slow test, over all mechanisms.
const CROSSINGS: u64 = 10_000_000;
/// Crossings of a guest: its stores destroy its own code and page tables in time.
const CROSSINGS_PER_GUEST: u64 = 512;
/// Time after which a guest that does not cross is kicked.
const LONGEST: Duration = Duration::from_millis(50);

/// Instructions that leave the guest, each in a slot of its own.
const INSTRUCTIONS: [&[u8]; 9] = [
    &[0x0f, 0x05],             // syscall
    &[0xee],                   // out dx, al
    &[0xed],                   // in eax, dx
    &[0x8b, 0x03],             // mov eax, [rbx]
    &[0x48, 0x89, 0x0b],       // mov [rbx], rcx
    &[0xf0, 0x0f, 0xb1, 0x0b], // lock cmpxchg [rbx], ecx
    &[0xf4],                   // hlt
    &[0xff, 0xe3],             // jmp rbx
    &[0xff, 0xd3],             // call rbx
];
const SLOT: usize = 16;

/// Results of the crossings of one mechanism.
#[derive(Debug, Default)]
struct Seen {
    crossings: u64,
    hypercalls: u64,
    accesses: u64,
    stopped: u64,
    kicked: u64,
    /// Processes that the kernel killed for a system call.
    killed: u64,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn one_of(&mut self, values: &[u64]) -> u64 {
        values[self.next() as usize % values.len()]
    }

    /// Returns a number of a system call, an address of a page that matters, or any value.
    fn value(&mut self) -> u64 {
        match self.next() % 4 {
            0 => self.next() % 470,
            1 => {
                let page = self.one_of(&[CODE, STACK, SWITCHER, ALIAS, SWITCHER + 0x1_0000, 0]);
                page.wrapping_add(self.next() % 0x8000)
            }
            2 => self.one_of(&[0, 1, u64::MAX, 1 << 32, 1 << 47, 4096]),
            _ => self.next(),
        }
    }

    fn registers(&mut self) -> General {
        let slot = self.next() as usize % INSTRUCTIONS.len() * SLOT;
        // A few start at any place of the backend's pages instead.
        let rip = match self.next() % 256 {
            0 => SWITCHER + self.next() % 0x3000,
            _ => CODE + slot as u64,
        };
        General {
            rip,
            rsp: STACK - 8 * (self.next() % 64),
            rflags: 0x202,
            rax: self.value(),
            rbx: self.value(),
            rcx: self.value(),
            rdx: self.value(),
            rsi: self.value(),
            rdi: self.value(),
            r8: self.value(),
            r9: self.value(),
            r10: self.value(),
            r11: self.value(),
            ..General::default()
        }
    }
}

/// Starts a guest with the instructions, and a thread that kicks it.
fn start(crossing: Crossing) -> (Attack, Sender<()>, JoinHandle<()>) {
    let slots = INSTRUCTIONS.iter().flat_map(|instruction| {
        let mut slot = [0x0f, 0x0b].repeat(SLOT / 2);
        slot[..instruction.len()].copy_from_slice(instruction);
        slot
    });
    let attack = attack_by(crossing, &slots.collect::<Vec<u8>>());
    let kicker = attack.vcpu.kicker();
    let (sender, receiver) = channel();
    let watchdog = thread::spawn(move || {
        while receiver.recv_timeout(LONGEST) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            kicker.kick();
        }
    });
    (attack, sender, watchdog)
}

fn fuzz(crossing: Crossing, crossings: u64, seed: u64) -> Seen {
    let mut random = Random(seed);
    let mut seen = Seen::default();
    while seen.crossings < crossings {
        let (mut attack, sender, watchdog) = start(crossing);
        let is_alive = cross(&mut attack, &mut random, &mut seen);
        seen.killed += u64::from(!is_alive);
        drop(sender);
        watchdog.join().unwrap();
    }
    seen
}

/// Crosses as often as a guest may. Returns false if the process is dead.
fn cross(attack: &mut Attack, random: &mut Random, seen: &mut Seen) -> bool {
    for _ in 0..CROSSINGS_PER_GUEST {
        // With a listener, registers are read before a call is answered with others.
        if attack.vcpu.state(RegSet::GENERAL).is_err() {
            return false;
        }
        let registers = random.registers();
        attack.vcpu.set_state(&registers.into()).unwrap();
        let Ok(exit) = attack.vcpu.run(Entry::Answer(random.value())) else {
            return false;
        };
        seen.crossings += 1;
        match exit {
            Exit::Hypercall { .. } => seen.hypercalls += 1,
            Exit::Read { .. } | Exit::Write { .. } => seen.accesses += 1,
            Exit::Stopped(_) => seen.stopped += 1,
            Exit::Kicked => seen.kicked += 1,
            _ => {}
        }
    }
    // The last crossing may have killed it.
    if !attack.is_alive() {
        return false;
    }
    attack.expect_sandbox();
    true
}

fn fuzz_all(crossings: u64) {
    for (number, crossing) in CONTROLS.into_iter().enumerate() {
        let each = crossings / CONTROLS.len() as u64;
        let seen = fuzz(crossing, each, 0x5eed + number as u64);
        println!("{crossing:?}: {seen:?}");
        assert!(seen.hypercalls > each / 20, "{seen:?}");
        assert!(seen.accesses > each / 10, "{seen:?}");
        assert!(seen.stopped > each / 20, "{seen:?}");
    }
}

#[test]
fn random_crossings_stay_in_their_process() {
    fuzz_all(8_000);
}

#[test]
#[ignore = "long: make fuzz"]
fn ten_million_random_crossings_stay_in_their_process() {
    fuzz_all(CROSSINGS);
}
