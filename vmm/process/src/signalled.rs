//! A process without a tracer, whose signal handler ([`crate::handler`]) reports its stops.
//!
//! Everything that the process writes is untrusted: it may report stops that have not happened, results of calls that it
//! has not made, and may run while the VMM takes it to be stopped. The VMM copies each value once and checks addresses.

use crate::control::{Control, GuestState, Mode, Stop};
use crate::handler::{state, CALL, CONTEXT, INFO, REGISTERS, RESULT};
use crate::layout::{CONTROL, STACK, STACK_SIZE, SWITCHER};
use crate::listener::{Event, Listener, Notification, REPORT};
use crate::registers::{Registers, TRAP_FLAG};
use crate::signals::{signal, Lines, SIGNAL};
use crate::tracee::Tracee;
use std::io;
use std::ptr;
use std::sync::Arc;
use trapline_interface::Region;

/// Time after which the VMM checks whether the process still exists.
const CHECK: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A process that has got a signal, but does not report it, is given up after this CPU time, in nanoseconds, or after
/// this number of checks: it has blocked the signal by a forged frame.
const MOST_CPU_TIME: u64 = 1_000_000_000;
const MOST_CHECKS: u32 = 600;

/// `si_code` of SIGSYS (`<asm-generic/siginfo.h>`): `SYS_SECCOMP` and `SYS_USER_DISPATCH`.
const CODES_OF_CALLS: std::ops::RangeInclusive<libc::c_int> = 1..=2;

/// Bytes of the frame that are read from its `struct ucontext`: up to the selectors.
const CONTEXT_LENGTH: u64 = REGISTERS + 19 * 8;
/// Bytes that are read of `siginfo_t`: number, error, code, address.
const INFO_LENGTH: u64 = 24;

/// Reason why the process does not run.
enum Reported {
    /// A signal, in the control page.
    Signal,
    /// A system call, which waits for its answer.
    Call(Notification),
    /// It has ended, by this signal or with this status.
    Ended(libc::c_int),
}

/// A process that reports its signals.
pub(crate) struct Signalled {
    pid: libc::pid_t,
    switcher: Arc<Region>,
    lines: Arc<Lines>,
    listener: Option<Listener>,
    has_ended: bool,
}

