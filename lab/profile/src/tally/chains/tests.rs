use super::*;

/// Where kernels are; the tests' user code is below 0x1000, guests' above.
const K: u64 = KERNEL;

/// A machine that executes what a test says, and counts everything.
struct Cpu {
    chains: Chains,
    last: u64,
    in_guest: bool,
}

impl Cpu {
    fn new() -> Self {
        let mut chains = Chains::new();
        chains.open();
        let (last, in_guest) = (0, false);
        Self {
            chains,
            last,
            in_guest,
        }
    }

    /// Executes the instruction at `address`.
    fn step(&mut self, address: u64) {
        self.chains.reach(address, self.in_guest, self.last);
        let context = self.chains.context();
        self.chains.count(context, address, 1);
        self.last = address;
    }

    fn turn(&mut self, flow: Flow, site: u64, slot: u64) {
        self.step(site);
        let slot = Slot {
            address: slot,
            physical: slot ^ u64::from(self.in_guest) << 60,
        };
        self.chains.turn(Turn {
            flow,
            site,
            behind: site + 5,
            slot,
        });
    }

    /// The call at `site` stores its return address in `slot`; control reaches
    /// `target`.
    fn call(&mut self, site: u64, slot: u64, target: u64) {
        self.turn(Flow::Call, site, slot);
        self.step(target);
    }

    /// The return at `site` loads from `slot`, and control reaches `target`.
    fn give_back(&mut self, site: u64, slot: u64, target: u64) {
        self.turn(Flow::Return, site, slot);
        self.step(target);
    }

    fn vmrun(&mut self, target: u64) {
        self.in_guest = true;
        self.step(target);
    }

    fn exit(&mut self, target: u64) {
        self.in_guest = false;
        self.step(target);
    }

    /// Of every path where something was executed: the sites that lead to it, and
    /// the addresses.
    fn told(mut self) -> Vec<(Vec<u64>, Vec<u64>)> {
        let mut path = Vec::new();
        let mut told = Vec::new();
        for context in self.chains.close() {
            if let Some(step) = context.step {
                path.truncate(context.depth - 1);
                path.push(step.site);
            }
            if !context.counts.is_empty() {
                let addresses = context.counts.iter().map(|(address, _)| *address);
                told.push((path.clone(), addresses.collect()));
            }
        }
        told
    }
}

#[track_caller]
fn assert_paths(cpu: Cpu, expected: &[(&[u64], &[u64])]) {
    let told = cpu.told();
    let told: Vec<_> = told.iter().map(|(p, a)| (&p[..], &a[..])).collect();
    assert_eq!(told, expected, "{told:x?}");
}

#[test]
fn calls_push_and_returns_pop() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.call(0x21, 0x7f0, 0x30);
    cpu.give_back(0x31, 0x7f0, 0x26);
    cpu.give_back(0x27, 0x800, 0x15);
    assert_paths(
        cpu,
        &[
            (&[], &[0x10, 0x15]),
            (&[0x10], &[0x20, 0x21, 0x26, 0x27]),
            (&[0x10, 0x21], &[0x30, 0x31]),
        ],
    );
}

#[test]
fn a_tail_jump_stays_in_the_frame_of_who_jumped() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.step(0x90);
    cpu.call(0x91, 0x7f0, 0x30);
    cpu.give_back(0x31, 0x7f0, 0x96);
    cpu.give_back(0x97, 0x800, 0x15);
    assert_paths(
        cpu,
        &[
            (&[], &[0x10, 0x15]),
            (&[0x10], &[0x20, 0x90, 0x91, 0x96, 0x97]),
            (&[0x10, 0x91], &[0x30, 0x31]),
        ],
    );
}

#[test]
fn recursion_is_as_deep_as_it_is() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.call(0x21, 0x7f0, 0x20);
    cpu.call(0x21, 0x7e0, 0x20);
    cpu.give_back(0x27, 0x7e0, 0x26);
    cpu.give_back(0x27, 0x7f0, 0x26);
    assert_paths(
        cpu,
        &[
            (&[], &[0x10]),
            (&[0x10], &[0x20, 0x21, 0x26]),
            (&[0x10, 0x21], &[0x20, 0x21, 0x26, 0x27]),
            (&[0x10, 0x21, 0x21], &[0x20, 0x27]),
        ],
    );
}

/// A retpoline: a call within it, whose return address it overwrites.
#[test]
fn a_thunk_returns_into_what_it_calls() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.call(0x20, 0x7f8, 0x28);
    cpu.give_back(0x29, 0x7f8, 0x30);
    cpu.give_back(0x31, 0x800, 0x15);
    let told = cpu.told();
    assert_eq!(told[0], (vec![], vec![0x10, 0x15]));
    assert_eq!(told[1], (vec![0x10], vec![0x20, 0x30, 0x31]));
}

#[test]
fn frames_that_are_left_without_a_return_are_gone() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    // The processor's return stack is filled, and the words are dropped.
    cpu.call(0x21, 0x7f8, 0x26);
    cpu.call(0x26, 0x7f0, 0x2b);
    cpu.call(0x2c, 0x7f8, 0x40);
    cpu.give_back(0x41, 0x7f8, 0x31);
    cpu.call(0x32, 0x7e8, 0x50);
    cpu.give_back(0x33, 0x800, 0x15);
    let told = cpu.told();
    assert!(told.contains(&(vec![0x10, 0x2c], vec![0x40, 0x41])));
    assert!(told.contains(&(vec![], vec![0x10, 0x15])));
}

