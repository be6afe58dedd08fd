//! The conformance suite: tiny guests whose exits are compared literally.
//!
//! Every backend passes it. A guest of one page does one thing of each kind - port
//! and memory accesses of every size, string accesses, memory attached and
//! detached under its feet, registers, a halt, a recall, an end - and the trace
//! of its exits must be, line by line, the text in [`trace`]. A second guest takes
//! interrupts, where the backend has them, and a third while it halts without leaving. What a guest reads it writes to a port,
//! so that a wrong answer shows in the trace as well.

mod guest;
pub mod trace;

use crate::{
    Access, Activity, Caps, Controllers, Doorbell, Entry, Error, Exit, General, Gpa, Hypervisor,
    IoAddr, IrqId, IrqLine, Kicker, RegSet, Region, Vcpu, VcpuId, Vm, VmSpec,
};
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use thiserror::Error;

/// Why a backend does not conform.
#[derive(Debug, Error)]
pub enum Failure {
    /// The trace differs.
    #[error("{part}, exit {step}: expected '{expected}', got '{got}'")]
    Trace {
        /// Which guest.
        part: &'static str,
        /// Which exit, from 0.
        step: usize,
        /// What the trace should say.
        expected: String,
        /// What the guest was seen doing.
        got: String,
    },
    /// Something that no trace shows is wrong.
    #[error("{part}, exit {step}: {what}")]
    Effect {
        /// Which guest.
        part: &'static str,
        /// At which exit, from 0.
        step: usize,
        /// What is wrong.
        what: String,
    },
    /// The backend refused something that it must be able to do.
    #[error("{part}: {source}")]
    Backend {
        /// Which guest.
        part: &'static str,
        /// Its refusal.
        source: Error,
    },
    /// No memory for the guest.
    #[error("no memory for the guest: {0}")]
    Memory(#[from] io::Error),
}

/// One guest's trace, as it was seen and found right.
#[derive(Debug)]
pub struct Trace {
    /// Which guest.
    pub part: &'static str,
    /// Its exits.
    pub lines: Vec<String>,
}

const ACCESSES: &str = "accesses";
const INTERRUPTS: &str = "interrupts";
const HALTS: &str = "halts in the guest";

/// How long the guest is left alone before somebody kicks it.
const SPELL: Duration = Duration::from_millis(20);

/// What the guest reads, in order.
const ANSWERS: [u64; 11] = [
    0x5a,
    0xa55a,
    0xdead_beef,
    0x11,
    0x22,
    0x99,
    0xa0a1,
    0xb0b1_b2b3,
    0x0123_4567_89ab_cdef,
    0x1111_1111,
    0x4444_4444,
];

/// Runs the suite and returns the traces.
///
/// # Errors
/// The first difference from what every backend must do.
pub fn run<H: Hypervisor>(hypervisor: &H, caps: &Caps) -> Result<Vec<Trace>, Failure> {
    let mut traces = vec![run_accesses(hypervisor, caps)?];
    if caps.irq_lines {
        traces.push(run_interrupts(hypervisor)?);
    }
    if caps.irq_lines && caps.halt_in_guest {
        traces.push(run_halts(hypervisor)?);
    }
    Ok(traces)
}

/// The trace that a backend with these capabilities must show for the first guest.
pub fn expected_accesses(caps: &Caps) -> String {
    let read_only = if caps.read_only { trace::READ_ONLY } else { "" };
    [trace::ACCESSES, read_only, trace::ENDING].concat()
}

fn run_accesses<H: Hypervisor>(hypervisor: &H, caps: &Caps) -> Result<Trace, Failure> {
    let vm = hypervisor
        .create_vm(&VmSpec::with(Controllers::None))
        .map_err(in_part(ACCESSES))?;
    let mut stand = Stand::new(ACCESSES, vm, guest::ACCESSES)?;
    let mut flags = 0;
    if caps.read_only {
        flags |= guest::HAS_READ_ONLY;
    }
    let doorbell = stand.doorbell()?;
    if doorbell.is_some() {
        flags |= guest::HAS_DOORBELL;
    }
    let window = Arc::new(Region::new(crate::PAGE)?);
    let mut answers = ANSWERS.into_iter();
    stand.follow(&expected_accesses(caps), |stand, exit| match exit {
        Exit::Started => stand.adjust(|general| {
            general.r12 = 0x600d_cafe;
            general.r15 = flags;
        }),
        Exit::Read { .. } => Ok(Entry::Answer(answers.next().unwrap_or_default())),
        Exit::Write {
            at: IoAddr::Port(port),
            ..
        } => stand.accessed(port, &window),
        Exit::Halted => stand.kick_now(),
        Exit::Kicked if stand.spins => stand.adjust(|general| general.r14 = 0x7777_7777),
        _ => Ok(Entry::Resume),
    })?;
    stand.check_doorbell(doorbell)?;
    Ok(stand.trace)
}

/// A guest that halts without leaving is kicked and interrupted like any other.
fn run_halts<H: Hypervisor>(hypervisor: &H) -> Result<Trace, Failure> {
    let vm = hypervisor
        .create_vm(&VmSpec {
            halt_in_guest: true,
            ..VmSpec::with(Controllers::Local)
        })
        .map_err(in_part(HALTS))?;
    let mut stand = Stand::new(HALTS, vm, guest::HALTING)?;
    let line = stand.irq_line()?;
    stand.follow(trace::HALTED_INSIDE, |stand, exit| match exit {
        Exit::Write {
            at: IoAddr::Port(0x603),
            ..
        } => stand.kick_soon(),
        Exit::Kicked => stand.trigger(&line),
        _ => Ok(Entry::Resume),
    })?;
    Ok(stand.trace)
}

fn run_interrupts<H: Hypervisor>(hypervisor: &H) -> Result<Trace, Failure> {
    let vm = hypervisor
        .create_vm(&VmSpec::with(Controllers::Local))
        .map_err(in_part(INTERRUPTS))?;
    let mut stand = Stand::new(INTERRUPTS, vm, guest::INTERRUPTED)?;
    let line = stand.irq_line()?;
    stand.follow(trace::INTERRUPTED, |stand, exit| match exit {
        Exit::Write {
            at: IoAddr::Port(0x601),
            ..
        }
        | Exit::Kicked => stand.trigger(&line),
        Exit::Write {
            at: IoAddr::Port(0x603),
            ..
        } => stand.kick_soon(),
        Exit::Write {
            at: IoAddr::Port(0x604),
            ..
        } => stand.halt(),
        _ => Ok(Entry::Resume),
    })?;
    Ok(stand.trace)
}

fn in_part(part: &'static str) -> impl FnOnce(Error) -> Failure {
    move |source| Failure::Backend { part, source }
}

/// A guest on the test stand: machine, vCPU, and what was seen so far.
struct Stand<M: Vm> {
    vm: M,
    vcpu: M::Vcpu,
    trace: Trace,
    /// The guest goes round a loop that only its registers can end.
    spins: bool,
}

impl<M: Vm> Stand<M> {
    fn new(part: &'static str, vm: M, code: &[&[u8]]) -> Result<Self, Failure> {
        let memory = Region::new(guest::MEMORY)?;
        memory.write(guest::CODE, &code.concat())?;
        for (at, value) in guest::tables() {
            memory.write(at, &value.to_le_bytes())?;
        }
        vm.attach(Gpa(0), Arc::new(memory), Access::ReadWrite)
            .map_err(in_part(part))?;
        let vcpu = vm
            .create_vcpu(VcpuId(0), Some(&guest::boot_state()))
            .map_err(in_part(part))?;
        let trace = Trace {
            part,
            lines: Vec::new(),
        };
        Ok(Self {
            vm,
            vcpu,
            trace,
            spins: false,
        })
    }

