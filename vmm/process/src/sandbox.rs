//! Start of a guest's process, and its sandbox.
//!
//! The process is a fork that maps guest memory and the switcher, closes all descriptors, and stops. The tracer
//! then makes it unmap everything else, give up privileges, and enter the filter ([`crate::filter`]), before the
//! guest's first instruction.

use crate::filter;
use crate::layout::{
    complement, ALIAS, CALLS, ENTRY, FILTER, HANDLER, LIST, REWRITTEN, REWRITTEN_HANDLER, SCRATCH,
    SWITCHER, SWITCHER_CALL, SWITCHER_LIST, SWITCHER_PAGES,
};
use crate::memory::Memory;
use crate::tracee::{Call, Tracee};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use trapline_interface::{Access, Region, PAGE};

/// A mapping of the new process.
struct Map {
    at: u64,
    length: usize,
    access: libc::c_int,
    file: RawFd,
    /// Offset in the file.
    from: usize,
}

impl Map {
    fn range(&self) -> Range<u64> {
        self.at..self.at + self.length as u64
    }
}

const READ_EXECUTE: libc::c_int = libc::PROT_READ | libc::PROT_EXEC;
const ALL: libc::c_int = READ_EXECUTE | libc::PROT_WRITE;

/// Starts a process with all shareable memory and the pages of the switcher.
pub(crate) fn start(memory: &mut Memory, switcher: &Region) -> io::Result<Tracee> {
    switcher.load(0, &SWITCHER_CALL)?;
    switcher.load(LIST - SWITCHER, &SWITCHER_LIST)?;
    switcher.load(ENTRY - SWITCHER, &HANDLER)?;
    switcher.load(REWRITTEN - SWITCHER, &REWRITTEN_HANDLER)?;
    switcher.load(FILTER - SWITCHER, &filter::program(FILTER))?;
    let maps = maps(memory, switcher);
    // SAFETY: the child makes system calls only, see `prepare`.
    let pid = match unsafe { libc::fork() } {
        ..0 => return Err(io::Error::last_os_error()),
        // SAFETY: the process is a new fork with one thread.
        0 => unsafe { prepare(&maps) },
        pid => pid,
    };
    let mut tracee = Tracee::adopt(pid)?;
    confine(&mut tracee, &maps, switcher)?;
    Ok(tracee)
}

/// Returns the mappings of a new process: the switcher, and regions in memory that can be shared.
fn maps(memory: &mut Memory, switcher: &Region) -> Vec<Map> {
    let file = |region: &Region| region.file().map(|file| file.as_raw_fd());
    let half = SWITCHER_PAGES / 2 * PAGE;
    let part = |at, access, from| {
        let length = half;
        file(switcher).map(|file| Map {
            at,
            length,
            access,
            file,
            from,
        })
    };
    let parts = [part(SWITCHER, READ_EXECUTE, 0), part(SCRATCH, ALL, half)];
    let regions = memory.iter_mut().filter_map(|(at, attached)| {
        let file = file(&attached.region)?;
        attached.is_mapped = true;
        Some(Map {
            at: ALIAS + at.0,
            length: attached.region.len(),
            access: match attached.access {
                Access::ReadWrite => ALL,
                Access::ReadOnly => READ_EXECUTE,
            },
            file,
            from: 0,
        })
    });
    parts.into_iter().flatten().chain(regions).collect()
}

