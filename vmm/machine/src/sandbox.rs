//! Seccomp filters.
//!
//! Each kind of thread has a filter that allows about a dozen system calls by number and kills the process for
//! any other. The kernel caches verdicts that do not depend on arguments; a filter that inspects the arguments of
//! `ioctl` costs 350 to 1,000 instructions per exit. Only rare calls, for memory and sockets, are restricted by
//! argument: memory is private and not executable.
//!
//! A guest that takes over the process can still make any request to the open descriptors (its VM, console and
//! events), read and write them, and use CPU time. It cannot open files, start processes or threads, or send
//! signals. It can create sockets only if its guest may connect to the host, and map memory only if its guest may
//! request it.
//!
//! Filters are compiled at build time to a search tree, because the kernel evaluates each system call number at
//! installation. A linear list would take a sixth of the time to the guest's first instruction.

mod calls;
mod guard;
mod role;

use crate::Failure;
use calls::{
    CONSOLE_WRITER, CONTROL, DISK_POOL, DISK_RING, DISK_WORKER, IMAGE_DISK_POOL, IMAGE_DISK_RING,
    IMAGE_ENTROPY, IMAGE_NET, IMAGE_NET_EXTERNAL, LIMITS, NET, NET_EXTERNAL, NET_KERNEL, PROCESS,
    TICKER, VCPU, VCPU_WITH_BOTH, VCPU_WITH_HELPERS, VCPU_WITH_MEMORY, VCPU_WITH_TIMER, VSOCK,
    VSOCK_IN,
};
pub use guard::guard;
pub use role::Role;
use std::io;

// BPF opcodes (linux/bpf_common.h) and offsets (linux/seccomp.h).
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_NOT_BELOW: u16 = 0x35;
const RETURN: u16 = 0x06;
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const X86_64: u32 = 0xc000_003e;

/// Upper bound of system call numbers.
const NUMBERS: u32 = 460;

/// Start of the tree, behind the check of the architecture.
const TREE: usize = 4;

/// Capacity of a list of bounds.
const MAX_BOUNDS: usize = 2 * PROCESS.len();
/// Most steps that check the arguments of the calls in one filter.
const MAX_LOOKS: usize = 18;
const MAX_STEPS: usize = TREE + MAX_BOUNDS + MAX_LOOKS + 2;

/// Offset of the lower half of the first argument, and distance between arguments.
const ARGUMENTS: u32 = 16;
const ARGUMENT: u32 = 8;

static OF_VCPU: Filter = compile(&VCPU);
static OF_VCPU_WITH_TIMER: Filter = compile(&VCPU_WITH_TIMER);
static OF_VCPU_WITH_HELPERS: Filter = compile(&VCPU_WITH_HELPERS);
static OF_VCPU_WITH_MEMORY: Filter = compile(&VCPU_WITH_MEMORY);
static OF_VCPU_WITH_BOTH: Filter = compile(&VCPU_WITH_BOTH);
static OF_PROCESS: Filter = compile(&PROCESS);
static OF_TICKER: Filter = compile(&TICKER);
static OF_CONSOLE_WRITER: Filter = compile(&CONSOLE_WRITER);
static OF_CONTROL: Filter = compile(&CONTROL);
static OF_DISK_RING: Filter = compile(&DISK_RING);
static OF_DISK_POOL: Filter = compile(&DISK_POOL);
static OF_IMAGE_DISK_RING: Filter = compile(&IMAGE_DISK_RING);
static OF_IMAGE_DISK_POOL: Filter = compile(&IMAGE_DISK_POOL);
static OF_IMAGE_ENTROPY: Filter = compile(&IMAGE_ENTROPY);
static OF_DISK_WORKER: Filter = compile(&DISK_WORKER);
static OF_NET: Filter = compile(&NET);
static OF_IMAGE_NET: Filter = compile(&IMAGE_NET);
static OF_NET_KERNEL: Filter = compile(&NET_KERNEL);
static OF_NET_EXTERNAL: Filter = compile(&NET_EXTERNAL);
static OF_IMAGE_NET_EXTERNAL: Filter = compile(&IMAGE_NET_EXTERNAL);
static OF_VSOCK: Filter = compile(&VSOCK);
static OF_VSOCK_IN: Filter = compile(&VSOCK_IN);

/// A BPF program.
struct Filter {
    steps: [libc::sock_filter; MAX_STEPS],
    length: usize,
}

