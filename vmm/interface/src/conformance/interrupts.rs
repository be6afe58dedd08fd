//! Interrupts: of one line, to a guest that halts without leaving, and from several lines and
//! pins at once.

use super::{create, guest, in_part, stand::Stand, trace, Failure, Trace};
use crate::{Controllers, Entry, Exit, Hypervisor, IoAddr, VmSpec};

pub(super) const PART: &str = "interrupts";
pub(super) const HALTS: &str = "halts in the guest";
pub(super) const DELIVERY: &str = "interrupt delivery";

/// A guest that halts without leaving is kicked and interrupted like any other.
pub(super) fn run_halts<H: Hypervisor>(hypervisor: &H) -> Result<Trace, Failure> {
    let vm = hypervisor
        .create_vm(&VmSpec {
            halt_in_guest: true,
            ..VmSpec::with(Controllers::Local)
        })
        .map_err(in_part(HALTS))?;
    let mut stand = Stand::new(HALTS, &vm, guest::HALTING, &guest::HANDLERS)?;
    let line = stand.irq_line(guest::VECTOR)?;
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

/// One line: delivered, waited for, and waited for because the VMM says so.
pub(super) fn run<H: Hypervisor>(hypervisor: &H) -> Result<Trace, Failure> {
    let vm = create(hypervisor, PART, Controllers::Local)?;
    let mut stand = Stand::new(PART, &vm, guest::INTERRUPTED, &guest::HANDLERS)?;
    let line = stand.irq_line(guest::VECTOR)?;
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

/// Vectors that come together, and a pin that the guest has connected to one.
pub(super) fn run_delivery<H: Hypervisor>(hypervisor: &H) -> Result<Trace, Failure> {
    let vm = create(hypervisor, DELIVERY, Controllers::Full)?;
    let (code, handlers) = (guest::delivery::CODE, &guest::delivery::HANDLERS);
    let mut stand = Stand::new(DELIVERY, &vm, code, handlers)?;
    let (low, high) = (stand.irq_line(0x40)?, stand.irq_line(0x80)?);
    let pin = stand.irq_pin(guest::delivery::PIN)?;
    stand.follow(trace::DELIVERY, |stand, exit| {
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
                    stand.trigger(line)?;
                }
                Ok(Entry::Resume)
            }
            0x604 => stand.trigger(&pin),
            0x606 => stand.trigger_soon(&pin),
            0x607 => stand.trigger_soon(&high),
            _ => Ok(Entry::Resume),
        }
    })?;
    Ok(stand.trace)
}
