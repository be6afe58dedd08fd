use super::*;

/// First address of the kernel. User code of the tests is below 0x1000, guest code above.
const K: u64 = KERNEL;

/// A CPU that counts every instruction.
struct Cpu {
    chains: CallChains,
    last: u64,
    in_guest: bool,
}

impl Cpu {
    fn new() -> Self {
        let mut chains = CallChains::new();
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
        let path = self.chains.path();
        self.chains.count(path, address, 1);
        self.last = address;
    }

    fn transfer(&mut self, flow: Flow, site: u64, slot: u64) {
        self.step(site);
        let slot = StackSlot {
            address: slot,
            physical: slot ^ u64::from(self.in_guest) << 60,
        };
        self.chains.transfer(Transfer {
            flow,
            site,
            next_address: site + 5,
            slot,
        });
    }

    /// Executes the call at `site`, which stores its return address in `slot`, then `target`.
    fn call(&mut self, site: u64, slot: u64, target: u64) {
        self.transfer(Flow::Call, site, slot);
        self.step(target);
    }

    /// Executes the return at `site`, which loads from `slot`, then `target`.
    fn ret(&mut self, site: u64, slot: u64, target: u64) {
        self.transfer(Flow::Return, site, slot);
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

    /// Returns, for every path with executions, its call sites and the addresses executed.
    fn executed(mut self) -> Vec<(Vec<u64>, Vec<u64>)> {
        let mut path = Vec::new();
        let mut executed = Vec::new();
        for call_path in self.chains.close() {
            if let Some(step) = call_path.step {
                path.truncate(call_path.depth - 1);
                path.push(step.site);
            }
            if !call_path.counts.is_empty() {
                let addresses = call_path.counts.iter().map(|(address, _)| *address);
                executed.push((path.clone(), addresses.collect()));
            }
        }
        executed
    }
}

#[track_caller]
fn assert_paths(cpu: Cpu, expected: &[(&[u64], &[u64])]) {
    let executed = cpu.executed();
    let executed: Vec<_> = executed.iter().map(|(p, a)| (&p[..], &a[..])).collect();
    assert_eq!(executed, expected, "{executed:x?}");
}

#[test]
fn calls_push_and_returns_pop() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.call(0x21, 0x7f0, 0x30);
    cpu.ret(0x31, 0x7f0, 0x26);
    cpu.ret(0x27, 0x800, 0x15);
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
fn tail_jumps_stay_in_their_frame() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.step(0x90);
    cpu.call(0x91, 0x7f0, 0x30);
    cpu.ret(0x31, 0x7f0, 0x96);
    cpu.ret(0x97, 0x800, 0x15);
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
fn recursion_adds_a_frame_per_call() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.call(0x21, 0x7f0, 0x20);
    cpu.call(0x21, 0x7e0, 0x20);
    cpu.ret(0x27, 0x7e0, 0x26);
    cpu.ret(0x27, 0x7f0, 0x26);
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

/// A retpoline calls within itself and overwrites the return address.
#[test]
fn thunks_return_into_their_target() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.call(0x20, 0x7f8, 0x28);
    cpu.ret(0x29, 0x7f8, 0x30);
    cpu.ret(0x31, 0x800, 0x15);
    let executed = cpu.executed();
    assert_eq!(executed[0], (vec![], vec![0x10, 0x15]));
    assert_eq!(executed[1], (vec![0x10], vec![0x20, 0x30, 0x31]));
}

#[test]
fn frames_left_without_a_return_are_dropped() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    // Code that fills the CPU's return stack and drops the words.
    cpu.call(0x21, 0x7f8, 0x26);
    cpu.call(0x26, 0x7f0, 0x2b);
    cpu.call(0x2c, 0x7f8, 0x40);
    cpu.ret(0x41, 0x7f8, 0x31);
    cpu.call(0x32, 0x7e8, 0x50);
    cpu.ret(0x33, 0x800, 0x15);
    let executed = cpu.executed();
    assert!(executed.contains(&(vec![0x10, 0x2c], vec![0x40, 0x41])));
    assert!(executed.contains(&(vec![], vec![0x10, 0x15])));
}

