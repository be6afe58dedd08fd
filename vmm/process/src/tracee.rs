//! The process of a guest, controlled by ptrace(2).
//!
//! The thread that created it is its tracer, the only one that can use it. The process ends with its tracer
//! (PTRACE_O_EXITKILL).

use crate::control::{check, Call, Control, GuestState, Mode, Stop};
use crate::layout::{CALLS, LIST, SWITCHER};
use crate::registers::Registers;
use crate::signals::SIGNAL;
use std::fs::File;
use std::io;
use std::ptr;

/// A traced process, killed on drop.
pub(crate) struct Tracee {
    pid: libc::pid_t,
    /// A call has changed its registers.
    is_clobbered: bool,
    has_ended: bool,
    /// Its memory, if the VMM copies registers from there.
    pub memory: Option<File>,
}

/// Registers for a system call in the switcher.
fn call_registers((number, arguments): Call) -> Registers {
    let mut registers = Registers::new();
    let r = &mut registers.0;
    r.rip = SWITCHER;
    r.rax = number as u64;
    [r.rdi, r.rsi, r.rdx, r.r10, r.r8] = arguments;
    registers
}

impl Tracee {
    /// Takes over a child that has stopped itself after PTRACE_TRACEME.
    pub fn adopt(pid: libc::pid_t) -> io::Result<Self> {
        let mut tracee = Self {
            pid,
            is_clobbered: true,
            has_ended: false,
            memory: None,
        };
        match tracee.wait()? {
            Stop::Signal(libc::SIGSTOP) => {}
            Stop::Ended(status) => return Err(io::Error::from_raw_os_error(status)),
            other => return Err(io::Error::other(format!("unexpected {other:?}"))),
        }
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        tracee.request(libc::PTRACE_SETOPTIONS, 0, options as usize)?;
        Ok(tracee)
    }

    /// Ends tracing: the process continues with these registers, and receives a signal before.
    pub fn detach(mut self, registers: &Registers, signal: libc::c_int) -> io::Result<libc::pid_t> {
        self.load(registers)?;
        self.request(libc::PTRACE_DETACH, 0, signal as usize)?;
        self.has_ended = true;
        Ok(self.pid)
    }

    fn request(
        &self,
        request: libc::c_uint,
        address: usize,
        data: usize,
    ) -> io::Result<libc::c_long> {
        // SAFETY: `data` is a number, or points at what the request reads or writes; the callers pass structures
        // of their own.
        let result = unsafe { libc::syscall(libc::SYS_ptrace, request, self.pid, address, data) };
        match result {
            -1 => Err(io::Error::last_os_error()),
            result => Ok(result),
        }
    }

    pub fn load(&self, registers: &Registers) -> io::Result<()> {
        let data = &raw const registers.0 as usize;
        self.request(libc::PTRACE_SETREGS, 0, data).map(drop)
    }

    fn store(&self) -> io::Result<Registers> {
        let mut registers = Registers::new();
        self.request(libc::PTRACE_GETREGS, 0, &raw mut registers.0 as usize)?;
        Ok(registers)
    }

