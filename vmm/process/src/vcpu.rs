//! The vCPU: stops of the guest's process become exits.

mod calls;
mod emulate;
mod faults;
mod spaces;
mod start;

use self::start::Started;
use crate::config::Config;
use crate::control::{Control, GuestState, Mode, Stop};
use crate::delivery::{
    Cpu, ALIGNMENT_CHECK, BREAKPOINT, DEBUG, DIVIDE_ERROR, FLOATING_POINT, INVALID_OPCODE,
    VECTOR_FLOATING_POINT,
};
use crate::failure::denied;
use crate::mappings::Mappings;
use crate::pages::Pages;
use crate::registers::{Registers, INTERRUPTS_ON};
use crate::shared::Shared;
use crate::signals::{LocalApic, ProcessKick, EXPIRY};
use std::io;
use std::sync::Arc;
use trapline_emulation::apic::SharedRequests;
use trapline_emulation::execute::Execution;
use trapline_emulation::paging::PageFault;
use trapline_emulation::GuestRegisters;
use trapline_interface::timer::{monotonic_ns, Timer};
use trapline_interface::{
    Activity, BootState, Entry, Error, Exit, Kicker, RegSet, Result, Stop as GuestStop, Vcpu,
    VcpuState, VcpuStats,
};

/// Attribute of a segment with 64-bit code.
const LONG_CODE: u16 = 1 << 9;

/// A vCPU of a [`crate::ProcessVm`], driven by the thread that created it.
pub struct ProcessVcpu {
    shared: Arc<Shared>,
    config: Config,
    /// Pages of each process.
    pages: Vec<Pages>,
    process: Box<dyn Control + Send>,
    guest: GuestState,
    cpu: Cpu,
    apic: Option<LocalApic>,
    pending: Pending,
    timer: Option<Timer>,
    /// Mappings of each process.
    mappings: Vec<Mappings>,
    /// Guest-physical address of the word that receives the address of each page fault.
    fault_address: Option<u64>,
    /// Changes of memory that the mappings follow.
    changes: u64,
    is_started: bool,
    is_halted: bool,
    /// `sti` was the last instruction: the next one is executed before any interrupt.
    is_inhibited: bool,
    stops: u64,
}

/// Work of the next entry.
enum Pending {
    Nothing,
    /// Answer to a port read of this size.
    Port(u8),
    /// Answer to a hypercall.
    Call,
    /// Rest of an instruction.
    Execution(Execution),
}

/// Event that ends the handling of a stop.
enum Event {
    /// An exception of the guest, with its error code.
    Exception(u8, Option<u64>),
    /// A page fault of the guest.
    PageFault(PageFault),
    /// The kernel refuses a request.
    Failure(io::Error),
}

impl From<PageFault> for Event {
    fn from(fault: PageFault) -> Self {
        Self::PageFault(fault)
    }
}

impl From<io::Error> for Event {
    fn from(error: io::Error) -> Self {
        Self::Failure(error)
    }
}

/// An exit, or none if the guest continues.
type Step = std::result::Result<Option<Exit>, Event>;

impl ProcessVcpu {
    pub(crate) fn new(
        shared: Arc<Shared>,
        boot: &BootState,
        config: Config,
        has_apic: bool,
    ) -> Result<Self> {
        if boot.system.cs.attributes & LONG_CODE == 0 {
            return Err(Error::Unsupported("start a guest outside 64-bit mode"));
        }
        Self::start(shared, boot, config, has_apic).map_err(denied("start the guest's process"))
    }

    fn start(
        shared: Arc<Shared>,
        boot: &BootState,
        config: Config,
        has_apic: bool,
    ) -> io::Result<Self> {
        let mut registers = Registers::new();
        registers.set_general(&boot.general);
        let Started {
            process,
            pages,
            mappings,
        } = Started::new(&shared, boot, &registers, config)?;
        let timer = if has_apic {
            Some(Timer::new(EXPIRY, &shared.lines)?)
        } else {
            None
        };
        Ok(Self {
            apic: has_apic.then(|| LocalApic::new(SharedRequests(Arc::clone(&shared.lines)))),
            changes: shared.changes(),
            shared,
            config,
            pages,
            process,
            guest: GuestState::new(registers),
            cpu: Cpu {
                system: boot.system,
                interrupts_on: boot.general.rflags & INTERRUPTS_ON != 0,
            },
            pending: Pending::Nothing,
            timer,
            mappings,
            fault_address: None,
            is_started: false,
            is_halted: false,
            is_inhibited: false,
            stops: 0,
        })
    }

