//! Start of a guest's process, and its sandbox.
//!
//! The process is a fork that maps guest memory and the switcher, closes all descriptors, and stops. The tracer
//! then makes it unmap everything else, give up privileges, and enter the filter ([`crate::filter`]), before the
//! guest's first instruction.

use crate::config::Config;
use crate::control::{Call, Control};
use crate::crossing::Crossing;
use crate::layout::{
    complement, ALIAS, CALLS, CONTROL, ENTRY, FILTER, HANDLER, LIST, REWRITTEN, REWRITTEN_HANDLER,
    SCRATCH, STACK, STACK_PAGES, SWITCHER, SWITCHER_CALL, SWITCHER_LIST,
};
use crate::listener::{self, Listener};
use crate::memory::Memory;
use crate::pages::Pages;
use crate::tracee::Tracee;
use crate::{copied, filter, handler, handover};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use trapline_interface::{Access, Region, PAGE};

/// A mapping of the new process.
struct Map {
    at: u64,
    length: usize,
    access: libc::c_int,
    file: RawFd,
    /// Offset in the file.
    from: usize,
    /// Keeps `file` open, if it is not a region's own.
    _own: Option<File>,
}

impl Map {
    fn range(&self) -> Range<u64> {
        self.at..self.at + self.length as u64
    }
}

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
const READ_EXECUTE: libc::c_int = libc::PROT_READ | libc::PROT_EXEC;
const ALL: libc::c_int = READ_EXECUTE | libc::PROT_WRITE;

/// `int3`, between the pieces of code in the switcher.
const BREAKPOINT: u8 = 0xcc;

/// Writes the code and the filter of a guest's processes.
pub(crate) fn load(switcher: &Region, crossing: Crossing) -> io::Result<()> {
    let source = crossing.signal_source();
    switcher.load(0, &[BREAKPOINT; PAGE])?;
    switcher.load(0, &SWITCHER_CALL)?;
    switcher.load(LIST - SWITCHER, &SWITCHER_LIST)?;
    switcher.load(ENTRY - SWITCHER, &HANDLER)?;
    switcher.load(REWRITTEN - SWITCHER, &REWRITTEN_HANDLER)?;
    switcher.load(FILTER - SWITCHER, &filter::program(FILTER, source))?;
    if source.is_some() {
        handler::load(switcher)?;
        handover::load(switcher)?;
    }
    Ok(())
}

/// Starts a process with all shareable memory and its pages, and nothing else.
pub(crate) fn start(memory: &mut Memory, pages: &Pages, config: &Config) -> io::Result<Tracee> {
    let source = config.crossing.signal_source();
    let maps = maps(memory, pages, source.is_some())?;
    let vmm = std::process::id();
    // SAFETY: the child makes system calls only, see `prepare`.
    let pid = match unsafe { libc::fork() } {
        ..0 => return Err(io::Error::last_os_error()),
        // SAFETY: the process is a new fork with one thread.
        0 => unsafe { prepare(&maps, vmm) },
        pid => pid,
    };
    let mut tracee = Tracee::adopt(pid)?;
    if config.copies_state {
        // The memory of a process that is not dumpable cannot be opened.
        tracee.memory = Some(copied::open(pid)?);
    }
    let kept: Vec<_> = maps.iter().map(Map::range).collect();
    let unmap = |gap: Range<u64>| {
        let arguments = [gap.start, gap.end - gap.start, 0, 0, 0];
        (libc::SYS_munmap, arguments)
    };
    let rseq = tracee.rseq_call()?.into_iter();
    let gaps = complement(&kept).into_iter().map(unmap);
    call_all(&mut tracee, &pages.common, rseq.chain(gaps))?;
    Ok(tracee)
}

/// Removes everything else that the process could use. Returns the listener of its filter, if it has one.
pub(crate) fn confine(
    tracee: &mut Tracee,
    pages: &Pages,
    crossing: Crossing,
) -> io::Result<Option<Listener>> {
    let source = crossing.signal_source();
    // The VMM may take a descriptor of a dumpable process only.
    let (flags, dumpable) = match source {
        Some(_) => (listener::FLAGS, 1),
        None => (0, 0),
    };
    let set = |option, value| (libc::SYS_prctl, [option as u64, value, 0, 0, 0]);
    let mode = u64::from(libc::SECCOMP_SET_MODE_FILTER);
    let setup = source.into_iter().flat_map(handler::setup_calls);
    let calls = setup.chain([
        set(libc::PR_SET_NO_NEW_PRIVS, 1),
        set(libc::PR_SET_DUMPABLE, dumpable),
        (libc::SYS_seccomp, [mode, flags, FILTER, 0, 0]),
    ]);
    let result = call_all(tracee, &pages.common, calls)?;
    let listener = match source {
        Some(_) => Some(Listener::take(tracee, result)?),
        None => None,
    };
    if listener.is_some() {
        let (number, arguments) = set(libc::PR_SET_DUMPABLE, 0);
        tracee.call_checked(number, arguments)?;
    }
    tracee.reset_vectors()?;
    Ok(listener)
}