/// Boundaries between ranges of denied and allowed numbers, alternating from denied.
#[derive(Clone, Copy)]
struct Bounds {
    at: [u32; MAX_BOUNDS],
    count: usize,
    /// Start of the argument checks of each limited call; 0 if not allowed.
    looks: [usize; LIMITS.len()],
    /// Position of the kill step, behind the last check.
    kill: usize,
}

impl Bounds {
    const fn of(allowed: &[libc::c_long]) -> Self {
        let mut bounds = Self {
            at: [0; MAX_BOUNDS],
            count: 0,
            looks: [0; LIMITS.len()],
            kill: 0,
        };
        let mut i = 0;
        while i < allowed.len() {
            assert!(
                i == 0 || allowed[i - 1] < allowed[i],
                "the numbers must ascend"
            );
            let number = allowed[i] as u32;
            let joins = bounds.count > 0 && bounds.at[bounds.count - 1] == number;
            // A call with argument checks is a range of its own.
            if joins && !is_limited(number) && !is_limited(number - 1) {
                bounds.at[bounds.count - 1] = number + 1;
            } else {
                bounds.at[bounds.count] = number;
                bounds.at[bounds.count + 1] = number + 1;
                bounds.count += 2;
            }
            i += 1;
        }
        bounds.place_looks();
        bounds
    }

    /// Places argument checks between the tree and the verdicts.
    const fn place_looks(&mut self) {
        self.kill = TREE + self.count;
        let mut limit = 0;
        while limit < LIMITS.len() {
            let number = LIMITS[limit].0 as u32;
            let mut i = 0;
            while i < self.count {
                if self.at[i] == number && i.is_multiple_of(2) {
                    assert!(self.at[i + 1] == number + 1, "its neighbour is allowed");
                    self.looks[limit] = self.kill;
                    self.kill += looks_at(limit);
                }
                i += 1;
            }
            limit += 1;
        }
    }

    const fn allow(&self) -> usize {
        self.kill + 1
    }

    /// Returns the verdict for numbers from the bound before `from`: allowed behind an odd number of bounds.
    const fn verdict(&self, from: usize) -> usize {
        if from.is_multiple_of(2) {
            return self.kill;
        }
        let mut limit = 0;
        while limit < LIMITS.len() {
            if self.looks[limit] != 0 && LIMITS[limit].0 as u32 == self.at[from - 1] {
                return self.looks[limit];
            }
            limit += 1;
        }
        self.allow()
    }
}

/// Returns true if the arguments of this call are restricted.
const fn is_limited(number: u32) -> bool {
    let mut limit = 0;
    while limit < LIMITS.len() {
        if LIMITS[limit].0 as u32 == number {
            return true;
        }
        limit += 1;
    }
    false
}

/// Number of steps that check a limited call's arguments.
const fn looks_at(limit: usize) -> usize {
    let (mut steps, mut i) = (0, 0);
    while i < LIMITS[limit].1.len() {
        steps += 1 + LIMITS[limit].1[i].1.len();
        i += 1;
    }
    steps
}

/// Emits the argument checks of a call.
const fn look(steps: &mut [libc::sock_filter; MAX_STEPS], bounds: &Bounds, limit: usize) {
    let mut at = bounds.looks[limit];
    let questions = LIMITS[limit].1;
    let mut i = 0;
    while at != 0 && i < questions.len() {
        let (argument, values) = questions[i];
        steps[at] = step(LOAD, ARGUMENTS + ARGUMENT * argument);
        let behind = at + 1 + values.len();
        let last = i + 1 == questions.len();
        let mut value = 0;
        while value < values.len() {
            at += 1;
            steps[at] = step(IF_EQUAL, values[value] as u32);
            steps[at].jt = distance(at, if last { bounds.allow() } else { behind });
            let none = value + 1 == values.len();
            steps[at].jf = distance(at, if none { bounds.kill } else { at + 1 });
            value += 1;
        }
        at = behind;
        i += 1;
    }
}

const fn compile(allowed: &[libc::c_long]) -> Filter {
    let bounds = Bounds::of(allowed);
    let kill = step(RETURN, libc::SECCOMP_RET_KILL_PROCESS);
    let mut steps = [kill; MAX_STEPS];
    steps[0] = step(LOAD, ARCHITECTURE);
    steps[1] = step(IF_EQUAL, X86_64);
    steps[1].jt = 1; // past the kill that stands at 2
    steps[3] = step(LOAD, NUMBER);
    plant(&mut steps, TREE, &bounds, 0, bounds.count);
    let mut limit = 0;
    while limit < LIMITS.len() {
        look(&mut steps, &bounds, limit);
        limit += 1;
    }
    steps[bounds.allow()] = step(RETURN, libc::SECCOMP_RET_ALLOW);
    Filter {
        steps,
        length: bounds.allow() + 1,
    }
}

