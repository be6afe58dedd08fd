//! Processes without a tracer, whose signal handlers ([`crate::handler`]) report their stops.
//!
//! A guest has one process, or one for each of several address spaces ([`crate::spaces`]), of which one runs at a time.
//! If the guest switches between them itself, a process says which one runs.
//!
//! Everything that a process writes is untrusted: it may report stops that have not happened, results of calls that it
//! has not made, and may run while the VMM takes it to be stopped. The VMM copies each value once and checks addresses.

// Code of optimisation reports.

use crate::child::{futex, Child};
use crate::config::Config;
use crate::control::{check, Control, GuestState, Mode, Stop};
use crate::crossing::Crossing;
use crate::handler::{state, STATE};
use crate::handover;
use crate::layout::{CONTROL, OWN, SWITCHER};
use crate::listener::{Event, Listener, Notification, REPORT};
use crate::pages::Pages;
use crate::registers::{Registers, TRAP_FLAG};
use crate::signals::{signal, Lines, SIGNAL};
use crate::spaces::{SpaceTable, REPORTS};
use crate::tracee::Tracee;
use std::io;
use std::sync::Arc;

/// Time after which the VMM checks whether the processes still exist.
const CHECK: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

const NO_TIME: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// A process that has got a signal, but does not report it, is given up after this CPU time, in nanoseconds, or after
/// this number of checks: it has blocked the signal by a forged frame.
const MOST_CPU_TIME: u64 = 1_000_000_000;
const MOST_CHECKS: u32 = 600;

/// `si_code` of SIGSYS (`<asm-generic/siginfo.h>`): `SYS_SECCOMP` and `SYS_USER_DISPATCH`.
const CODES_OF_CALLS: std::ops::RangeInclusive<libc::c_int> = 1..=2;

/// Reason why the guest does not run.
enum Reported {
    /// A signal of the current process.
    Signal,
    /// A system call, which waits for its answer.
    Call(Notification),
    /// A process has ended, by this signal or with this status.
    Ended(libc::c_int),
}

/// Returns the registers of a process that waits for its turn.
fn waiting() -> Registers {
    let mut registers = Registers::new();
    (registers.0.rip, registers.0.rbx) = (handover::wait_address(), OWN);
    registers
}

/// Processes that report their signals.
pub(crate) struct Signalled {
    children: Vec<Child>,
    /// The process that runs, or has been the last to stop.
    current: usize,
    table: SpaceTable,
    /// The guest switches between the processes itself.
    switches_itself: bool,
    /// A process makes deferred system calls when it continues.
    is_batching: bool,
    /// Bits of processes that have reported a stop that was not handled.
    stopped: u32,
    lines: Arc<Lines>,
    /// Stops are reported to the listener.
    is_notified: bool,
}

/// A process with an installed handler, and what belongs to it.
pub(crate) struct Prepared {
    pub tracee: Tracee,
    pub pages: Pages,
    pub listener: Listener,
}

impl Signalled {
    /// Detaches the tracers of processes with installed handlers. The first process stops before its first instruction.
    /// The others wait for their turn.
    pub fn detach(
        prepared: Vec<Prepared>,
        registers: &Registers,
        table: SpaceTable,
        config: Config,
        lines: Arc<Lines>,
    ) -> io::Result<Self> {
        let mut processes = Self {
            children: Vec::new(),
            current: 0,
            table,
            switches_itself: false,
            is_batching: config.batching,
            stopped: 0,
            lines,
            is_notified: config.crossing == Crossing::Notify,
        };
        let switches_itself = config.switches_itself();
        for (index, prepared) in prepared.into_iter().enumerate() {
            let Prepared {
                mut tracee,
                pages,
                listener,
            } = prepared;
            let registers = match index {
                0 => *registers,
                _ => waiting(),
            };
            let memory = tracee.memory.take();
            let pid = tracee.detach(&registers, SIGNAL)?;
            processes
                .children
                .push(Child::new(pid, pages, listener, memory));
            processes.current = index;
            match processes.wait()? {
                Reported::Signal => {}
                _ => return Err(io::ErrorKind::BrokenPipe.into()),
            }
            if switches_itself && index > 0 {
                processes.child().continue_as(state::RESUME);
            }
        }
        processes.current = 0;
        processes.switches_itself = switches_itself;
        if switches_itself {
            processes.table.permit_switches();
        }
        Ok(processes)
    }

    fn child(&self) -> &Child {
        &self.children[self.current]
    }