    fn wait(&mut self) -> io::Result<Stop> {
        let mut status = 0;
        let no_usage = ptr::null_mut::<libc::rusage>();
        // SAFETY: the kernel writes one number.
        let waited = unsafe {
            libc::syscall(
                libc::SYS_wait4,
                self.pid,
                &raw mut status,
                libc::__WALL,
                no_usage,
            )
        };
        if waited < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EINTR) => Ok(Stop::Interrupted),
                _ => Err(error),
            };
        }
        Ok(self.decode(status))
    }

    fn decode(&mut self, status: libc::c_int) -> Stop {
        if libc::WIFSTOPPED(status) {
            return match libc::WSTOPSIG(status) {
                signal if signal == libc::SIGTRAP | 0x80 => Stop::Call,
                signal => Stop::Signal(signal),
            };
        }
        self.has_ended = true;
        Stop::Ended(if libc::WIFSIGNALED(status) {
            libc::WTERMSIG(status)
        } else {
            libc::WEXITSTATUS(status)
        })
    }

    /// Makes the process execute the list of system calls at [`CALLS`]. Returns the result of the last one.
    pub fn call_list(&mut self) -> io::Result<u64> {
        let mut registers = Registers::new();
        (registers.0.rip, registers.0.rbx) = (LIST, CALLS);
        check(self.run_switcher(registers)?)
    }

    /// Runs the switcher until it stops. Returns the result of its last call, negative for an error.
    fn run_switcher(&mut self, mut next: Registers) -> io::Result<i64> {
        self.is_clobbered = true;
        loop {
            self.load(&next)?;
            self.request(libc::PTRACE_CONT, 0, 0)?;
            let stop = loop {
                match self.wait()? {
                    Stop::Interrupted => {}
                    stop => break stop,
                }
            };
            match stop {
                Stop::Signal(libc::SIGTRAP) => return Ok(self.store()?.0.rax as i64),
                Stop::Signal(libc::SIGSEGV | libc::SIGILL | libc::SIGBUS) => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                // Stopped before the call. The run loop looks for interrupts anyway.
                Stop::Signal(_) => next = self.store()?,
                _ => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// Returns the call that unregisters the process's restartable sequence, whose memory is going to be unmapped.
    pub fn rseq_call(&self) -> io::Result<Option<Call>> {
        const UNREGISTER: u64 = 1;
        let mut config = [0_u8; 24];
        let data = config.as_mut_ptr() as usize;
        self.request(GET_RSEQ_CONFIGURATION, config.len(), data)?;
        let address = u64::from_ne_bytes(field(&config, 0));
        let [size, signature] = [8, 12].map(|at| u32::from_ne_bytes(field(&config, at)));
        let arguments = [address, size.into(), UNREGISTER, signature.into(), 0];
        Ok((address != 0).then_some((libc::SYS_rseq, arguments)))
    }

    /// Sets vector and floating-point registers to their initial values.
    pub fn reset_vectors(&self) -> io::Result<()> {
        let mut state = vec![0_u8; 16 << 10];
        let mut part = libc::iovec {
            iov_base: state.as_mut_ptr().cast(),
            iov_len: state.len(),
        };
        self.request(
            libc::PTRACE_GETREGSET,
            NT_X86_XSTATE,
            &raw mut part as usize,
        )?;
        // XSTATE_BV: no component differs from its initial value. x87 and SSE are taken from the legacy area.
        state[..512].fill(0);
        state[..2].copy_from_slice(&X87_CONTROL.to_ne_bytes());
        state[24..28].copy_from_slice(&SSE_CONTROL.to_ne_bytes());
        state[512..520].fill(0);
        self.request(
            libc::PTRACE_SETREGSET,
            NT_X86_XSTATE,
            &raw mut part as usize,
        )?;
        Ok(())
    }
}

impl Control for Tracee {
    fn pid(&self) -> libc::pid_t {
        self.pid
    }

    fn run(&mut self, guest: &mut GuestState, mode: Mode) -> io::Result<Stop> {
        if guest.is_changed || self.is_clobbered {
            self.load(&guest.registers)?;
        }
        // System calls stop the process and have no effect.
        let request = match mode {
            Mode::Run => libc::PTRACE_SYSEMU,
            Mode::Step => libc::PTRACE_SYSEMU_SINGLESTEP,
        };
        self.request(request, 0, 0)?;
        self.is_clobbered = false;
        let stop = loop {
            match self.wait()? {
                Stop::Interrupted => {}
                stop => break stop,
            }
        };
        if matches!(stop, Stop::Signal(_) | Stop::Call) {
            guest.registers = self.store()?;
            guest.call_number = guest.registers.0.orig_rax;
            // A call is over when the tracer has seen it.
            guest.registers.0.orig_rax = u64::MAX;
            guest.is_changed = stop == Stop::Call;
            guest.is_signalled |= stop == Stop::Signal(SIGNAL);
        }
        Ok(stop)
    }

    fn call(&mut self, number: libc::c_long, arguments: [u64; 5]) -> io::Result<i64> {
        self.run_switcher(call_registers((number, arguments)))
    }

    fn signal_info(&self) -> io::Result<(libc::c_int, u64)> {
        // SAFETY: plain numbers, for which zero is a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        self.request(libc::PTRACE_GETSIGINFO, 0, &raw mut info as usize)?;
        // SAFETY: the field exists for the signals of faults, and for others it is a number without meaning.
        Ok((info.si_code, unsafe { info.si_addr() } as u64))
    }
}

/// `PTRACE_GET_RSEQ_CONFIGURATION` (Linux 5.13).
const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const NT_X86_XSTATE: usize = 0x202;
/// Initial control words (Intel SDM volume 1, 8.1.5 and 10.2.3).
const X87_CONTROL: u16 = 0x37f;
const SSE_CONTROL: u32 = 0x1f80;

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // SAFETY: the process is a child that has not been waited for, so the number is still its own.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, ptr::null_mut(), libc::__WALL);
        }
    }
}