#[test]
fn a_return_that_no_call_explains_begins_anew() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    // The first instruction of a thread, whose stack was written by hand.
    cpu.give_back(0x21, 0x9_0000, 0x60);
    cpu.call(0x61, 0x8_ff00, 0x70);
    // Back on the first stack.
    cpu.give_back(0x71, 0x800, 0x15);
    assert_paths(
        cpu,
        &[
            (&[], &[0x10, 0x15, 0x60, 0x61]),
            (&[0x10], &[0x20, 0x21]),
            (&[0x61], &[0x70, 0x71]),
        ],
    );
}

#[test]
fn an_address_that_was_pushed_to_be_jumped_to_changes_nothing() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.give_back(0x21, 0x7f8, 0x30);
    // And a return address may have been moved.
    cpu.give_back(0x31, 0x9_0000, 0x15);
    assert_paths(
        cpu,
        &[(&[], &[0x10, 0x15]), (&[0x10], &[0x20, 0x21, 0x30, 0x31])],
    );
}

#[test]
fn a_system_call_stands_on_the_program_and_is_gone_when_it_goes_on() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.step(0x21);
    cpu.step(K);
    cpu.call(K + 1, K + 0x800, K + 0x100);
    // Left without a return, as to a program by `sysret`.
    cpu.step(0x22);
    assert_paths(
        cpu,
        &[
            (&[], &[0x10]),
            (&[0x10], &[0x20, 0x21, 0x22]),
            (&[0x10, 0x21], &[K, K + 1]),
            (&[0x10, 0x21, K + 1], &[K + 0x100]),
        ],
    );
}

#[test]
fn an_interrupt_between_a_call_and_its_target_loses_neither() {
    let mut cpu = Cpu::new();
    cpu.turn(Flow::Call, 0x10, 0x800);
    cpu.step(K);
    cpu.step(0x20);
    cpu.give_back(0x21, 0x800, 0x15);
    assert_paths(
        cpu,
        &[
            (&[], &[0x10, 0x15]),
            (&[0x10], &[0x20, 0x21]),
            (&[0x10, 0x10], &[K]),
        ],
    );
}

#[test]
fn a_thread_that_is_switched_to_has_its_own_callers() {
    let mut cpu = Cpu::new();
    // One thread enters the kernel and gives up the processor.
    cpu.call(0x10, 0x800, 0x20);
    cpu.step(K);
    cpu.call(K + 1, K + 0x9_0800, K + 0x100);
    // Another, new, begins, runs its program, and is switched from.
    cpu.give_back(K + 0x110, K + 0x5_0000, K + 0x300);
    cpu.step(0x50);
    cpu.step(K);
    cpu.call(K + 1, K + 0x4_0800, K + 0x100);
    cpu.give_back(K + 0x111, K + 0x9_0800, K + 6);
    cpu.step(0x21);
    let told = cpu.told();
    let all = |path: &[u64]| {
        let found = told.iter().find(|(known, _)| known == path);
        found.map(|(_, addresses)| addresses.clone())
    };
    assert_eq!(all(&[0x10]), Some(vec![0x20, 0x21]));
    assert_eq!(all(&[0x10, 0x20]), Some(vec![K, K + 1, K + 6]));
    assert_eq!(all(&[0x50]), Some(vec![K, K + 1]));
    assert_eq!(all(&[]), Some(vec![0x10, 0x50, K + 0x300]));
}

#[test]
fn a_guest_stands_on_what_entered_it_and_keeps_its_frames() {
    let mut cpu = Cpu::new();
    for turn in [0, 1] {
        cpu.step(0x20);
        cpu.step(K);
        cpu.call(K + 1, K + 0x800, K + 0x100);
        if turn == 0 {
            cpu.vmrun(0x1010);
            // The guest may have its stack where the VMM has its own.
            cpu.call(0x1011, 0x800, 0x1020);
        } else {
            cpu.vmrun(0x1021);
            cpu.give_back(0x1022, 0x800, 0x1016);
        }
        cpu.exit(K + 0x103);
        cpu.give_back(K + 0x104, K + 0x800, K + 6);
    }
    let vmrun = [0x20, K + 1, K + 0x100];
    let in_guest = [0x20, K + 1, K + 0x100, 0x1011];
    assert_paths(
        cpu,
        &[
            (&[], &[0x20]),
            (&[0x20], &[K, K + 1, K + 6]),
            (&[0x20, K + 1], &[K + 0x100, K + 0x103, K + 0x104]),
            (&vmrun, &[0x1010, 0x1011, 0x1016]),
            (&in_guest, &[0x1020, 0x1021, 0x1022]),
        ],
    );
}

/// A window usually opens in a guest: all that stands below is known.
#[test]
fn each_window_begins_with_the_callers_that_there_are() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.step(K);
    cpu.vmrun(0x1010);
    let first = cpu.chains.close();
    cpu.chains.open();
    cpu.step(0x1011);
    assert_eq!(first.len(), 4);
    assert_paths(cpu, &[(&[0x10, 0x20, K], &[0x1011])]);
}

#[test]
fn a_chain_that_is_too_deep_begins_anew() {
    let mut cpu = Cpu::new();
    for depth in 0..u64::from(DEEPEST) + 3 {
        cpu.call(0x10, 0x10_0000 - 8 * depth, 0x10);
    }
    let deepest = cpu.chains.close().iter().map(|c| c.depth).max();
    assert_eq!(deepest, Some(DEEPEST as usize + 1));
}
