//! Interrupts: one line, a guest that halts without an exit, and several lines and pins at once.

use super::{create, guest, in_part, test_vm::TestVm, trace, Failure, Host, Trace};
use crate::{Controllers, Entry, Exit, Hypervisor, IoAddr, VmSpec};

pub(super) const PART: &str = "interrupts";
pub(super) const HALTS: &str = "halts in the guest";
pub(super) const DELIVERY: &str = "interrupt delivery";

/// Kicks and interrupts a guest that halts without an exit.
pub(super) fn run_halts<H: Hypervisor>(hypervisor: &H, host: &dyn Host) -> Result<Trace, Failure> {
    let vm = hypervisor
        .create_vm(&VmSpec {
            halt_in_guest: true,
            ..VmSpec::with(Controllers::Local)
        })
        .map_err(in_part(HALTS))?;
    let mut test = TestVm::new(HALTS, &vm, host, guest::HALTING, &guest::HANDLERS)?;
    let line = test.irq_line(guest::VECTOR)?;
    test.follow(trace::HALTED_INSIDE, |test, exit| match exit {
        Exit::Write {
            at: IoAddr::Port(0x603),
            ..
        } => test.kick_soon(),
        Exit::Kicked => test.trigger(&line),
        _ => Ok(Entry::Resume),
    })?;
    Ok(test.trace)
}

/// Delivers one line to a running guest, to a halted guest, and to a guest halted by the VMM.
pub(super) fn run<H: Hypervisor>(hypervisor: &H, host: &dyn Host) -> Result<Trace, Failure> {
    let vm = create(hypervisor, PART, Controllers::Local)?;
    let mut test = TestVm::new(PART, &vm, host, guest::INTERRUPTED, &guest::HANDLERS)?;
    let line = test.irq_line(guest::VECTOR)?;
    test.follow(trace::INTERRUPTED, |test, exit| match exit {
        Exit::Write {
            at: IoAddr::Port(0x601),
            ..
        }
        | Exit::Kicked => test.trigger(&line),
        Exit::Write {
            at: IoAddr::Port(0x603),
            ..
        } => test.kick_soon(),
        Exit::Write {
            at: IoAddr::Port(0x604),
            ..
        } => test.halt(),
        _ => Ok(Entry::Resume),
    })?;
    Ok(test.trace)
}

/// Delivers several vectors at once, and a pin routed to a vector.
pub(super) fn run_delivery<H: Hypervisor>(
    hypervisor: &H,
    host: &dyn Host,
) -> Result<Trace, Failure> {
    let vm = create(hypervisor, DELIVERY, Controllers::Full)?;
    let (code, handlers) = (guest::delivery::CODE, &guest::delivery::HANDLERS);
    let mut test = TestVm::new(DELIVERY, &vm, host, code, handlers)?;
    let (low, high) = (test.irq_line(0x40)?, test.irq_line(0x80)?);
    let pin = test.irq_pin(guest::delivery::PIN)?;
    test.follow(trace::DELIVERY, |test, exit| {
        let Exit::Write {
            at: IoAddr::Port(port),
            ..
        } = exit
        else {
            return Ok(Entry::Resume);
        };
        match port {
            0x601 => {
                for line in [&low, &high, &low, &low] {
                    test.trigger(line)?;
                }
                Ok(Entry::Resume)
            }
            0x604 => test.trigger(&pin),
            0x606 => test.trigger_soon(&pin),
            0x607 => test.trigger_soon(&high),
            _ => Ok(Entry::Resume),
        }
    })?;
    Ok(test.trace)
}
