//! One of the processes of a guest that report signals themselves.

// Code of optimisation reports.

use crate::control::Call;
use crate::copied;
use crate::handler::{CALLS, CALL_SIZE, CONTEXT, INFO, MOST_CALLS, REGISTERS, RESULT, STATE};
use crate::layout::{OWN, STACK};
use crate::listener::Listener;
use crate::pages::{futex_word, set_word, word, Pages};
use crate::registers::Registers;
use std::fs::File;
use std::io;
use std::ptr;
use trapline_interface::Region;

/// Bytes of the frame that are read from its `struct ucontext`: up to the selectors.
const CONTEXT_LENGTH: u64 = REGISTERS + 19 * 8;
/// Bytes that are read of `siginfo_t`: number, error, code, address.
const INFO_LENGTH: u64 = 24;

/// A process, killed on drop.
pub(crate) struct Child {
    pub pid: libc::pid_t,
    pub pages: Pages,
    pub listener: Listener,
    /// Its memory (`/proc/PID/mem`), if frames on its stack are copied.
    memory: Option<File>,
    /// Number of system calls that it makes when it continues.
    listed: u64,
    has_ended: bool,
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

impl Child {
    pub fn new(pid: libc::pid_t, pages: Pages, listener: Listener, memory: Option<File>) -> Self {
        Self {
            pid,
            pages,
            listener,
            memory,
            listed: 0,
            has_ended: false,
        }
    }

    /// Returns one of the process's words.
    pub fn word(&self, at: u64) -> u64 {
        word(&self.pages.own, OWN + at)
    }

    /// Sets one of the process's words.
    pub fn set_word(&self, at: u64, value: u64) {
        set_word(&self.pages.own, OWN + at, value);
    }

    // Code of optimisation batching.

    /// Returns whether the list of system calls has room for one call only.
    pub fn is_almost_full(&self) -> bool {
        self.listed + 1 == MOST_CALLS
    }

    /// Adds a system call to those that the process makes when it continues. Returns its index.
    pub fn add_call(&mut self, (number, arguments): Call) -> u64 {
        self.listener.request((number, arguments));
        let words = [number as u64].into_iter().chain(arguments);
        for (index, word) in (0..).zip(words) {
            self.set_word(CALLS + self.listed * CALL_SIZE + 8 * index, word);
        }
        self.listed += 1;
        self.listed - 1
    }

    /// Ends the list of calls. Returns its length.
    pub fn end_calls(&mut self) -> u64 {
        self.set_word(CALLS + self.listed * CALL_SIZE, 0);
        std::mem::take(&mut self.listed)
    }

    /// Returns the result of a call of the last list.
    pub fn result(&self, index: u64) -> i64 {
        self.word(CALLS + index * CALL_SIZE + RESULT) as i64
    }

    // End of optimisation batching.

    /// Sets the state of the process, and wakes it.
    pub fn continue_as(&self, state: u32) {
        self.set_word(STATE, state.into());
        futex(&self.pages.own, OWN + STATE, libc::FUTEX_WAKE, 1, None);
    }

    /// Returns the CPU time of the process, in nanoseconds.
    pub fn cpu_time(&self) -> u64 {
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

    /// Returns the signal or status with which the process has ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<libc::c_int>> {
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
                Ok(Some(if libc::WIFSIGNALED(status) {
                    libc::WTERMSIG(status)
                } else {
                    libc::WEXITSTATUS(status)
                }))
            }
        }
    }

    /// Returns the address in `at`; `EBADMSG` unless that many bytes from it lie in the handler's stack.
    fn in_stack(&self, at: u64, length: u64) -> io::Result<u64> {
        let address = self.word(at);
        let stack = STACK..OWN - length;
        let is_valid = address.is_multiple_of(8) && stack.contains(&address);
        is_valid
            .then_some(address)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADMSG))
    }

    /// Sets the registers with which the process returns from the handler.
    pub fn load(&self, mut registers: Registers) -> io::Result<()> {
        let at = self.in_stack(CONTEXT, CONTEXT_LENGTH)? + REGISTERS;
        self.write_frame(at, in_frame_order!(registers.0).map(|it| *it))
    }

    /// Returns the registers at the signal.
    pub fn store(&self) -> io::Result<Registers> {
        let mut registers = Registers::new();
        let at = self.in_stack(CONTEXT, CONTEXT_LENGTH)? + REGISTERS;
        let words: [u64; 19] = self.read_frame(at)?;
        for (register, word) in in_frame_order!(registers.0).into_iter().zip(words) {
            *register = word;
        }
        registers.0.cs = words[18] & 0xffff;
        Ok(registers)
    }

    /// Returns number, code and address of the signal.
    pub fn info(&self) -> io::Result<(libc::c_int, libc::c_int, u64)> {
        let at = self.in_stack(INFO, INFO_LENGTH)?;
        let [number, code, address] = self.read_frame(at)?;
        Ok((number as libc::c_int, code as libc::c_int, address))
    }

    fn read_frame<const N: usize>(&self, at: u64) -> io::Result<[u64; N]> {
        let own = &self.pages.own;
        match &self.memory {
            // Code of optimisation mapping.
            None => Ok(std::array::from_fn(|index| {
                word(own, at + 8 * index as u64)
            })),
            // End of optimisation mapping.
            Some(memory) => copied::read(memory, at),
        }
    }

    fn write_frame<const N: usize>(&self, at: u64, words: [u64; N]) -> io::Result<()> {
        if let Some(memory) = &self.memory {
            return copied::write(memory, at, words);
        }
        // Code of optimisation mapping.
        for (index, word) in (0..).zip(words) {
            set_word(&self.pages.own, at + 8 * index, word);
        }
        // End of optimisation mapping.
        Ok(())
    }
}

/// Waits or wakes at a word. Returns true if the time is over.
pub(crate) fn futex(
    region: &Region,
    address: u64,
    operation: libc::c_int,
    value: u32,
    time: Option<&libc::timespec>,
) -> bool {
    let word = futex_word(region, address).as_ptr();
    let time = time.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word is in a region that lives as long as this call, and so does the time.
    let status = unsafe { libc::syscall(libc::SYS_futex, word, operation, value, time) };
    status < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT)
}

impl Drop for Child {
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
