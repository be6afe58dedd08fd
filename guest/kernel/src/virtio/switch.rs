//! The network card of the machine to another guest, and the memory of its queues.

use super::card::{self, Card};
use super::mmio::{self, Mmio};
use super::packets::{Receiver, Sender};
use super::transport::NETWORK;
use crate::cpu::Global;
use crate::interrupts::Apic;
use crate::{console, memory};
use trapline_abi::packet::{Frames, READY};
use trapline_abi::platform::{NET_MMIO, SWITCH_MMIO};
use trapline_workloads::Reason;

/// The sender; `None` before it is opened.
static SENDER: Global<Option<Result<Sender<Mmio>, Reason>>> = Global::new(None);

/// Opens the card at the first call.
///
/// # Errors
/// There is no card, or it cannot be used.
#[inline(never)]
pub fn open(apic: Result<&Apic, Reason>, has_ports: bool) -> Result<(), Reason> {
    // SAFETY: nothing called here uses the sender.
    let sender = unsafe { SENDER.get() };
    let open = || Sender::new(start(apic, has_ports)?);
    let opened = sender.get_or_insert_with(open);
    opened.as_ref().map(drop).map_err(|reason| *reason)
}

/// See [`trapline_workloads::System::send_packets`].
#[inline(never)]
pub fn send(frames: Frames) -> Result<(), Reason> {
    // SAFETY: used for this call, during which no other code uses it.
    match unsafe { SENDER.get() } {
        Some(Ok(sender)) => match frames {
            Frames::Burst(length) => sender.burst(length),
            Frames::Ping => sender.ping(),
        },
        Some(Err(reason)) => Err(reason),
        None => Err("the card is not open"),
    }
}

/// Receives the frames of another guest. Returns the reason why it ends.
#[inline(never)]
pub fn receive(has_ports: bool) -> Reason {
    let apic = Apic::open();
    let apic = apic.as_ref().map_err(|reason| *reason);
    match start(apic, has_ports).and_then(Receiver::new) {
        Ok(mut receiver) => {
            console::write(READY.as_bytes());
            receiver.serve()
        }
        Err(reason) => reason,
    }
}

fn start(apic: Result<&Apic, Reason>, has_ports: bool) -> Result<Card<Mmio>, Reason> {
    let absent = "the machine has no network card to another guest";
    let find = |place| mmio::find(apic, has_ports, (NETWORK, place), absent);
    // A tap has the first place if there is no other.
    let mmio = find(SWITCH_MMIO).or_else(|_| find(NET_MMIO))?;
    let bytes = card::BYTES.next_multiple_of(memory::FRAME as usize);
    let frames = memory::take_last_frames(bytes as u64);
    let buffers = frames.ok_or("not enough memory for the network card")? as *mut u8;
    // SAFETY: frames of RAM, which are identity-mapped, taken for the card and never freed.
    unsafe {
        buffers.write_bytes(0, bytes);
        Card::start(mmio, buffers)
    }
}