impl Signalled {
    /// Detaches the tracer of a process with an installed handler. The process stops before its first instruction.
    pub fn detach(
        tracee: Tracee,
        registers: &Registers,
        switcher: Arc<Region>,
        lines: Arc<Lines>,
        listener: Option<Listener>,
    ) -> io::Result<Self> {
        let mut process = Self {
            pid: tracee.detach(registers, SIGNAL)?,
            switcher,
            lines,
            listener,
            has_ended: false,
        };
        match process.wait()? {
            Reported::Signal => Ok(process),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn word(&self, address: u64) -> u64 {
        self.switcher.load64(address - SWITCHER).unwrap_or(0)
    }

    fn set_word(&self, address: u64, value: u64) {
        let stored = self.switcher.store64(address - SWITCHER, value);
        debug_assert!(stored.is_some());
    }

    fn state(&self) -> u32 {
        self.switcher.load32(CONTROL - SWITCHER).unwrap_or(0)
    }

    /// Sets the state and waits for the next stop.
    fn continue_as(&mut self, state: u32) -> io::Result<Reported> {
        self.set_word(CONTROL, state.into());
        match &mut self.listener {
            Some(listener) => listener.answer(0),
            None => {
                self.futex(libc::FUTEX_WAKE, 1, None);
            }
        }
        self.wait()
    }

    /// Waits for a report, the end of the process, or a call that the listener receives. `ETIMEDOUT`: it has blocked the
    /// signal that stops it.
    fn wait(&mut self) -> io::Result<Reported> {
        let mut unanswered = None;
        loop {
            if let Some(reported) = self.wait_once()? {
                return Ok(reported);
            }
            if let Some(status) = self.ended()? {
                return Ok(Reported::Ended(status));
            }
            if !self.lines.is_signalled() {
                unanswered = None;
                continue;
            }
            let (begun, checks) = unanswered.get_or_insert((self.cpu_time(), 0));
            *checks += 1;
            if self.cpu_time() - *begun > MOST_CPU_TIME || *checks == MOST_CHECKS {
                return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
            }
        }
    }

    /// Waits for at most [`CHECK`].
    fn wait_once(&mut self) -> io::Result<Option<Reported>> {
        if let Some(listener) = &mut self.listener {
            return Ok(match listener.wait(&CHECK)? {
                Event::Call(call) if call.number == REPORT => Some(Reported::Signal),
                Event::Call(call) => Some(Reported::Call(call)),
                Event::None => None,
            });
        }
        loop {
            let state = self.state();
            if state == state::STOPPED {
                return Ok(Some(Reported::Signal));
            }
            if self.futex(libc::FUTEX_WAIT, state, Some(&CHECK)) {
                return Ok(None);
            }
        }
    }

    /// Returns the CPU time of the process, in nanoseconds.
    fn cpu_time(&self) -> u64 {
        // `CPUCLOCK_SCHED` of a process (linux/posix-timers.h).
        let clock = !self.pid << 3 | 2;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel writes one timespec. The process has not been waited for.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// Waits or wakes at the state. Returns true if the time is over.
    fn futex(&self, operation: libc::c_int, value: u32, time: Option<&libc::timespec>) -> bool {
        let word = self.switcher.address().as_ptr();
        let word = word.wrapping_add((CONTROL - SWITCHER) as usize);
        let time = time.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the word is in the switcher, which lives as long as `self`, and the time as long as this call.
        let status = unsafe { libc::syscall(libc::SYS_futex, word, operation, value, time) };
        status < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT)
    }

    /// Returns the signal or status with which the process has ended, if it has.
    fn ended(&mut self) -> io::Result<Option<libc::c_int>> {
        let mut status = 0;
        let no_usage = ptr::null_mut::<libc::rusage>();
        // SAFETY: the kernel writes one number.
        let waited = unsafe {
            let status = &raw mut status;
            libc::syscall(libc::SYS_wait4, self.pid, status, libc::WNOHANG, no_usage)
        };
        match waited {
            0 => Ok(None),
            ..0 => Err(io::Error::last_os_error()),
            _ => {
                self.has_ended = true;
                Ok(Some(match libc::WIFSIGNALED(status) {
                    true => libc::WTERMSIG(status),
                    false => libc::WEXITSTATUS(status),
                }))
            }
        }
    }

    /// Returns the address in `at`; `EBADMSG` unless that many bytes from it lie in the handler's stack.
    fn in_stack(&self, at: u64, length: u64) -> io::Result<u64> {
        let address = self.word(CONTROL + at);
        let stack = STACK..STACK + STACK_SIZE - length;
        let is_valid = address.is_multiple_of(8) && stack.contains(&address);
        is_valid
            .then_some(address)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADMSG))
    }
}

/// Lists the registers in the order of the frame.
macro_rules! in_frame_order {
    ($r:expr) => {
        [
            &mut $r.r8,
            &mut $r.r9,
            &mut $r.r10,
            &mut $r.r11,
            &mut $r.r12,
            &mut $r.r13,
            &mut $r.r14,
            &mut $r.r15,
            &mut $r.rdi,
            &mut $r.rsi,
            &mut $r.rbp,
            &mut $r.rbx,
            &mut $r.rdx,
            &mut $r.rax,
            &mut $r.rcx,
            &mut $r.rsp,
            &mut $r.rip,
            &mut $r.eflags,
        ]
    };
}

impl Signalled {
    fn load(&self, mut registers: Registers) -> io::Result<()> {
        let mut at = self.in_stack(CONTEXT, CONTEXT_LENGTH)? + REGISTERS;
        for register in in_frame_order!(registers.0) {
            self.set_word(at, *register);
            at += 8;
        }
        Ok(())
    }

