//! What this process may still do while a guest runs.
//!
//! A seccomp filter allows a dozen system calls by number and kills the process for
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

/// Allowed, in ascending order.
const ALLOWED: [libc::c_long; 10] = [
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

const BOUNDS: usize = count_bounds();
/// Where the tree begins: behind the question for the architecture.
const TREE: usize = 4;
const KILL: usize = TREE + BOUNDS;
const ALLOW: usize = KILL + 1;
const LENGTH: usize = ALLOW + 1;

static FILTER: [libc::sock_filter; LENGTH] = compile();

/// Where allowed numbers begin and end: below the first none is allowed, from
/// there to the second all are, and so on.
const fn count_bounds() -> usize {
    let mut count = 2 * ALLOWED.len();
    let mut i = 1;
    while i < ALLOWED.len() {
        assert!(ALLOWED[i - 1] < ALLOWED[i], "the numbers must ascend");
        if ALLOWED[i - 1] + 1 == ALLOWED[i] {
            count -= 2;
        }
        i += 1;
    }
    count
}

const fn bounds() -> [u32; BOUNDS] {
    let mut bounds = [0; BOUNDS];
    let mut used = 0;
    let mut i = 0;
    while i < ALLOWED.len() {
        let number = ALLOWED[i] as u32;
        if used > 0 && bounds[used - 1] == number {
            bounds[used - 1] = number + 1;
        } else {
            bounds[used] = number;
            bounds[used + 1] = number + 1;
            used += 2;
        }
        i += 1;
    }
    bounds
}

const fn compile() -> [libc::sock_filter; LENGTH] {
    let kill = step(RETURN, libc::SECCOMP_RET_KILL_PROCESS);
    let mut program = [kill; LENGTH];
    program[0] = step(LOAD, ARCHITECTURE);
    program[1] = step(IF_EQUAL, X86_64);
    program[1].jt = 1; // past the kill that stands at 2
    program[3] = step(LOAD, NUMBER);
    plant(&mut program, TREE, &bounds(), 0, BOUNDS);
    program[ALLOW] = step(RETURN, libc::SECCOMP_RET_ALLOW);
    program
}

/// Puts the tree for `bounds[from..to]` at `at`: a question, the tree for what is
/// below, the tree for what is not.
const fn plant(
    program: &mut [libc::sock_filter; LENGTH],
    at: usize,
    bounds: &[u32; BOUNDS],
    from: usize,
    to: usize,
) {
    if from == to {
        return;
    }
    let middle = halfway(bounds, from, to);
    let (below, above) = (at + 1, at + 1 + middle - from);
    program[at] = step(IF_NOT_BELOW, bounds[middle]);
    program[at].jf = distance(at, tree_or_verdict(below, from, middle));
    program[at].jt = distance(at, tree_or_verdict(above, middle + 1, to));
    plant(program, below, bounds, from, middle);
    plant(program, above, bounds, middle + 1, to);
}

/// Where to go on: at the tree, or where there are no bounds left, at the verdict.
/// Behind an odd number of bounds numbers are allowed.
const fn tree_or_verdict(tree: usize, from: usize, to: usize) -> usize {
    match (from == to, from % 2) {
        (false, _) => tree,
        (true, 1) => ALLOW,
        (true, _) => KILL,
    }
}

const fn distance(from: usize, to: usize) -> u8 {
    let distance = to - from - 1;
    assert!(distance <= u8::MAX as usize, "a jump goes no further");
    distance as u8
}

/// The bound that comes nearest to halving the numbers (not the bounds) between
/// its neighbours: each number is tried once.
const fn halfway(bounds: &[u32; BOUNDS], from: usize, to: usize) -> usize {
    let low = if from == 0 { 0 } else { bounds[from - 1] };
    let high = if to == BOUNDS { NUMBERS } else { bounds[to] };
    let half = low + (high - low) / 2;
    let mut best = from;
    let mut i = from + 1;
    while i < to {
        if bounds[i].abs_diff(half) < bounds[best].abs_diff(half) {
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

/// Puts the filter on, for good.
///
/// # Errors
/// The kernel's refusal: it was built without seccomp filters.
pub fn enter() -> io::Result<()> {
    let program = libc::sock_fprog {
        len: LENGTH as u16,
        // The kernel only reads it.
        filter: FILTER.as_ptr().cast_mut(),
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
    fn verdict(architecture: u32, number: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = FILTER[at];
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
        let edges = [u32::MAX, 1 << 30, 1 << 31, (1 << 30) + 16];
        for number in (0..2000).chain(edges) {
            let allowed = verdict(X86_64, number) == libc::SECCOMP_RET_ALLOW;
            let listed = ALLOWED.contains(&number.into());
            assert_eq!(allowed, listed, "system call {number}");
            assert_ne!(verdict(0x4000_0003, number), libc::SECCOMP_RET_ALLOW);
        }
    }
}