/// Body of the new process: maps memory, closes descriptors, stops. A failure ends it with the error number.
///
/// # Safety
/// The process is a new fork, and does nothing else.
unsafe fn prepare(maps: &[Map]) -> ! {
    // SAFETY: numbers and memory of this process only; the fixed addresses are free, or the call fails. Nothing
    // that another thread of the parent may have locked is used.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL).into());
        check(libc::syscall(
            libc::SYS_ptrace,
            libc::PTRACE_TRACEME,
            0,
            0,
            0,
        ));
        let no_signals = 0_u64;
        let set = libc::SIG_SETMASK;
        let old = std::ptr::null_mut::<u64>();
        check(libc::syscall(
            libc::SYS_rt_sigprocmask,
            set,
            &raw const no_signals,
            old,
            8,
        ));
        for map in maps {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
            let at = map.at as *mut libc::c_void;
            let mapped = libc::mmap(
                at,
                map.length,
                map.access,
                flags,
                map.file,
                map.from as libc::off_t,
            );
            check(if mapped == at { 0 } else { -1 });
        }
        check(libc::syscall(
            libc::SYS_close_range,
            0,
            libc::c_uint::MAX,
            0,
        ));
        let pid = libc::syscall(libc::SYS_getpid);
        libc::syscall(libc::SYS_kill, pid, libc::SIGSTOP);
        libc::_exit(libc::EPERM)
    }
}

/// Ends the process if a system call has failed.
fn check(result: libc::c_long) {
    if result != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: ends the process.
        unsafe { libc::_exit(error.raw_os_error().unwrap_or(libc::EIO)) }
    }
}

/// Removes what the process has inherited, and everything that it could use.
fn confine(tracee: &mut Tracee, maps: &[Map], switcher: &Region) -> io::Result<()> {
    let kept: Vec<_> = maps.iter().map(Map::range).collect();
    let unmap = |gap: Range<u64>| {
        let arguments = [gap.start, gap.end - gap.start, 0, 0, 0];
        (libc::SYS_munmap, arguments)
    };
    let set = |option, value| (libc::SYS_prctl, [option as u64, value, 0, 0, 0]);
    let mode = u64::from(libc::SECCOMP_SET_MODE_FILTER);
    let calls = tracee.rseq_call()?.into_iter();
    let calls = calls
        .chain(complement(&kept).into_iter().map(unmap))
        .chain([
            set(libc::PR_SET_NO_NEW_PRIVS, 1),
            set(libc::PR_SET_DUMPABLE, 0),
            (libc::SYS_seccomp, [mode, 0, FILTER, 0, 0]),
        ]);
    switcher.load(CALLS - SWITCHER, &list(calls))?;
    tracee.call_list()?;
    tracee.reset_vectors()
}

/// Returns the list of these calls, with its end.
fn list(calls: impl Iterator<Item = Call>) -> Vec<u8> {
    let words = calls.flat_map(|(number, arguments)| [number as u64].into_iter().chain(arguments));
    words.chain([0]).flat_map(u64::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracee::{Mode, Stop};

    fn process() -> Tracee {
        let switcher = Region::new(SWITCHER_PAGES * PAGE).unwrap();
        start(&mut Memory::default(), &switcher).unwrap()
    }

    /// `uretprobe` and `uprobe`, which the kernel exempts from filters, and refuses outside of its own trampolines.
    const PROBES: [libc::c_long; 2] = [335, 336];

    /// The second lock: calls that the tracer lets through by mistake.
    #[test]
    fn filter_kills_every_call_but_changes_of_mappings() {
        let allowed = [libc::SYS_mprotect, libc::SYS_munmap, libc::SYS_mremap];
        for number in (0..470).filter(|number| !allowed.contains(number)) {
            let result = process().call(number, [0; 5]);
            let is_refused =
                PROBES.contains(&number) && result.as_ref().is_ok_and(|code| *code < 0);
            assert!(result.is_err() || is_refused, "system call {number}");
        }
        for number in allowed {
            // Arguments that the kernel rejects.
            assert!(
                process().call(number, [1, 0, 0, 0, 0]).unwrap() < 0,
                "{number}"
            );
        }
    }

    #[test]
    fn process_without_memory_faults_and_is_not_lost() {
        let mut process = process();
        process.resume(Mode::Run).unwrap();
        let stop = process.wait_for_guest().unwrap();
        assert_eq!(stop, Stop::Signal(libc::SIGSEGV));
        assert_eq!(process.signal_info().unwrap().1, 0);
    }
}