    fn store(&self) -> io::Result<Registers> {
        let mut registers = Registers::new();
        let mut at = self.in_stack(CONTEXT, CONTEXT_LENGTH)? + REGISTERS;
        for register in in_frame_order!(registers.0) {
            *register = self.word(at);
            at += 8;
        }
        registers.0.cs = self.word(at) & 0xffff;
        Ok(registers)
    }

    /// Answers the call that waits, and waits for the next stop.
    fn answer(&mut self, guest: &mut GuestState) -> io::Result<Reported> {
        guest.is_partial = false;
        if let Some(listener) = &mut self.listener {
            listener.answer(guest.registers.0.rax);
        }
        self.wait()
    }

    /// Returns to the guest from the handler, and waits for the next stop.
    fn resume(&mut self, guest: &GuestState, mode: Mode) -> io::Result<Reported> {
        let mut registers = guest.registers;
        if mode == Mode::Step {
            registers.0.eflags |= TRAP_FLAG;
        }
        if guest.is_changed || mode == Mode::Step {
            self.load(registers)?;
        }
        self.continue_as(state::RESUME)
    }

    /// Reads the report of a signal.
    fn signal(&self, guest: &mut GuestState, mode: Mode) -> io::Result<Stop> {
        guest.registers = self.store()?;
        if mode == Mode::Step {
            guest.registers.0.eflags &= !TRAP_FLAG;
        }
        let (number, code, _) = self.info()?;
        guest.is_signalled |= number == SIGNAL;
        guest.call_number = guest.registers.0.rax;
        let stop = match number {
            libc::SIGSYS if CODES_OF_CALLS.contains(&code) => Stop::Call,
            number => Stop::Signal(number),
        };
        guest.is_changed = mode == Mode::Step || stop == Stop::Call;
        Ok(stop)
    }

    /// Returns number, code and address of the signal.
    fn info(&self) -> io::Result<(libc::c_int, libc::c_int, u64)> {
        let at = self.in_stack(INFO, INFO_LENGTH)?;
        let [number, code] = [at, at + 8].map(|at| self.word(at) as libc::c_int);
        Ok((number, code, self.word(at + 16)))
    }
}

impl Control for Signalled {
    fn pid(&self) -> libc::pid_t {
        self.pid
    }

    fn run(&mut self, guest: &mut GuestState, mode: Mode) -> io::Result<Stop> {
        let reported = match guest.is_partial {
            true => self.answer(guest)?,
            false => self.resume(guest, mode)?,
        };
        match reported {
            Reported::Ended(status) => Ok(Stop::Ended(status)),
            Reported::Call(call) => {
                let r = &mut guest.registers.0;
                [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = call.arguments;
                r.rip = call.pointer;
                guest.call_number = call.number.into();
                guest.is_partial = true;
                Ok(Stop::Call)
            }
            Reported::Signal => self.signal(guest, mode),
        }
    }

    fn complete(&mut self, guest: &mut GuestState) -> io::Result<()> {
        if !guest.is_partial {
            return Ok(());
        }
        // The process receives the signal behind its call.
        signal(self.pid);
        match self.run(guest, Mode::Run)? {
            Stop::Signal(SIGNAL) => Ok(()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn call(&mut self, number: libc::c_long, arguments: [u64; 5]) -> io::Result<i64> {
        let words = [number as u64].into_iter().chain(arguments);
        for (index, word) in words.enumerate() {
            self.set_word(CONTROL + CALL + 8 * index as u64, word);
        }
        match self.continue_as(state::CALL)? {
            Reported::Signal => Ok(self.word(CONTROL + RESULT) as i64),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn signal_info(&self) -> io::Result<(libc::c_int, u64)> {
        let (_, code, address) = self.info()?;
        Ok((code, address))
    }
}

impl Drop for Signalled {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // SAFETY: the process is a child that has not been waited for, so the number is still its own.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, ptr::null_mut(), 0);
        }
    }
}