    /// Sets the state of the current process and waits for the next stop. An error: a call that was deferred has failed, or the
    /// process has stopped without making it (`EBADMSG`).
    fn continue_as(&mut self, state: u32) -> io::Result<Reported> {
        let index = self.current;
        let child = &mut self.children[index];
        let calls = child.end_calls();
        if self.is_notified {
            child.set_word(STATE, state.into());
            child.listener.answer(0);
        } else {
            child.continue_as(state);
        }
        if calls == 0 {
            return self.wait();
        }
        let reported = match self.wait_for_changes(index)? {
            Some(reported) => reported,
            None => self.wait()?,
        };
        let child = &self.children[index];
        // Code of optimisation batching.
        if let Reported::Signal = reported {
            for call in 0..calls - u64::from(state == state::CALL) {
                check(child.result(call))?;
            }
        }
        // End of optimisation batching.
        match reported {
            Reported::Signal | Reported::Call(_) if child.listener.has_requests() => {
                Err(io::Error::from_raw_os_error(libc::EBADMSG))
            }
            reported => Ok(reported),
        }
    }

    /// Waits for a report, the end of a process, or a call that the listener receives. `ETIMEDOUT`: the process has
    /// blocked the signal that stops it.
    fn wait(&mut self) -> io::Result<Reported> {
        let mut unanswered = None;
        loop {
            if let Some(reported) = self.wait_once()? {
                return Ok(reported);
            }
            if let Some(status) = self.check_processes(&mut unanswered)? {
                return Ok(Reported::Ended(status));
            }
        }
    }

    /// Returns the signal or status with which a process has ended, if one has. `unanswered` has the CPU time when the signal
    /// that stops them was first missed, and the number of checks since then.
    fn check_processes(
        &mut self,
        unanswered: &mut Option<(u64, u32)>,
    ) -> io::Result<Option<libc::c_int>> {
        for child in &mut self.children {
            if let Some(status) = child.ended()? {
                return Ok(Some(status));
            }
        }
        if !self.lines.is_signalled() {
            *unanswered = None;
            return Ok(None);
        }
        if self.children.len() > 1 {
            // It may have been sent to another process.
            signal(self.children[self.running()].pid);
        }
        let time = self.children.iter().map(Child::cpu_time).sum::<u64>();
        let (begun, checks) = unanswered.get_or_insert((time, 0));
        *checks += 1;
        if time - *begun > MOST_CPU_TIME || *checks == MOST_CHECKS {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        Ok(None)
    }

    /// Lets a process make its requested changes of mappings. Returns why it has stopped before, if it has.
    fn wait_for_changes(&mut self, index: usize) -> io::Result<Option<Reported>> {
        let mut unanswered = None;
        while !self.is_notified && self.children[index].listener.has_requests() {
            match self.children[index].listener.wait(&CHECK)? {
                Event::Permitted => continue,
                Event::Call(_) | Event::Refused => {}
                Event::None => {
                    if self.has_stopped()? {
                        return Ok(Some(Reported::Signal));
                    }
                }
            }
            if let Some(status) = self.check_processes(&mut unanswered)? {
                return Ok(Some(Reported::Ended(status)));
            }
        }
        Ok(None)
    }

    /// Waits for at most [`CHECK`].
    fn wait_once(&mut self) -> io::Result<Option<Reported>> {
        if self.is_notified {
            return Ok(match self.children[0].listener.wait(&CHECK)? {
                Event::Call(call) if call.number == REPORT => Some(Reported::Signal),
                Event::Call(call) => Some(Reported::Call(call)),
                Event::Permitted | Event::Refused | Event::None => None,
            });
        }
        loop {
            if self.has_stopped()? {
                return Ok(Some(Reported::Signal));
            }
            let control = self.table.control();
            if futex(
                control,
                CONTROL + REPORTS,
                libc::FUTEX_WAIT,
                0,
                Some(&CHECK),
            ) {
                // Changes of mappings at other times fail.
                for child in &mut self.children {
                    child.listener.wait(&NO_TIME)?;
                }
                return Ok(None);
            }
        }
    }

    /// Returns whether the process that runs has reported a stop, and makes it the current one.
    fn has_stopped(&mut self) -> io::Result<bool> {
        self.stopped |= self.table.take_reports();
        Ok(self.stopped != 0 && self.take_stop()?)
    }

    /// Returns the process that runs.
    fn running(&self) -> usize {
        if self.switches_itself {
            self.table.current()
        } else {
            self.current
        }
    }

    /// Returns whether the process that runs has stopped, and makes it the current one. A signal that another one has
    /// received is passed on.
    fn take_stop(&mut self) -> io::Result<bool> {
        let running = self.running();
        if self.stopped & 1 << running != 0 {
            self.stopped &= !(1 << running);
            self.current = running;
            return Ok(true);
        }
        // Code of optimisation spaces.
        let mut passed_on = false;
        for (index, child) in self.children.iter_mut().enumerate() {
            // Others are not resumed: only a guest with changed data has them.
            if self.stopped & 1 << index != 0 && child.info()?.0 == SIGNAL {
                self.stopped &= !(1 << index);
                child.end_calls();
                child.continue_as(state::RESUME);
                passed_on = true;
            }
        }
        if passed_on {
            signal(self.children[running].pid);
        }
        // End of optimisation spaces.
        Ok(false)
    }

    /// Answers the call that waits, and waits for the next stop.
    fn answer(&mut self, guest: &mut GuestState) -> io::Result<Reported> {
        guest.is_partial = false;
        self.children[0].listener.answer(guest.registers.0.rax);
        self.wait()
    }

    /// Returns to the guest from the handler, and waits for the next stop.
    fn resume(&mut self, guest: &GuestState, mode: Mode) -> io::Result<Reported> {
        let mut registers = guest.registers;
        if mode == Mode::Step {
            registers.0.eflags |= TRAP_FLAG;
        }
        if guest.is_changed || mode == Mode::Step {
            self.child().load(registers)?;
        }
        self.continue_as(state::RESUME)
    }

    /// Reads the report of a signal.
    fn signal(&self, guest: &mut GuestState, mode: Mode) -> io::Result<Stop> {
        guest.registers = self.child().store()?;
        if mode == Mode::Step {
            guest.registers.0.eflags &= !TRAP_FLAG;
        }
        let (number, code, _) = self.child().info()?;
        guest.is_signalled |= number == SIGNAL;
        guest.call_number = guest.registers.0.rax;
        let stop = match number {
            libc::SIGSYS if CODES_OF_CALLS.contains(&code) => Stop::Call,
            number => Stop::Signal(number),
        };
        guest.is_changed = mode == Mode::Step || stop == Stop::Call;
        Ok(stop)
    }

    /// Makes the current process drop its mappings from an address on.
    fn drop_mappings(&mut self, from: u64) -> io::Result<()> {
        let arguments = [from, SWITCHER - from, 0, 0, 0];
        self.defer(libc::SYS_munmap, arguments)
    }
}

impl Control for Signalled {
    fn pid(&self) -> libc::pid_t {
        self.child().pid
    }

