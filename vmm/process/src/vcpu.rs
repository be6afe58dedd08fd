//! The vCPU: stops of the guest's process become exits.

mod calls;
mod emulate;
mod faults;
mod spaces;

use self::emulate::Emulation;
use crate::apic::Apic;
use crate::control::{Control, GuestState, Mode, Stop};
use crate::crossing::Crossing;
use crate::decode::PortString;
use crate::delivery::{
    Cpu, ALIGNMENT_CHECK, BREAKPOINT, DEBUG, DIVIDE_ERROR, FLOATING_POINT, INVALID_OPCODE,
    VECTOR_FLOATING_POINT,
};
use crate::failure::denied;
use crate::layout::SWITCHER_PAGES;
use crate::mappings::Mappings;
use crate::paging::PageFault;
use crate::registers::{Registers, INTERRUPTS_ON};
use crate::sandbox;
use crate::shared::Shared;
use crate::signalled::Signalled;
use crate::signals::{monotonic_ns, ProcessKick, Timer};
use std::io;
use std::sync::Arc;
use trapline_interface::{
    Activity, BootState, Entry, Error, Exit, Kicker, RegSet, Region, Result, Stop as GuestStop,
    Vcpu, VcpuState, VcpuStats, PAGE,
};

/// Attribute of a segment with 64-bit code.
const LONG_CODE: u16 = 1 << 9;

/// A vCPU of a [`crate::ProcessVm`], driven by the thread that created it.
pub struct ProcessVcpu {
    shared: Arc<Shared>,
    crossing: Crossing,
    switcher: Arc<Region>,
    process: Box<dyn Control + Send>,
    guest: GuestState,
    cpu: Cpu,
    apic: Option<Apic>,
    pending: Pending,
    timer: Option<Timer>,
    mappings: Mappings,
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
    /// Answer to an element of a port read into memory, and length of the instruction.
    PortString(PortString, u64),
    /// Answer to a hypercall.
    Call,
    /// Rest of a memory access.
    Memory(Emulation),
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
        crossing: Crossing,
        has_apic: bool,
    ) -> Result<Self> {
        if boot.system.cs.attributes & LONG_CODE == 0 {
            return Err(Error::Unsupported("start a guest outside 64-bit mode"));
        }
        Self::start(shared, boot, crossing, has_apic).map_err(denied("start the guest's process"))
    }

    fn start(
        shared: Arc<Shared>,
        boot: &BootState,
        crossing: Crossing,
        has_apic: bool,
    ) -> io::Result<Self> {
        let switcher = Arc::new(Region::new(SWITCHER_PAGES * PAGE)?);
        let (mut tracee, listener) = sandbox::start(&mut shared.memory(), &switcher, crossing)?;
        let mut mappings = Mappings::default();
        mappings.fill(&mut tracee, &mut shared.memory(), &boot.system)?;
        let mut registers = Registers::new();
        registers.set_general(&boot.general);
        shared.lines.set_process(tracee.pid());
        let process: Box<dyn Control + Send> = match crossing.signal_source() {
            None => Box::new(tracee),
            Some(_) => {
                let (switcher, lines) = (Arc::clone(&switcher), Arc::clone(&shared.lines));
                Box::new(Signalled::detach(
                    tracee, &registers, switcher, lines, listener,
                )?)
            }
        };
        let timer = match has_apic {
            true => Some(Timer::new(process.pid())?),
            false => None,
        };
        Ok(Self {
            apic: has_apic.then(|| Apic::new(Arc::clone(&shared.lines))),
            changes: shared.changes(),
            shared,
            crossing,
            switcher,
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

    /// Returns the number of the guest's process.
    pub fn process(&self) -> u32 {
        self.process.pid().unsigned_abs()
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
            Pending::PortString(string, length) => {
                self.store_element(string, length, answer)?;
                Ok(None)
            }
            Pending::Memory(mut access) => {
                access.answer_if_reading(answer);
                self.emulate(access)
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
        self.stops += 1;
        Ok(stop)
    }

    /// Drops mappings of memory that was detached or is tracked.
    fn follow_changes(&mut self) -> io::Result<()> {
        let changes = self.shared.changes();
        if changes != self.changes {
            self.changes = changes;
            self.process.complete(&mut self.guest)?;
            self.mappings.flush(self.process.as_mut())?;
        }
        Ok(())
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
            state.activity = Some(match self.is_halted {
                true => Activity::Halted,
                false => Activity::Running,
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
            self.mappings
                .flush(self.process.as_mut())
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
