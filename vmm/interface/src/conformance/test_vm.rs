//! A test VM with one vCPU, and the operations of the tests.

use super::{guest, in_part, Failure, Host, Trace};
use crate::{
    Access, Activity, Doorbell, Entry, Exit, General, Gpa, IoAddr, IrqId, IrqLine, Kicker, RegSet,
    Region, Vcpu, VcpuId, VcpuState, Vm,
};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A VM, its vCPU and the trace so far.
pub(super) struct TestVm<'a, M: Vm> {
    vm: &'a M,
    host: &'a dyn Host,
    pub vcpu: M::Vcpu,
    pub trace: Trace,
    /// The guest spins until a register changes.
    pub spins: bool,
}

/// Creates guest memory with the common tables, `code`, and an IDT for `handlers`.
pub(super) fn memory(
    host: &dyn Host,
    length: usize,
    code: &[&[u8]],
    handlers: &[(u8, u64)],
) -> Result<Region, Failure> {
    let memory = host.memory(length).map_err(Failure::Memory)?;
    fill(&memory, guest::CODE, &code.concat())?;
    let gates = handlers.iter().copied().map(guest::gate);
    for (at, value) in guest::tables().chain(gates) {
        fill(&memory, at, &value.to_le_bytes())?;
    }
    Ok(memory)
}

/// Writes `bytes` as the VMM.
pub(super) fn fill(memory: &Region, at: u64, bytes: &[u8]) -> Result<(), Failure> {
    #[cfg(feature = "std")]
    return memory
        .load(at, bytes)
        .map_err(|error| Failure::Memory(error.to_string()));
    #[cfg(not(feature = "std"))]
    Ok(memory.write(at, bytes)?)
}

impl<'a, M: Vm> TestVm<'a, M> {
    /// Creates a VM with one vCPU.
    pub fn new(
        part: &'static str,
        vm: &'a M,
        host: &'a dyn Host,
        code: &[&[u8]],
        handlers: &[(u8, u64)],
    ) -> Result<Self, Failure> {
        let memory = memory(host, guest::MEMORY, code, handlers)?;
        vm.attach(Gpa(0), Arc::new(memory), Access::ReadWrite)
            .map_err(in_part(part))?;
        Self::with_vcpu(part, vm, host, VcpuId(0))
    }

    /// Creates vCPU `id` of a VM with memory; only vCPU 0 starts by itself.
    pub fn with_vcpu(
        part: &'static str,
        vm: &'a M,
        host: &'a dyn Host,
        id: VcpuId,
    ) -> Result<Self, Failure> {
        let boot = guest::boot_state();
        let vcpu = vm
            .create_vcpu(id, (id == VcpuId(0)).then_some(&boot))
            .map_err(in_part(part))?;
        Ok(Self {
            vm,
            host,
            vcpu,
            trace: Trace {
                part,
                lines: Vec::new(),
            },
            spins: false,
        })
    }

    /// Runs the guest along `expected`; `respond` handles each exit.
    pub fn follow(
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

    pub fn compare(&mut self, expected: &str, exit: Exit) -> Result<(), Failure> {
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

    pub fn memory(&self, length: usize) -> Result<Region, Failure> {
        self.host.memory(length).map_err(Failure::Memory)
    }

    pub fn attach(&self, at: Gpa, region: &Arc<Region>, access: Access) -> Result<(), Failure> {
        self.vm
            .attach(at, Arc::clone(region), access)
            .map_err(in_part(self.trace.part))
    }

    pub fn detach(&self, at: Gpa) -> Result<Arc<Region>, Failure> {
        self.vm.detach(at).map_err(in_part(self.trace.part))
    }

    pub fn check(&self, holds: bool, otherwise: &str) -> Result<(), Failure> {
        if holds {
            return Ok(());
        }
        Err(Failure::Effect {
            part: self.trace.part,
            step: self.trace.lines.len(),
            what: otherwise.into(),
        })
    }

    pub fn general(&mut self) -> Result<General, Failure> {
        let state = self.vcpu.state(RegSet::GENERAL);
        let general = state.map_err(in_part(self.trace.part))?.general;
        self.check(
            general.is_some(),
            "asked for, the general registers are not there",
        )?;
        Ok(general.unwrap_or_default())
    }

    pub fn adjust(&mut self, change: impl FnOnce(&mut General)) -> Result<Entry, Failure> {
        let mut general = self.general()?;
        change(&mut general);
        self.set(general)
    }

    pub fn set(&mut self, changed: impl Into<VcpuState>) -> Result<Entry, Failure> {
        self.vcpu
            .set_state(&changed.into())
            .map_err(in_part(self.trace.part))?;
        Ok(Entry::Resume)
    }

    pub fn kick_now(&mut self) -> Result<Entry, Failure> {
        self.vcpu.kicker().kick();
        Ok(Entry::Resume)
    }

    pub fn kick_soon(&mut self) -> Result<Entry, Failure> {
        let kicker: Kicker = self.vcpu.kicker();
        self.host.later(Box::new(move || kicker.kick()));
        Ok(Entry::Resume)
    }

    pub fn halt(&mut self) -> Result<Entry, Failure> {
        self.set(Activity::Halted)?;
        self.kick_soon()
    }

    pub fn irq_line(&self, vector: u8) -> Result<IrqLine, Failure> {
        let irq = IrqId {
            vcpu: VcpuId(0),
            vector,
        };
        self.vm.irq_line(irq).map_err(in_part(self.trace.part))
    }

    pub fn irq_pin(&self, pin: u8) -> Result<IrqLine, Failure> {
        self.vm.irq_pin(pin).map_err(in_part(self.trace.part))
    }

    /// Triggers `line` after a delay. A failure shows as a missing interrupt.
    pub fn trigger_soon(&self, line: &IrqLine) -> Result<Entry, Failure> {
        let line = line.clone();
        self.host.later(Box::new(move || {
            let _ignored = line.trigger();
        }));
        Ok(Entry::Resume)
    }

    pub fn track_dirty(&self, at: Gpa, on: bool) -> Result<(), Failure> {
        self.vm
            .track_dirty(at, on)
            .map_err(in_part(self.trace.part))
    }

    pub fn dirty_log(&self, at: Gpa) -> crate::Result<Vec<u64>> {
        self.vm.dirty_log(at)
    }

    pub fn trigger(&self, line: &IrqLine) -> Result<Entry, Failure> {
        line.trigger().map_err(in_part(self.trace.part))?;
        Ok(Entry::Resume)
    }

    pub fn doorbell(&self) -> Result<Option<Doorbell>, Failure> {
        self.vm
            .doorbell(IoAddr::Port(guest::DOORBELL))
            .map_err(in_part(self.trace.part))
    }

    pub fn check_doorbell(&self, doorbell: Option<Doorbell>) -> Result<(), Failure> {
        let Some(doorbell) = doorbell else {
            return Ok(());
        };
        self.check(doorbell.count() == 1, "the doorbell did not ring once")
    }
}
