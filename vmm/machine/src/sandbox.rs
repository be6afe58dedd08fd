//! What this process may still do while a guest runs.
//!
//! A seccomp filter for each kind of thread allows a dozen system calls by number and kills the process for
//! any other. It looks at no arguments, so that the kernel can decide each call from
//! its number alone: looking at those of `ioctl` would cost 350 to 1,000
//! instructions at every exit. Only the rare calls that give a guest memory or connect it
//! are looked at, where any are allowed: that memory is private, and never executable. What this
//! leaves to a guest that has taken this
//! process over: any request to the descriptors that are open (its own machine, its
//! console, its events), reading and writing them, and burning CPU time. It can
//! open no file, start no process or thread, and signal nobody; make a socket it can
//! only where its guest may connect to programs of the host, and map memory only where
//! its guest may ask for some.
//!
//! The compiler makes the filter: a search tree, because the kernel tries it with
//! every system call's number when it is put on. A list of comparisons, as general
//! tools make them, would take a sixth of the time until the guest's first
//! instruction.

mod calls;

use crate::{Failure, Settings};
use calls::{
    CONTROL, DISK_POOL, DISK_RING, DISK_WORKER, LIMITS, NET, SERIAL_LINE, TICKER, VCPU,
    VCPU_WITH_BOTH, VCPU_WITH_HELPERS, VCPU_WITH_MEMORY, VSOCK, VSOCK_IN,
};
use std::io;

/// Which thread is to be confined: each may do what its work needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It runs the vCPU, alone.
    Vcpu,
    /// It runs the vCPU, and other threads work for it.
    VcpuWithHelpers,
    /// It runs the vCPU, alone, and gives its guest memory.
    VcpuWithMemory,
    /// It runs the vCPU, other threads work for it, and it gives its guest memory.
    VcpuWithBoth,
    /// It keeps time for the guest.
    Ticker,
    /// It writes what the guest sends over its serial line.
    SerialLine,
    /// It serves devices at the speed of people.
    Control,
    /// It serves a disk, by a ring of the kernel's.
    DiskRing,
    /// It serves a disk, and others make the system calls.
    DiskPool,
    /// It makes the system calls of a disk.
    DiskWorker,
    /// It serves a network card.
    Net,
    /// It serves streams between guest and host, which either of them may begin.
    Vsock,
    /// The same where only the host may.
    VsockIn,
}

// Instructions (linux/bpf_common.h) and where they look (linux/seccomp.h).
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_NOT_BELOW: u16 = 0x35;
const RETURN: u16 = 0x06;
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const X86_64: u32 = 0xc000_003e;

/// About as many system calls as there are.
const NUMBERS: u32 = 460;

/// Where the tree begins: behind the question for the architecture.
const TREE: usize = 4;

/// The most bounds that a list of allowed numbers has.
const MOST_BOUNDS: usize = 2 * VCPU_WITH_BOTH.len();
/// Steps that look at the arguments of all calls in [`LIMITS`].
const MOST_LOOKS: usize = 18;
const MOST_STEPS: usize = TREE + MOST_BOUNDS + MOST_LOOKS + 2;

/// Where the lower half of the first argument is, and from one to the next.
const ARGUMENTS: u32 = 16;
const ARGUMENT: u32 = 8;

static OF_VCPU: Filter = compile(&VCPU);
static OF_VCPU_WITH_HELPERS: Filter = compile(&VCPU_WITH_HELPERS);
static OF_VCPU_WITH_MEMORY: Filter = compile(&VCPU_WITH_MEMORY);
static OF_VCPU_WITH_BOTH: Filter = compile(&VCPU_WITH_BOTH);
static OF_TICKER: Filter = compile(&TICKER);
static OF_SERIAL_LINE: Filter = compile(&SERIAL_LINE);
static OF_CONTROL: Filter = compile(&CONTROL);
static OF_DISK_RING: Filter = compile(&DISK_RING);
static OF_DISK_POOL: Filter = compile(&DISK_POOL);
static OF_DISK_WORKER: Filter = compile(&DISK_WORKER);
static OF_NET: Filter = compile(&NET);
static OF_VSOCK: Filter = compile(&VSOCK);
static OF_VSOCK_IN: Filter = compile(&VSOCK_IN);

