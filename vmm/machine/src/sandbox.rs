//! What this process may still do while a guest runs.
//!
//! A seccomp filter for each kind of thread allows a dozen system calls by number and kills the process for
//! any other. It looks at no arguments, so that the kernel can decide each call from
//! its number alone: looking at those of `ioctl` would cost 350 to 1,000
//! instructions at every exit. What this leaves to a guest that has taken this
//! process over: any request to the descriptors that are open (its own machine, its
//! console, its events), reading and writing them, and burning CPU time. It can
//! open no file or socket, map no memory, start no process or thread, and signal
//! nobody.
//!
//! The compiler makes the filter: a search tree, because the kernel tries it with
//! every system call's number when it is put on. A list of comparisons, as general
//! tools make them, would take a sixth of the time until the guest's first
//! instruction.

use std::io;

/// Which thread is to be confined: each may do what its work needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It runs the vCPU, alone.
    Vcpu,
    /// It runs the vCPU, and other threads work for it.
    VcpuWithHelpers,
    /// It keeps time for the guest.
    Ticker,
    /// It writes what the guest sends over its serial line.
    SerialLine,
}

// System calls allowed, in ascending order.

const VCPU: [libc::c_long; 10] = [
    libc::SYS_read,  // console input
    libc::SYS_write, // console, events, messages
    libc::SYS_poll,  // whether there is input, or room for output
    libc::SYS_brk,   // small allocations, for messages
    libc::SYS_rt_sigreturn,
    libc::SYS_ioctl,   // the vCPU and its machine
    libc::SYS_pread64, // the kernel's counts
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // CPU time
    libc::SYS_exit_group,
];

const VCPU_WITH_HELPERS: [libc::c_long; 11] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_poll,
    libc::SYS_brk,
    libc::SYS_rt_sigreturn,
    libc::SYS_ioctl,
    libc::SYS_pread64,
    libc::SYS_futex, // words with the others
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_exit_group,
];

const TICKER: [libc::c_long; 7] = [
    libc::SYS_write, // messages
    libc::SYS_ioctl, // interrupts
    libc::SYS_futex, // orders
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // where it takes a system call
    libc::SYS_clock_nanosleep,
    libc::SYS_exit_group,
];

const SERIAL_LINE: [libc::c_long; 7] = [
    libc::SYS_write,
    libc::SYS_poll,  // whether there is room
    libc::SYS_futex, // bytes to send
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // where it takes a system call
    libc::SYS_clock_nanosleep,
    libc::SYS_exit_group,
];

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
const MOST_BOUNDS: usize = 2 * VCPU_WITH_HELPERS.len();
const MOST_STEPS: usize = TREE + MOST_BOUNDS + 2;

static OF_VCPU: Filter = compile(&VCPU);
static OF_VCPU_WITH_HELPERS: Filter = compile(&VCPU_WITH_HELPERS);
static OF_TICKER: Filter = compile(&TICKER);
static OF_SERIAL_LINE: Filter = compile(&SERIAL_LINE);

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
}

impl Bounds {
    const fn of(allowed: &[libc::c_long]) -> Self {
        let mut bounds = Self {
            at: [0; MOST_BOUNDS],
            count: 0,
        };
        let mut i = 0;
        while i < allowed.len() {
            assert!(
                i == 0 || allowed[i - 1] < allowed[i],
                "the numbers must ascend"
            );
            let number = allowed[i] as u32;
            if bounds.count > 0 && bounds.at[bounds.count - 1] == number {
                bounds.at[bounds.count - 1] = number + 1;
            } else {
                bounds.at[bounds.count] = number;
                bounds.at[bounds.count + 1] = number + 1;
                bounds.count += 2;
            }
            i += 1;
        }
        bounds
    }

    const fn kill(&self) -> usize {
        TREE + self.count
    }

    const fn allow(&self) -> usize {
        self.kill() + 1
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
/// Behind an odd number of bounds numbers are allowed.
const fn tree_or_verdict(bounds: &Bounds, tree: usize, from: usize, to: usize) -> usize {
    match (from == to, from % 2) {
        (false, _) => tree,
        (true, 1) => bounds.allow(),
        (true, _) => bounds.kill(),
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
        Role::Ticker => &OF_TICKER,
        Role::SerialLine => &OF_SERIAL_LINE,
    }
}

fn check(status: libc::c_long) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do: runs the program on one call.
    fn verdict(filter: &Filter, architecture: u32, number: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = filter.steps[..filter.length][at];
            at += 1;
            let jump = |holds| usize::from(if holds { step.jt } else { step.jf });
            match step.code {
                LOAD if step.k == NUMBER => loaded = number,
                LOAD => loaded = architecture,
                IF_EQUAL => at += jump(loaded == step.k),
                IF_NOT_BELOW => at += jump(loaded >= step.k),
                _ => return step.k,
            }
        }
    }

    #[test]
    fn what_is_allowed_is_the_list_and_nothing_else() {
        let lists: [(Role, &[libc::c_long]); 4] = [
            (Role::Vcpu, &VCPU),
            (Role::VcpuWithHelpers, &VCPU_WITH_HELPERS),
            (Role::Ticker, &TICKER),
            (Role::SerialLine, &SERIAL_LINE),
        ];
        let edges = [u32::MAX, 1 << 30, 1 << 31, (1 << 30) + 16];
        for (role, list) in lists {
            let filter = filter_of(role);
            for number in (0..2000).chain(edges) {
                let allowed = verdict(filter, X86_64, number) == libc::SECCOMP_RET_ALLOW;
                let listed = list.contains(&number.into());
                assert_eq!(allowed, listed, "{role:?}: system call {number}");
                let elsewhere = verdict(filter, 0x4000_0003, number);
                assert_ne!(elsewhere, libc::SECCOMP_RET_ALLOW);
            }
        }
    }

    #[test]
    fn words_with_others_are_all_that_helpers_add() {
        let added = VCPU_WITH_HELPERS.iter().filter(|call| !VCPU.contains(call));
        assert_eq!(added.collect::<Vec<_>>(), [&libc::SYS_futex]);
        assert_eq!(VCPU.len() + 1, VCPU_WITH_HELPERS.len());
    }
}
