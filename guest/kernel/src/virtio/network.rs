//! The network card of the machine and the memory of its stack.

use super::card::{self, Card};
use super::mmio::{self, Mmio};
use super::stack::{Memory, Stack};
use super::transport::NETWORK;
use crate::cpu::Global;
use crate::interrupts::Apic;
use crate::memory;
use trapline_abi::net::Exchange;
use trapline_abi::platform::NET_MMIO;
use trapline_abi::Job;
use trapline_workloads::Reason;

/// The network of the machine, in memory of its own; `None` before it is opened.
static STACK: Global<Option<Result<&'static mut Stack<Mmio>, Reason>>> = Global::new(None);

/// Connects to the peer at the first call.
///
/// # Errors
/// There is no card, or it cannot be used.
#[inline(never)]
pub fn open(apic: Result<&Apic, Reason>, job: &Job) -> Result<(), Reason> {
    // SAFETY: nothing called here uses the network.
    let stack = unsafe { STACK.get() };
    let opened = stack.get_or_insert_with(|| connect(apic, job));
    opened.as_ref().map(drop).map_err(|reason| *reason)
}

/// See [`trapline_workloads::System::exchange`].
#[inline(never)]
pub fn exchange(exchange: Exchange) -> Result<(), Reason> {
    // SAFETY: used for this call, during which no other code uses it.
    match unsafe { STACK.get() } {
        Some(Ok(stack)) => stack.exchange(exchange),
        Some(Err(reason)) => Err(reason),
        None => Err("the network is not open"),
    }
}

fn connect(apic: Result<&Apic, Reason>, job: &Job) -> Result<&'static mut Stack<Mmio>, Reason> {
    let absent = "the machine has no virtio-mmio network card";
    let mmio = mmio::find(apic, job.ports, (NETWORK, NET_MMIO), absent)?;
    let buffers = take(card::BYTES)?;
    let memory = take(size_of::<Memory>())?.cast();
    let place = take(size_of::<Stack<Mmio>>())?.cast::<Stack<Mmio>>();
    // SAFETY: zeroed frames of RAM, which are identity-mapped, taken for these and never freed.
    unsafe {
        let card = Card::start(mmio, buffers)?;
        place.write(Stack::connect(card, Memory::initialise(memory))?);
        Ok(&mut *place)
    }
}

/// Takes zeroed frames.
fn take(bytes: usize) -> Result<*mut u8, Reason> {
    let bytes = bytes.next_multiple_of(memory::FRAME as usize);
    let frames = memory::take_last_frames(bytes as u64);
    let start = frames.ok_or("not enough memory for the network")? as *mut u8;
    // SAFETY: frames taken here.
    unsafe { start.write_bytes(0, bytes) };
    Ok(start)
}