    /// Returns the number of the guest's process, of several the one that has stopped last.
    pub fn process(&self) -> u32 {
        self.process.pid().unsigned_abs()
    }

    /// Returns the numbers of all processes of the guest.
    pub fn processes(&self) -> Vec<u32> {
        let all = self.process.pids();
        all.into_iter().map(i32::unsigned_abs).collect()
    }

    /// Runs the guest until it exits.
    fn advance(&mut self, entry: Entry) -> std::result::Result<Exit, io::Error> {
        let mut step = self.continue_pending(entry);
        loop {
            let exit = match step {
                Ok(exit) => exit,
                Err(Event::Failure(error)) => return Err(error),
                Err(Event::Exception(vector, error)) => self.deliver(vector, error),
                Err(Event::PageFault(fault)) => self.deliver_page_fault(fault),
            };
            if let Some(exit) = exit {
                return Ok(exit);
            }
            step = self.enter();
        }
    }

    /// Completes the instruction of the last exit.
    fn continue_pending(&mut self, entry: Entry) -> Step {
        let answer = match entry {
            Entry::Answer(value) => value,
            Entry::Resume => 0,
        };
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => Ok(None),
            Pending::Port(size) => {
                self.guest.registers.set(0, size, answer);
                Ok(None)
            }
            Pending::Call => {
                self.guest.registers.set(0, 8, answer);
                Ok(None)
            }
            Pending::Execution(mut execution) => {
                execution.answer(answer);
                self.emulate(execution, None)
            }
        }
    }

    /// Enters the guest once and handles its stop.
    fn enter(&mut self) -> Step {
        self.follow_changes()?;
        if std::mem::take(&mut self.guest.is_signalled) {
            self.shared.lines.signal_arrived();
        }
        let seen = self.shared.lines.notifications();
        if self.shared.lines.take_kick() {
            return Ok(Some(Exit::Kicked));
        }
        let deadline = self.expire_timer();
        if !self.is_inhibited && self.deliver_interrupt()? {
            return Ok(None);
        }
        if self.is_halted {
            self.shared.lines.wait(seen, deadline);
            return Ok(None);
        }
        if let Some(timer) = &mut self.timer {
            timer.set(deadline);
        }
        let is_step = std::mem::take(&mut self.is_inhibited);
        let mode = if is_step { Mode::Step } else { Mode::Run };
        match self.resume_until_stop(mode)? {
            Stop::Signal(libc::SIGSEGV) => self.fault(),
            Stop::Signal(libc::SIGTRAP) if is_step => Ok(None),
            Stop::Signal(signal) => self.signal(signal),
            Stop::Call => Ok(self.hypercall()),
            Stop::Ended(status) => Ok(Some(Exit::Stopped(GuestStop::Unknown(status as u32)))),
            Stop::Interrupted => Ok(None),
        }
    }

    fn resume_until_stop(&mut self, mode: Mode) -> io::Result<Stop> {
        let stop = self.process.run(&mut self.guest, mode)?;
        if let Some(root) = self.process.root() {
            self.cpu.system.cr3 = root;
        }
        self.stops += 1;
        Ok(stop)
    }

    /// Drops mappings of memory that was detached or is tracked.
    fn follow_changes(&mut self) -> io::Result<()> {
        let changes = self.shared.changes();
        if changes != self.changes {
            self.changes = changes;
            self.process.complete(&mut self.guest)?;
            self.flush()?;
            self.process.invalidate_others();
        }
        Ok(())
    }

    /// Drops all mappings of the current process.
    fn flush(&mut self) -> io::Result<()> {
        self.mappings[self.process.index()].flush(self.process.as_mut())
    }

    /// Requests the timer's interrupt if it is due. Returns the time of the next one.
    fn expire_timer(&mut self) -> Option<u64> {
        let apic = self.apic.as_mut()?;
        apic.deadline()?;
        apic.expire(monotonic_ns());
        apic.deadline()
    }

    /// Delivers the interrupt of the highest priority, if the guest accepts one.
    fn deliver_interrupt(&mut self) -> std::result::Result<bool, Event> {
        let Some(apic) = self.apic.as_mut().filter(|_| self.cpu.interrupts_on) else {
            return Ok(false);
        };
        let Some(vector) = apic.pending() else {
            return Ok(false);
        };
        self.process.complete(&mut self.guest)?;
        apic.accept(vector);
        self.is_halted = false;
        Err(Event::Exception(vector, None))
    }

    /// Continues the guest at the handler of `vector`.
    fn deliver(&mut self, vector: u8, error: Option<u64>) -> Option<Exit> {
        self.guest.is_changed = true;
        let mut memory = self.shared.memory();
        let registers = &mut self.guest.registers;
        let delivered = self.cpu.deliver(&mut memory, registers, vector, error);
        delivered
            .err()
            .map(|_| Exit::Stopped(GuestStop::TripleFault))
    }

    /// Handles a signal that is neither a fault of memory nor of privilege.
    fn signal(&mut self, signal: libc::c_int) -> Step {
        let (code, _) = match signal {
            libc::SIGFPE | libc::SIGTRAP | libc::SIGBUS => self.process.signal_info()?,
            _ => (0, 0),
        };
        let vector = match (signal, code) {
            (libc::SIGILL, _) => INVALID_OPCODE,
            (libc::SIGFPE, FPE_INTDIV) => DIVIDE_ERROR,
            (libc::SIGFPE, _) if self.is_vector_fault() => VECTOR_FLOATING_POINT,
            (libc::SIGFPE, _) => FLOATING_POINT,
            (libc::SIGTRAP, libc::SI_KERNEL) => BREAKPOINT,
            (libc::SIGTRAP, _) => DEBUG,
            (libc::SIGBUS, libc::BUS_ADRALN) => {
                return Err(Event::Exception(ALIGNMENT_CHECK, Some(0)))
            }
            (libc::SIGBUS, _) => return Ok(Some(Exit::Stopped(GuestStop::Unknown(signal as u32)))),
            // A notification, or a signal for all processes of the terminal.
            _ => return Ok(None),
        };
        Err(Event::Exception(vector, None))
    }

    /// Returns true if the instruction is not one of the x87 FPU (opcodes d8 to df).
    fn is_vector_fault(&mut self) -> bool {
        let fetched = self.fetch();
        fetched.is_ok_and(|code| !(0xd8..=0xdf).contains(&code[0]) && code[0] != 0x9b)
    }
}