    /// Runs the guest along `expected`; `respond` says what to do at each exit.
    fn follow(
        &mut self,
        expected: &str,
        mut respond: impl FnMut(&mut Self, Exit) -> Result<Entry, Failure>,
    ) -> Result<(), Failure> {
        let mut entry = Entry::Resume;
        for line in expected.lines() {
            let exit = self.vcpu.run(entry).map_err(|refusal| Failure::Backend {
                part: self.trace.part,
                source: *refusal,
            })?;
            self.compare(line, exit)?;
            entry = respond(self, exit)?;
        }
        Ok(())
    }

    fn compare(&mut self, expected: &str, exit: Exit) -> Result<(), Failure> {
        let got = exit.to_string();
        if got != expected {
            return Err(Failure::Trace {
                part: self.trace.part,
                step: self.trace.lines.len(),
                expected: expected.into(),
                got,
            });
        }
        self.trace.lines.push(got);
        Ok(())
    }

    /// The first guest has announced something at `port`.
    fn accessed(&mut self, port: u16, window: &Arc<Region>) -> Result<Entry, Failure> {
        let at = Gpa(guest::WINDOW);
        match port {
            0x604 => {
                let seen = self.general()?.r13;
                self.check(
                    seen == 0x1122_3344_5566_7788,
                    "r13 is not what the guest put there",
                )?;
            }
            0x605 => {
                window.write(0, &0x2222_2222u32.to_le_bytes())?;
                self.attach(at, window, Access::ReadWrite)?;
            }
            0x606 => {
                let back = self.vm.detach(at).map_err(in_part(self.trace.part))?;
                self.check(Arc::ptr_eq(&back, window), "another region came back")?;
                let stored = window.load32(4);
                self.check(
                    stored == Some(0x3333_3333),
                    "the guest's store is not in its memory",
                )?;
            }
            0x607 => {
                window.write(0, &0x5555_5555u32.to_le_bytes())?;
                self.attach(at, window, Access::ReadOnly)?;
            }
            0x608 => {
                self.spins = true;
                return self.kick_soon();
            }
            _ => {}
        }
        Ok(Entry::Resume)
    }