/// A program for the kernel.
struct Filter {
    steps: [libc::sock_filter; MOST_STEPS],
    length: usize,
}

/// Where allowed numbers begin and end: below the first none is allowed, from
/// there to the second all are, and so on.
#[derive(Clone, Copy)]
struct Bounds {
    at: [u32; MOST_BOUNDS],
    count: usize,
    /// Where the looks at a limited call's arguments begin; 0 if it is not allowed.
    looks: [usize; LIMITS.len()],
    /// Behind the last look.
    kill: usize,
}

impl Bounds {
    const fn of(allowed: &[libc::c_long]) -> Self {
        let mut bounds = Self {
            at: [0; MOST_BOUNDS],
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
            // A call that is looked at stands alone.
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

    /// Looks come behind the tree, and before the verdicts that they lead to.
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

    /// Where it is decided about the numbers from the bound before `from` on: behind an
    /// odd number of bounds they are allowed.
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

/// Whether not every form of this call is allowed.
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

/// Steps that look at a limited call's arguments.
const fn looks_at(limit: usize) -> usize {
    let (mut steps, mut i) = (0, 0);
    while i < LIMITS[limit].1.len() {
        steps += 1 + LIMITS[limit].1[i].1.len();
        i += 1;
    }
    steps
}

/// Puts these steps there: each argument has to have one of its values.
const fn look(steps: &mut [libc::sock_filter; MOST_STEPS], bounds: &Bounds, limit: usize) {
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
    let mut steps = [kill; MOST_STEPS];
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

/// Puts the tree for `bounds[from..to]` at `at`: a question, the tree for what is
/// below, the tree for what is not.
const fn plant(
    steps: &mut [libc::sock_filter; MOST_STEPS],
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

/// Where to go on: at the tree, or where there are no bounds left, at the verdict.
const fn tree_or_verdict(bounds: &Bounds, tree: usize, from: usize, to: usize) -> usize {
    match from == to {
        false => tree,
        true => bounds.verdict(from),
    }
}

const fn distance(from: usize, to: usize) -> u8 {
    let distance = to - from - 1;
    assert!(distance <= u8::MAX as usize, "a jump goes no further");
    distance as u8
}

/// The bound that comes nearest to halving the numbers (not the bounds) between
/// its neighbours: each number is tried once.
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

/// Confines this thread, which runs a vCPU, unless nobody wants that.
///
/// # Errors
/// The kernel's refusal: it was built without seccomp filters.
pub fn confine(settings: &Settings) -> Result<(), Failure> {
    match settings.sandbox {
        true => enter(settings.role()).map_err(Failure::system(
            "put on the seccomp filter (try --no-sandbox)",
        )),
        false => Ok(()),
    }
}

/// Confines this thread, for good.
///
/// # Errors
/// The kernel's refusal: it was built without seccomp filters.
pub fn enter(role: Role) -> io::Result<()> {
    let filter = filter_of(role);
    let program = libc::sock_fprog {
        len: filter.length as u16,
        // The kernel only reads it.
        filter: filter.steps.as_ptr().cast_mut(),
    };
    // SAFETY: this request takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    // SAFETY: the program points at as many instructions as it says, which live
    // for ever; the kernel checks and copies them.
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
        Role::VcpuWithHelpers => &OF_VCPU_WITH_HELPERS,
        Role::VcpuWithMemory => &OF_VCPU_WITH_MEMORY,
        Role::VcpuWithBoth => &OF_VCPU_WITH_BOTH,
        Role::Ticker => &OF_TICKER,
        Role::SerialLine => &OF_SERIAL_LINE,
        Role::Control => &OF_CONTROL,
        Role::DiskRing => &OF_DISK_RING,
        Role::DiskPool => &OF_DISK_POOL,
        Role::DiskWorker => &OF_DISK_WORKER,
        Role::Net => &OF_NET,
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
