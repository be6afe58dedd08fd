//! The vCPU: messages of VM exits become exits of the VM interface.

mod answers;
mod controllers;
mod emulate;
mod exits;
mod interrupts;
mod pc;
mod technology;

pub use technology::{Cause, Svm, Technology, Vmx};

use crate::hypercall::{read_state, schedule, Selector, OWN};
use crate::memory::Memory;
use crate::timer::{self, VCPU};
use crate::utcb::{Parts, Utcb};
use alloc::boxed::Box;
use alloc::sync::Arc;
use controllers::Controllers;
use core::arch::asm;
use core::arch::x86_64::_rdtsc;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering};
use pc::Pc;
use trapline_emulation::compute::{Computation, FLAGS};
use trapline_emulation::execute::{extended, Execution};
use trapline_emulation::{GuestRegisters, HIGH_BYTES};
use trapline_interface::{
    Activity, BootState, Entry, Error, Exit, Kick, Kicker, RegSet, Result, System, Vcpu, VcpuState,
    VcpuStats,
};

/// Bits of an event to inject (AMD APM volume 2, 15.20): valid, type "exception", with an error code.
const VALID: u64 = 1 << 31;
const EXCEPTION: u64 = 3 << 8;
const HAS_ERROR: u64 = 1 << 11;
const GENERAL_PROTECTION: u64 = 13;
const PAGE_FAULT: u64 = 14;

/// MSR with the address of the local APIC (Intel SDM volume 3, 11.4.4): its default, enabled, on the boot CPU.
const APIC_BASE: u32 = 0x1b;
const APIC_ENABLED: u64 = 0xfee0_0900;

/// Scheduling context of the vCPU, and its priority: below the timer.
const CONTEXT: Selector = 86;
const PRIORITY: u64 = 2;

/// Returns the parts of the state that the message of an exit has: those that its handling needs.
pub const fn parts(cause: Cause) -> Parts {
    let common = Parts::RIP.with(Parts::ACDB).with(Parts::SHADOW);
    let interruptible = common.with(Parts::FLAGS);
    match cause {
        Cause::Start => Parts::TSC,
        Cause::Port => common.with(Parts::QUALIFICATION),
        Cause::Cpuid => common,
        Cause::Msr => common
            .with(Parts::QUALIFICATION)
            .with(Parts::SYSCALL)
            .with(Parts::FS_GS)
            .with(Parts::EFER),
        Cause::Hypercall => common.with(Parts::BSD),
        Cause::InterruptWindow | Cause::Halt => interruptible.with(Parts::TSC),
        Cause::Recall => interruptible.with(Parts::TSC).with(Parts::INJECTION),
        Cause::Memory => Parts::GENERAL
            .with(Parts::SHADOW)
            .with(Parts::QUALIFICATION)
            .with(Parts::CR)
            .with(Parts::CS_SS)
            .with(Parts::FS_GS),
        Cause::Shutdown | Cause::InvalidState | Cause::Other => Parts::GENERAL,
    }
}

/// The vCPU. The handler of its exits runs it.
pub struct NovaVcpu<T> {
    utcb: &'static mut Utcb,
    memory: Arc<Memory>,
    controllers: Option<Controllers>,
    /// State of a machine with an I/O APIC.
    pc: Option<Pc>,
    boot: BootState,
    /// Parts to write at the next entry.
    changed: Parts,
    pending: Pending,
    /// Instruction in progress.
    execution: Option<Execution>,
    is_started: bool,
    is_halted: bool,
    /// There is something to do before the next entry: an interrupt may be pending, or an instruction is in progress.
    has_work: bool,
    exits: u64,
    /// Number of an exit, and parts that are valid beyond those of its message.
    valid: (u64, Parts),
    technology: PhantomData<T>,
}

/// Result that the next entry takes.
enum Pending {
    Nothing,
    /// Port read of this size.
    Port(u8),
    /// Load into a register.
    Load {
        register: u8,
        size: u8,
        /// Size of the access, and sign extension.
        from: (u8, bool),
    },
    /// Arithmetic with the value.
    Compute(Computation),
    /// Part of the instruction in progress.
    Execution,
    Call,
}