/// Emits the tree for `bounds[from..to]` at `at`: a comparison, the lower subtree, the upper subtree.
const fn plant(
    steps: &mut [libc::sock_filter; MAX_STEPS],
    at: usize,
    bounds: &Bounds,
    from: usize,
    to: usize,
) {
    if from == to {
        return;
    }
    let middle = halfway(bounds, from, to);
    let (below, above) = (at + 1, at + 1 + middle - from);
    steps[at] = step(IF_NOT_BELOW, bounds.at[middle]);
    steps[at].jf = distance(at, tree_or_verdict(bounds, below, from, middle));
    steps[at].jt = distance(at, tree_or_verdict(bounds, above, middle + 1, to));
    plant(steps, below, bounds, from, middle);
    plant(steps, above, bounds, middle + 1, to);
}

/// Returns the position of the subtree, or of the verdict if no bounds are left.
const fn tree_or_verdict(bounds: &Bounds, tree: usize, from: usize, to: usize) -> usize {
    if from == to {
        bounds.verdict(from)
    } else {
        tree
    }
}

const fn distance(from: usize, to: usize) -> u8 {
    let distance = to - from - 1;
    assert!(distance <= u8::MAX as usize, "a jump goes no further");
    distance as u8
}

/// Returns the bound that best halves the range of numbers (not of bounds), since each number is tried once.
const fn halfway(bounds: &Bounds, from: usize, to: usize) -> usize {
    let low = if from == 0 { 0 } else { bounds.at[from - 1] };
    let high = if to == bounds.count {
        NUMBERS
    } else {
        bounds.at[to]
    };
    let half = low + (high - low) / 2;
    let mut best = from;
    let mut i = from + 1;
    while i < to {
        if bounds.at[i].abs_diff(half) < bounds.at[best].abs_diff(half) {
            best = i;
        }
        i += 1;
    }
    best
}

const fn step(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Enters the filter of `role`, permanently, if `enabled`.
///
/// # Errors
/// The kernel lacks seccomp filters.
pub fn enter(role: Role, enabled: bool) -> Result<(), Failure> {
    if !enabled {
        return Ok(());
    }
    let filter = filter_of(role);
    install(&filter.steps[..filter.length]).map_err(Failure::system(
        "put on the seccomp filter (try --no-sandbox)",
    ))
}

/// Adds a filter to this thread and those that it starts, permanently.
fn install(steps: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        // The kernel only reads it.
        filter: steps.as_ptr().cast_mut(),
    };
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    // SAFETY: the program has the length that is passed; the kernel copies it.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    })
}

fn filter_of(role: Role) -> &'static Filter {
    match role {
        Role::Vcpu => &OF_VCPU,
        Role::VcpuWithTimer => &OF_VCPU_WITH_TIMER,
        Role::VcpuWithHelpers => &OF_VCPU_WITH_HELPERS,
        Role::VcpuWithMemory => &OF_VCPU_WITH_MEMORY,
        Role::VcpuWithBoth => &OF_VCPU_WITH_BOTH,
        Role::Process => &OF_PROCESS,
        Role::Ticker => &OF_TICKER,
        Role::ConsoleWriter => &OF_CONSOLE_WRITER,
        Role::Control => &OF_CONTROL,
        Role::DiskRing => &OF_DISK_RING,
        Role::DiskPool => &OF_DISK_POOL,
        Role::ImageDiskRing => &OF_IMAGE_DISK_RING,
        Role::ImageDiskPool => &OF_IMAGE_DISK_POOL,
        Role::ImageEntropy => &OF_IMAGE_ENTROPY,
        Role::DiskWorker => &OF_DISK_WORKER,
        Role::Net => &OF_NET,
        Role::ImageNet => &OF_IMAGE_NET,
        Role::NetKernel => &OF_NET_KERNEL,
        Role::NetExternal => &OF_NET_EXTERNAL,
        Role::ImageNetExternal => &OF_IMAGE_NET_EXTERNAL,
        Role::Vsock => &OF_VSOCK,
        Role::VsockIn => &OF_VSOCK_IN,
    }
}

fn check(status: libc::c_long) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
