//! The interfaces to a domain, and its I/O request server (Xen `public/hvm/dm_op.h`).

use crate::events::Events;
use crate::privcmd::{Privcmd, Yielding};
use crate::slot::Slot;
use std::io;

/// Kernel interfaces to one domain.
#[derive(Debug)]
pub(crate) struct Devices {
    pub xen: Privcmd,
    pub events: Events,
    pub yielding: Yielding,
}

/// `XENMEM_resource_ioreq_server`, and its frame with the slots of the first vCPUs (Xen `public/memory.h`).
const SERVER: u32 = 0;
const SLOTS: u32 = 1;

/// Operations.
const CREATE: u32 = 1;
const MAP_RANGE: u32 = 3;
const SET_STATE: u32 = 5;
const INJECT_MSI: u32 = 14;
const REMOTE_SHUTDOWN: u32 = 16;

/// Address spaces of [`MAP_RANGE`].
const PORTS: u32 = 0;
const MEMORY: u32 = 1;

/// `xen_dm_op` with one of its structures.
#[repr(C)]
struct Operation<T> {
    number: u32,
    pad: u32,
    argument: T,
    /// Xen reads as many bytes as its version has, up to the size of the largest structure.
    rest: [u64; 4],
}

/// `xen_dm_op_create_ioreq_server`.
#[repr(C)]
struct Create {
    has_buffer: u8,
    pad: [u8; 3],
    id: u16,
}

/// `xen_dm_op_ioreq_server_range`.
#[repr(C, align(8))]
struct Range {
    id: u16,
    pad: u16,
    space: u32,
    first: u64,
    last: u64,
}

/// `xen_dm_op_set_ioreq_server_state`.
#[repr(C)]
struct State {
    id: u16,
    is_enabled: u8,
    pad: u8,
}

/// `xen_dm_op_inject_msi`.
#[repr(C, align(8))]
struct Message {
    data: u32,
    pad: u32,
    address: u64,
}

/// `SHUTDOWN_poweroff` (Xen `public/sched.h`).
const POWER_OFF: u32 = 0;

/// Executes an operation. Returns its structure with the results.
///
/// # Safety
/// `argument` must be the structure of operation `number`.
unsafe fn execute<T>(xen: &Privcmd, number: u32, argument: T) -> io::Result<T> {
    let mut operation = Operation {
        number,
        pad: 0,
        argument,
        rest: [0; 4],
    };
    // SAFETY: the operations of this module have no other buffers.
    unsafe { xen.device_model(&mut operation) }?;
    Ok(operation.argument)
}

/// Registers a server for all ports and all addresses from `memory_end`. Returns the slot of vCPU 0.
pub(crate) fn serve(xen: &Privcmd, memory_end: u64) -> io::Result<Slot> {
    let wanted = Create {
        has_buffer: 0,
        pad: [0; 3],
        id: 0,
    };
    // SAFETY: the structure of this operation.
    let id = unsafe { execute(xen, CREATE, wanted) }?.id;
    let page = xen.map_resource(SERVER, id.into(), SLOTS)?;
    for (space, first, last) in [
        (PORTS, 0, u64::from(u16::MAX)),
        (MEMORY, memory_end, u64::MAX),
    ] {
        let range = Range {
            id,
            pad: 0,
            space,
            first,
            last,
        };
        // SAFETY: the structure of this operation.
        unsafe { execute(xen, MAP_RANGE, range) }?;
    }
    let enabled = State {
        id,
        is_enabled: 1,
        pad: 0,
    };
    // SAFETY: the structure of this operation.
    unsafe { execute(xen, SET_STATE, enabled) }?;
    Ok(Slot::first(page))
}

/// Delivers a message-signalled interrupt.
pub(crate) fn inject(xen: &Privcmd, address: u64, data: u32) -> io::Result<()> {
    let message = Message {
        data,
        pad: 0,
        address,
    };
    // SAFETY: the structure of this operation.
    unsafe { execute(xen, INJECT_MSI, message) }.map(drop)
}

/// Shuts the domain down, as if it had powered off.
pub(crate) fn power_off(xen: &Privcmd) -> io::Result<()> {
    // SAFETY: the structure of this operation is the reason of the shutdown.
    unsafe { execute(xen, REMOTE_SHUTDOWN, POWER_OFF) }.map(drop)
}