/// A kick has been requested.
static IS_KICKED: AtomicBool = AtomicBool::new(false);

struct NovaKick;

impl Kick for NovaKick {
    fn mark(&self) {
        IS_KICKED.store(true, Ordering::SeqCst);
    }

    fn interrupt(&self) {
        timer::wake();
    }
}

pub fn now() -> u64 {
    // SAFETY: every CPU of a 64-bit machine has a TSC. It counts nanoseconds on the simulated machine.
    unsafe { _rdtsc() }
}

impl<T: Technology> NovaVcpu<T> {
    pub(crate) fn new(
        utcb: &'static mut Utcb,
        boot: &BootState,
        memory: Arc<Memory>,
        controllers: trapline_interface::Controllers,
    ) -> Self {
        use trapline_interface::Controllers::{Full, None as NoControllers};
        let is_full = controllers == Full;

        Self {
            utcb,
            memory,
            controllers: (controllers != NoControllers).then(|| Controllers::new(is_full)),
            pc: is_full.then(|| Pc::new(now())),
            boot: *boot,
            changed: Parts::NONE,
            pending: Pending::Nothing,
            execution: None,
            is_started: false,
            is_halted: false,
            has_work: false,
            exits: 0,
            valid: (0, Parts::NONE),
            technology: PhantomData,
        }
    }

    /// Starts the vCPU: replies to the caller of the handler, and receives the exit that starts the vCPU.
    fn start(&mut self) -> Result<()> {
        schedule(CONTEXT, OWN, VCPU, PRIORITY)?;
        self.enter();
        self.exits = 0;
        self.load_boot_state();
        self.show_hidden_time();
        Ok(())
    }

    /// Returns why the guest exited.
    #[inline(always)]
    fn cause(&self) -> Cause {
        T::cause(self.utcb.exit)
    }

    /// Returns the parts of the last message.
    fn message(&self) -> Parts {
        parts(self.cause())
    }

    /// Reads parts of the state that the message of this exit does not have.
    fn require(&mut self, needed: Parts) -> Result<()> {
        let mut present = self.message();
        if self.valid.0 == self.exits {
            present = present.with(self.valid.1);
        }
        let missing = needed.without(present);
        if missing != Parts::NONE {
            read_state(VCPU, missing)?;
        }
        self.valid = (self.exits, present.with(needed));
        Ok(())
    }

    /// Records that parts of the message are to be written, and are valid.
    fn replace(&mut self, parts: Parts) {
        self.changed = self.changed.with(parts);
        self.valid = if self.valid.0 == self.exits {
            (self.exits, self.valid.1.with(parts))
        } else {
            (self.exits, parts)
        };
    }

    /// Fills the reply to the exit that starts the vCPU.
    fn load_boot_state(&mut self) {
        let utcb = &mut *self.utcb;
        utcb.set_general(&self.boot.general);
        utcb.set_system(&self.boot.system);
        utcb.efer |= T::EFER;
        utcb.dr7 = 0x400;
        utcb.xcr0 = 7;
        utcb.shadow = 0;
        utcb.injection = 0;
        utcb.control = T::CONTROLS;
        let parts = Parts::GENERAL.with(Parts::SYSTEM).with(Parts::DR);
        self.replace(
            parts
                .with(Parts::CONTROL)
                .with(Parts::INJECTION)
                .with(Parts::SHADOW)
                .with(Parts::XSAVE),
        );
    }

    /// Enters the guest and waits for its next exit.
    #[inline(always)]
    fn enter(&mut self) {
        self.utcb.parts = self.changed.0;
        self.changed = Parts::NONE;
        // SAFETY: the kernel keeps all registers but these until the next message, which it writes to the UTCB.
        unsafe {
            asm!("call trapline_enter_guest", out("rdi") _, out("rcx") _, out("r11") _);
        }
        self.exits += 1;
    }

    /// Moves on behind an instruction, which ends an interrupt shadow.
    #[inline(always)]
    fn skip(&mut self, length: u64) {
        self.utcb.rip = self.utcb.rip.wrapping_add(length);
        self.changed = self.changed.with(Parts::RIP);
        if self.utcb.shadow != 0 {
            self.utcb.shadow = 0;
            self.changed = self.changed.with(Parts::SHADOW);
        }
    }