/// Code of `<asm-generic/siginfo.h>`.
const FPE_INTDIV: libc::c_int = 1;

impl Vcpu for ProcessVcpu {
    fn run(&mut self, entry: Entry) -> std::result::Result<Exit, Box<Error>> {
        if !self.is_started {
            self.is_started = true;
            return Ok(Exit::Started);
        }
        self.advance(entry)
            .map_err(|error| Box::new(denied("run the guest's process")(error)))
    }

    fn state(&mut self, which: RegSet) -> Result<VcpuState> {
        self.complete_call()?;
        let mut state = VcpuState::default();
        if which.contains(RegSet::GENERAL) {
            let registers = &self.guest.registers;
            state.general = Some(registers.general(self.cpu.interrupts_on));
        }
        if which.contains(RegSet::SYSTEM) {
            state.system = Some(self.cpu.system);
        }
        if which.contains(RegSet::ACTIVITY) {
            state.activity = Some(if self.is_halted {
                Activity::Halted
            } else {
                Activity::Running
            });
        }
        Ok(state)
    }

    fn set_state(&mut self, changed: &VcpuState) -> Result<()> {
        self.complete_call()?;
        if let Some(activity) = changed.activity {
            self.is_halted = activity == Activity::Halted;
        }
        if let Some(system) = &changed.system {
            self.cpu.system = *system;
            self.process.set_root(system.cr3);
            self.flush()
                .map_err(denied("change the guest's page tables"))?;
        }
        if let Some(general) = &changed.general {
            self.guest.registers.set_general(general);
            self.guest.is_changed = true;
            self.cpu.interrupts_on = general.rflags & INTERRUPTS_ON != 0;
        }
        Ok(())
    }

    fn kicker(&self) -> Kicker {
        Kicker::new(ProcessKick(Arc::clone(&self.shared.lines)))
    }

    fn stats(&mut self) -> VcpuStats {
        VcpuStats {
            kernel_exits: Some(self.stops),
            string_elements: 0,
        }
    }

    fn tsc_offset(&self) -> Option<i64> {
        Some(0)
    }
}