    fn pids(&self) -> Vec<libc::pid_t> {
        self.children.iter().map(|child| child.pid).collect()
    }

    fn run(&mut self, guest: &mut GuestState, mode: Mode) -> io::Result<Stop> {
        let reported = if guest.is_partial {
            self.answer(guest)?
        } else {
            self.resume(guest, mode)?
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
        signal(self.pid());
        match self.run(guest, Mode::Run)? {
            Stop::Signal(SIGNAL) => Ok(()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn call(&mut self, number: libc::c_long, arguments: [u64; 5]) -> io::Result<i64> {
        let caller = self.current;
        let last = self.children[caller].add_call((number, arguments));
        match self.continue_as(state::CALL)? {
            Reported::Signal if self.current == caller => Ok(self.child().result(last)),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    // Code of optimisation batching.
    fn defer(&mut self, number: libc::c_long, arguments: [u64; 5]) -> io::Result<()> {
        let child = &mut self.children[self.current];
        if !self.is_batching || child.is_almost_full() {
            return self.call_checked(number, arguments).map(drop);
        }
        child.add_call((number, arguments));
        Ok(())
    }

    // End of optimisation batching.

    fn index(&self) -> usize {
        self.current
    }

    fn root(&self) -> Option<u64> {
        self.switches_itself.then(|| self.table.root(self.current))
    }

    fn set_root(&mut self, root: u64) {
        self.table.set_root(self.current, root);
    }

    // Code of optimisation spaces.
    fn load_space(&mut self, root: u64) -> io::Result<bool> {
        let index = self.table.assign(root, self.current);
        if index == self.current {
            self.table.take_stale(index);
            return Ok(false);
        }
        if self.switches_itself {
            return Ok(true);
        }
        self.current = index;
        self.table.set_current(index);
        if let Some(from) = self.table.take_stale(index) {
            self.drop_mappings(from)?;
        }
        Ok(true)
    }

    fn discard_space(&mut self, root: u64) {
        self.table.discard(root);
    }

    fn invalidate_others(&mut self) {
        for index in (0..self.children.len()).filter(|index| *index != self.current) {
            self.table.set_stale(index, 0);
        }
    }

    // End of optimisation spaces.

    fn signal_info(&self) -> io::Result<(libc::c_int, u64)> {
        let (_, code, address) = self.child().info()?;
        Ok((code, address))
    }
}