    fn set_register(&mut self, register: u8, size: u8, value: u64) {
        self.utcb.set_operand(register, size, value);
        self.changed = self.changed.with(match register {
            0..=3 | HIGH_BYTES.. => Parts::ACDB,
            4 => Parts::RSP,
            5..=7 => Parts::BSD,
            _ => Parts::R8_R15,
        });
    }

    /// Completes the instruction of the last exit.
    #[inline(always)]
    fn complete(&mut self, entry: Entry) {
        let Entry::Answer(value) = entry else {
            self.pending = Pending::Nothing;
            return;
        };
        match core::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => {}
            Pending::Port(size) => {
                self.utcb.set(0, size, value);
                self.changed = self.changed.with(Parts::ACDB);
            }
            Pending::Load {
                register,
                size,
                from: (length, is_signed),
            } => {
                let value = extended(value, length, is_signed);
                self.set_register(register, size, value);
            }
            Pending::Compute(computation) => {
                let outcome = computation.apply(value, self.utcb.rflags);
                if let Some((register, value)) = outcome.register {
                    self.set_register(register, computation.size, value);
                }
                self.utcb.rflags = self.utcb.rflags & !FLAGS | outcome.flags;
                self.changed = self.changed.with(Parts::FLAGS);
            }
            Pending::Execution => self.answer_execution(value),
            Pending::Call => self.set_register(0, 8, value),
        }
    }

    /// Injects an exception with an error code.
    fn inject(&mut self, vector: u64, code: u64) {
        self.utcb.injection = code << 32 | VALID | EXCEPTION | HAS_ERROR | vector;
        self.changed = self.changed.with(Parts::INJECTION);
    }
}

/// Place of the last exit.
impl<T> fmt::Display for NovaVcpu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (exit, [first, second]) = (self.utcb.exit, self.utcb.qualification);
        write!(
            f,
            "exit {exit:#x} at {:#x}, {first:#x}, {second:#x}",
            self.utcb.rip
        )
    }
}

impl<T: Technology> Vcpu for NovaVcpu<T> {
    #[inline(always)]
    fn run(&mut self, entry: Entry) -> core::result::Result<Exit, Box<Error>> {
        if !self.is_started {
            self.is_started = true;
            self.start()?;
            return Ok(Exit::Started);
        }
        self.complete(entry);
        loop {
            if self.has_work || self.is_halted {
                if let Some(exit) = self.work() {
                    return Ok(exit);
                }
            }
            self.enter();
            if let Some(exit) = self.handle() {
                return Ok(exit);
            }
        }
    }

    fn state(&mut self, which: RegSet) -> Result<VcpuState> {
        let whole = |set: RegSet| which.contains(set);
        if whole(RegSet::GENERAL) {
            self.require(Parts::GENERAL)?;
        }
        if whole(RegSet::SYSTEM) {
            self.require(Parts::SYSTEM)?;
        }
        Ok(VcpuState {
            general: whole(RegSet::GENERAL).then(|| self.utcb.general()),
            system: whole(RegSet::SYSTEM).then(|| {
                let system = self.utcb.system();
                let efer = system.efer & !T::EFER;
                System { efer, ..system }
            }),
            activity: whole(RegSet::ACTIVITY).then_some(if self.is_halted {
                Activity::Halted
            } else {
                Activity::Running
            }),
        })
    }

    fn set_state(&mut self, changed: &VcpuState) -> Result<()> {
        if let Some(general) = &changed.general {
            self.utcb.set_general(general);
            self.replace(Parts::GENERAL);
        }
        if let Some(system) = &changed.system {
            self.utcb.set_system(system);
            self.utcb.efer |= T::EFER;
            self.replace(Parts::SYSTEM);
        }
        if let Some(activity) = changed.activity {
            self.is_halted = activity == Activity::Halted;
        }
        Ok(())
    }

    fn kicker(&self) -> Kicker {
        Kicker::new(NovaKick)
    }

    fn stats(&mut self) -> VcpuStats {
        VcpuStats {
            kernel_exits: Some(self.exits),
            string_elements: 0,
        }
    }

    fn tsc_offset(&self) -> Option<i64> {
        Some(0)
    }
}