#[test]
fn return_without_a_call_starts_at_the_root() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    // A new thread, whose stack the kernel prepared.
    cpu.ret(0x21, 0x9_0000, 0x60);
    cpu.call(0x61, 0x8_ff00, 0x70);
    // Back on the first stack.
    cpu.ret(0x71, 0x800, 0x15);
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
fn pushed_jump_target_keeps_the_path() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.ret(0x21, 0x7f8, 0x30);
    // A copied return address.
    cpu.ret(0x31, 0x9_0000, 0x15);
    assert_paths(
        cpu,
        &[(&[], &[0x10, 0x15]), (&[0x10], &[0x20, 0x21, 0x30, 0x31])],
    );
}

#[test]
fn system_calls_continue_the_path_of_the_program() {
    let mut cpu = Cpu::new();
    cpu.call(0x10, 0x800, 0x20);
    cpu.step(0x21);
    cpu.step(K);
    cpu.call(K + 1, K + 0x800, K + 0x100);
    // SYSRET leaves the kernel without a return.
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
fn interrupt_between_call_and_target_keeps_both() {
    let mut cpu = Cpu::new();
    cpu.transfer(Flow::Call, 0x10, 0x800);
    cpu.step(K);
    cpu.step(0x20);
    cpu.ret(0x21, 0x800, 0x15);
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
fn switched_threads_keep_their_callers() {
    let mut cpu = Cpu::new();
    // One thread enters the kernel and yields.
    cpu.call(0x10, 0x800, 0x20);
    cpu.step(K);
    cpu.call(K + 1, K + 0x9_0800, K + 0x100);
    // A new thread starts, runs its program, and yields.
    cpu.ret(K + 0x110, K + 0x5_0000, K + 0x300);
    cpu.step(0x50);
    cpu.step(K);
    cpu.call(K + 1, K + 0x4_0800, K + 0x100);
    cpu.ret(K + 0x111, K + 0x9_0800, K + 6);
    cpu.step(0x21);
    let executed = cpu.executed();
    let all = |path: &[u64]| {
        let found = executed.iter().find(|(known, _)| known == path);
        found.map(|(_, addresses)| addresses.clone())
    };
    assert_eq!(all(&[0x10]), Some(vec![0x20, 0x21]));
    assert_eq!(all(&[0x10, 0x20]), Some(vec![K, K + 1, K + 6]));
    assert_eq!(all(&[0x50]), Some(vec![K, K + 1]));
    assert_eq!(all(&[]), Some(vec![0x10, 0x50, K + 0x300]));
}

#[test]
fn guest_paths_continue_the_host_path() {
    let mut cpu = Cpu::new();
    for round in [0, 1] {
        cpu.step(0x20);
        cpu.step(K);
        cpu.call(K + 1, K + 0x800, K + 0x100);
        if round == 0 {
            cpu.vmrun(0x1010);
            // Guest and VMM may use equal stack addresses.
            cpu.call(0x1011, 0x800, 0x1020);
        } else {
            cpu.vmrun(0x1021);
            cpu.ret(0x1022, 0x800, 0x1016);
        }
        cpu.exit(K + 0x103);
        cpu.ret(K + 0x104, K + 0x800, K + 6);
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

/// Windows usually open in a guest; the callers of its host are known.
#[test]
fn windows_begin_with_the_current_callers() {
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
fn too_deep_chains_restart_at_the_root() {
    let mut cpu = Cpu::new();
    for depth in 0..u64::from(MAX_DEPTH) + 3 {
        cpu.call(0x10, 0x10_0000 - 8 * depth, 0x10);
    }
    let max_depth = cpu.chains.close().iter().map(|c| c.depth).max();
    assert_eq!(max_depth, Some(MAX_DEPTH as usize + 1));
}