    fn attach(&self, at: Gpa, region: &Arc<Region>, access: Access) -> Result<(), Failure> {
        self.vm
            .attach(at, Arc::clone(region), access)
            .map_err(in_part(self.trace.part))
    }

    fn check(&self, holds: bool, otherwise: &str) -> Result<(), Failure> {
        if holds {
            return Ok(());
        }
        Err(Failure::Effect {
            part: self.trace.part,
            step: self.trace.lines.len(),
            what: otherwise.into(),
        })
    }

    fn general(&mut self) -> Result<General, Failure> {
        let state = self.vcpu.state(RegSet::GENERAL);
        let general = state.map_err(in_part(self.trace.part))?.general;
        self.check(
            general.is_some(),
            "asked for, the general registers are not there",
        )?;
        Ok(general.unwrap_or_default())
    }

    fn adjust(&mut self, change: impl FnOnce(&mut General)) -> Result<Entry, Failure> {
        let mut general = self.general()?;
        change(&mut general);
        self.set(general)
    }

    fn set(&mut self, changed: impl Into<crate::VcpuState>) -> Result<Entry, Failure> {
        self.vcpu
            .set_state(&changed.into())
            .map_err(in_part(self.trace.part))?;
        Ok(Entry::Resume)
    }

    fn kick_now(&mut self) -> Result<Entry, Failure> {
        self.vcpu.kicker().kick();
        Ok(Entry::Resume)
    }

    fn kick_soon(&mut self) -> Result<Entry, Failure> {
        let kicker: Kicker = self.vcpu.kicker();
        thread::spawn(move || {
            thread::sleep(SPELL);
            kicker.kick();
        });
        Ok(Entry::Resume)
    }

    fn halt(&mut self) -> Result<Entry, Failure> {
        self.set(Activity::Halted)?;
        self.kick_soon()
    }

    fn irq_line(&self) -> Result<IrqLine, Failure> {
        let irq = IrqId {
            vcpu: VcpuId(0),
            vector: guest::VECTOR,
        };
        self.vm.irq_line(irq).map_err(in_part(self.trace.part))
    }

    fn trigger(&self, line: &IrqLine) -> Result<Entry, Failure> {
        line.trigger().map_err(in_part(self.trace.part))?;
        Ok(Entry::Resume)
    }

    fn doorbell(&self) -> Result<Option<Doorbell>, Failure> {
        self.vm
            .doorbell(IoAddr::Port(guest::DOORBELL))
            .map_err(in_part(self.trace.part))
    }

    fn check_doorbell(&self, doorbell: Option<Doorbell>) -> Result<(), Failure> {
        let Some(Doorbell(fd)) = doorbell else {
            return Ok(());
        };
        let mut count = [0; 8];
        File::from(fd).read_exact(&mut count)?;
        let rung = u64::from_ne_bytes(count);
        self.check(rung == 1, "the doorbell did not ring once")
    }
}

#[cfg(test)]
mod tests;
