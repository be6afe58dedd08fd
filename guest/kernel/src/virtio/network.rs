//! The network cards of the machine, and their memory.

use super::card::{self, Card};
use super::client::Client;
use super::mmio::{self, Mmio};
use super::server::Server;
use super::stack::Memory;
use super::transport::NETWORK;
use crate::cpu::Global;
use crate::interrupts::Apic;
use crate::{console, memory};
use trapline_abi::net::Exchange;
use trapline_abi::packet::{Frames, READY};
use trapline_abi::platform::{NET_MMIO, SWITCH_MMIO};
use trapline_abi::Job;
use trapline_workloads::packets::Sender;
use trapline_workloads::Reason;

/// Places of a card to a peer, and of one to another guest: a tap has the first place if there is no other.
const TO_PEER: [u64; 2] = [NET_MMIO, SWITCH_MMIO];
const TO_GUEST: [u64; 2] = [SWITCH_MMIO, NET_MMIO];

/// The connection to the peer, in memory of its own.
static CLIENT: Opened<&'static mut Client<Mmio>> = Opened::new();

/// The sender of frames.
static SENDER: Opened<Sender<Card<Mmio>>> = Opened::new();

/// A value of a static variable, or the reason why it cannot be opened; `None` before it is opened.
struct Opened<T: 'static>(Global<Option<Result<T, Reason>>>);

impl<T> Opened<T> {
    const fn new() -> Self {
        Self(Global::new(None))
    }

    /// Opens it at the first call.
    #[inline(always)]
    fn open(&self, open: impl FnOnce() -> Result<T, Reason>) -> Result<(), Reason> {
        // SAFETY: nothing called here uses the variable.
        let opened = unsafe { self.0.get() }.get_or_insert_with(open);
        opened.as_ref().map(drop).map_err(|reason| *reason)
    }

    #[inline(always)]
    fn with(&self, work: impl FnOnce(&mut T) -> Result<(), Reason>) -> Result<(), Reason> {
        // SAFETY: used for this call, during which no other code uses it.
        match unsafe { self.0.get() } {
            Some(Ok(opened)) => work(opened),
            Some(Err(reason)) => Err(reason),
            None => Err("the network card is not open"),
        }
    }
}

/// Connects to the peer at the first call.
///
/// # Errors
/// There is no card, or it cannot be used.
#[inline(never)]
pub fn open(apic: Result<&Apic, Reason>, job: &Job) -> Result<(), Reason> {
    CLIENT.open(|| connect(apic, job))
}

/// See [`trapline_workloads::System::exchange`].
#[inline(never)]
pub fn exchange(exchange: Exchange) -> Result<(), Reason> {
    CLIENT.with(|client| client.exchange(exchange))
}

/// Opens the card to another guest at the first call. It may be that to the peer, which is then no longer used.
///
/// # Errors
/// There is no card, or it cannot be used.
#[inline(never)]
pub fn open_link(apic: Result<&Apic, Reason>, has_ports: bool) -> Result<(), Reason> {
    SENDER.open(|| Sender::new(start(apic, has_ports, TO_GUEST)?))
}

/// See [`trapline_workloads::System::send_packets`].
#[inline(never)]
pub fn send_packets(frames: Frames) -> Result<(), Reason> {
    SENDER.with(|sender| sender.send(frames))
}

/// Serves another guest. Returns the reason why it ends.
#[inline(never)]
pub fn receive_packets(has_ports: bool) -> Reason {
    let apic = Apic::open();
    let apic = apic.as_ref().map_err(|reason| *reason);
    let serve = || {
        let card = start(apic, has_ports, TO_GUEST)?;
        let mut server = Server::new(card, stack_memory()?)?;
        console::write(READY.as_bytes());
        server.serve()
    };
    serve().err().unwrap_or("it has ended")
}

fn connect(apic: Result<&Apic, Reason>, job: &Job) -> Result<&'static mut Client<Mmio>, Reason> {
    let card = start(apic, job.ports, TO_PEER)?;
    let client = Client::connect(card, stack_memory()?)?;
    let place = take(size_of::<Client<Mmio>>())?.cast::<Client<Mmio>>();
    // SAFETY: frames of RAM, which are identity-mapped, taken for it and never freed.
    unsafe {
        place.write(client);
        Ok(&mut *place)
    }
}

/// Starts the card at the first of `places` that has one.
fn start(
    apic: Result<&Apic, Reason>,
    has_ports: bool,
    places: [u64; 2],
) -> Result<Card<Mmio>, Reason> {
    let absent = "the machine has no virtio-mmio network card";
    let [first, second] = places.map(|place| (NETWORK, place));
    let find = |place| mmio::find(apic, has_ports, place, absent);
    let mmio = find(first).or_else(|_| find(second))?;
    let buffers = take(card::BYTES)?;
    // SAFETY: as in `connect`.
    unsafe { Card::start(mmio, buffers) }
}

fn stack_memory() -> Result<&'static mut Memory, Reason> {
    let memory = take(size_of::<Memory>())?.cast();
    // SAFETY: zeroed frames, taken for it and never freed.
    Ok(unsafe { Memory::initialise(memory) })
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