/// Makes the process execute system calls. Returns the result of the last one.
fn call_all(
    tracee: &mut Tracee,
    switcher: &Region,
    calls: impl Iterator<Item = Call>,
) -> io::Result<u64> {
    switcher.load(CALLS - SWITCHER, &list(calls))?;
    tracee.call_list()
}

/// Opens a file of memory such that no mapping of it can become writable.
fn read_only(file: BorrowedFd<'_>) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns the mappings of a new process: the switcher, and regions in memory that can be shared.
fn maps(memory: &mut Memory, pages: &Pages, has_handler: bool) -> io::Result<Vec<Map>> {
    let file = |region: &Region| region.file().map(|file| file.as_raw_fd());
    let part = |region, at, length, access| {
        file(region).map(|file| Map {
            at,
            length,
            access,
            file,
            from: (at - SWITCHER) as usize,
            _own: None,
        })
    };
    let Pages { common, own } = pages;
    let parts = [
        part(common, SWITCHER, 2 * PAGE, READ_EXECUTE),
        part(own, SCRATCH, 2 * PAGE, ALL),
    ];
    let with_handler = [
        part(common, CONTROL, PAGE, READ_WRITE),
        part(own, STACK, STACK_PAGES as usize, READ_WRITE),
    ];
    let with_handler = with_handler.into_iter().filter(|_| has_handler);
    let mut regions = Vec::new();
    for (at, attached) in memory.iter_mut() {
        let Some(shared) = attached.region.file() else {
            continue;
        };
        let (access, own) = match attached.access {
            Access::ReadWrite => (ALL, None),
            Access::ReadOnly => (READ_EXECUTE, Some(read_only(shared)?)),
        };
        attached.is_mapped = true;
        regions.push(Map {
            at: ALIAS + at.0,
            length: attached.region.len(),
            access,
            file: own.as_ref().map_or(shared, AsFd::as_fd).as_raw_fd(),
            from: 0,
            _own: own,
        });
    }
    let parts = parts.into_iter().chain(with_handler).flatten();
    Ok(parts.chain(regions).collect())
}

/// Body of the new process: maps memory, closes descriptors, stops. A failure ends it with the error number.
///
/// # Safety
/// The process is a new fork, and does nothing else.
unsafe fn prepare(maps: &[Map], vmm: u32) -> ! {
    // SAFETY: numbers and memory of this process only; the fixed addresses are free, or the call fails. Nothing
    // that another thread of the parent may have locked is used.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL).into());
        // The VMM may have ended before.
        check(libc::syscall(libc::SYS_getppid) - libc::c_long::from(vmm));
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

/// Returns the list of these calls, with its end.
fn list(calls: impl Iterator<Item = Call>) -> Vec<u8> {
    let words = calls.flat_map(|(number, arguments)| [number as u64].into_iter().chain(arguments));
    words.chain([0]).flat_map(u64::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{GuestState, Mode, Stop};
    use crate::listener::{Event, CHECKED};
    use crate::registers::Registers;

    fn process_with_listener(crossing: Crossing) -> (Tracee, Option<Listener>) {
        let pages = Pages::new().unwrap();
        load(&pages.common, crossing).unwrap();
        let mut process = start(&mut Memory::default(), &pages, &crossing.into()).unwrap();
        let listener = confine(&mut process, &pages, crossing).unwrap();
        (process, listener)
    }

    fn process(crossing: Crossing) -> Tracee {
        process_with_listener(crossing).0
    }

    /// `uretprobe` and `uprobe`, which the kernel exempts from filters, and refuses outside of its own trampolines.
    const PROBES: [libc::c_long; 2] = [335, 336];

    /// Checks that the filter kills all calls from the switcher but these, whose arguments the kernel rejects.
    fn expect_allowed(crossing: Crossing, allowed: &[libc::c_long]) {
        for number in (0..470).filter(|number| !allowed.contains(number)) {
            // Without its listener, calls of which the filter notifies fail.
            let result = process(crossing).call(number, [0; 5]);
            let is_refused =
                PROBES.contains(&number) && result.as_ref().is_ok_and(|code| *code < 0);
            assert!(result.is_err() || is_refused, "system call {number}");
        }
        for number in allowed.iter().filter(|it| **it != libc::SYS_rt_sigreturn) {
            let result = process(crossing).call(*number, [1, 0, 0, 0, 0]).unwrap();
            let has_arguments = *number != libc::SYS_sched_yield;
            assert_eq!(result < 0, has_arguments, "{number}");
        }
    }

    const MAPPINGS: [libc::c_long; 3] = [libc::SYS_mprotect, libc::SYS_munmap, libc::SYS_mremap];
    const LISTENER: [libc::c_long; 2] = [libc::SYS_close, libc::SYS_rt_sigreturn];

    /// The second lock: calls that the tracer lets through by mistake.
    #[test]
    fn filter_kills_every_call_but_changes_of_mappings() {
        expect_allowed(Crossing::Ptrace, &MAPPINGS);
    }

    #[test]
    fn filter_with_a_handler_also_allows_what_the_handler_calls() {
        for crossing in [Crossing::Dispatch, Crossing::Trap] {
            let handlers = [libc::SYS_futex, libc::SYS_sched_yield];
            expect_allowed(crossing, &[&MAPPINGS[..], &LISTENER, &handlers].concat());
            for operation in (2..256).chain([1 << 31, u64::from(u32::MAX)]) {
                let result = process(crossing).call(libc::SYS_futex, [1, operation, 0, 0, 0]);
                assert!(result.is_err(), "futex operation {operation}");
            }
        }
    }

    #[test]
    fn filter_with_a_listener_allows_no_futex() {
        expect_allowed(Crossing::Notify, &[&MAPPINGS[..], &LISTENER].concat());
    }

    #[test]
    fn filter_allows_no_prctl_but_the_end_of_dumps() {
        for crossing in [Crossing::Dispatch, Crossing::Trap, Crossing::Notify] {
            let call = |option: libc::c_int, value| {
                process(crossing).call(libc::SYS_prctl, [option as u64, value, 0, 0, 0])
            };
            assert_eq!(call(libc::PR_SET_DUMPABLE, 0).unwrap(), 0);
            assert!(call(libc::PR_SET_DUMPABLE, 1).is_err());
            assert!(call(libc::PR_SET_NAME, 0).is_err());
        }
    }

    #[test]
    fn changes_of_mappings_proceed_only_as_requested() {
        let calls = [
            (libc::SYS_munmap, [0, PAGE as u64, CHECKED, 0, 0]),
            (libc::SYS_mremap, [1, 2, 3, 4, 5]),
        ];
        for crossing in [Crossing::Dispatch, Crossing::Trap, Crossing::Notify] {
            // Each argument, and the order.
            for change in 0..7 {
                let (mut process, listener) = process_with_listener(crossing);
                let mut listener = listener.unwrap();
                calls.into_iter().for_each(|call| listener.request(call));
                let decisions = std::thread::spawn(move || {
                    let mut next = || {
                        listener.wait(&libc::timespec {
                            tv_sec: 9,
                            tv_nsec: 0,
                        })
                    };
                    let decision = |event| match event {
                        Event::Permitted => true,
                        Event::Refused => false,
                        _ => panic!("no change of mappings"),
                    };
                    [(); 3].map(|()| decision(next().unwrap()))
                });
                let mut changed = calls[1];
                if let Some(argument) = changed.1.get_mut(change) {
                    *argument += 1;
                }
                let [unmap, map] = calls;
                let (calls, expected) = match change {
                    ..5 => ([unmap, changed, map], [true, false, true]),
                    5 => ([map, unmap, map], [false, true, true]),
                    _ => ([unmap, map, map], [true, true, false]),
                };
                let results = calls.map(|(number, arguments)| {
                    process.call(number, arguments).unwrap() == -i64::from(libc::EPERM)
                });
                assert_eq!(results.map(|is_refused| !is_refused), expected);
                assert_eq!(decisions.join().unwrap(), expected);
            }
        }
    }

    #[test]
    fn process_without_memory_faults_and_is_not_lost() {
        let mut process = process(Crossing::Ptrace);
        let mut guest = GuestState::new(Registers::new());
        let stop = process.run(&mut guest, Mode::Run).unwrap();
        assert_eq!(stop, Stop::Signal(libc::SIGSEGV));
        assert_eq!(process.signal_info().unwrap().1, 0);
    }
}
