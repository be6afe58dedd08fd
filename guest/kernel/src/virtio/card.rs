//! Frames of a network card (virtio 1.2, section 5.1) without offloads and mergeable buffers.
//!
//! Each queue has a buffer per descriptor, which holds the header (5.1.6) and one frame. A received frame is read
//! in place, and its buffer is made available again; a sent one is written in place. Sent buffers are collected
//! when another is needed, without interrupts.

use super::queue::{self, Queue, WRITE};
use super::transport::{self, Access, Interrupts, Negotiated, QUEUE_NOTIFY};
use trapline_workloads::packets::Link;
use trapline_workloads::Reason;

/// Feature: the device has an address (5.1.3).
const MAC: u64 = 1 << 5;
/// First bit of an address of several stations (IEEE 802).
const MULTICAST: u8 = 1;

/// Numbers of the queues.
const RECEIVE: u32 = 0;
const TRANSMIT: u32 = 1;

/// Maximum number of buffers of a queue: as many as bits of a set.
const MAX_BUFFERS: u16 = 64;
/// Minimum number.
const MIN_BUFFERS: u16 = 8;

/// Bytes of a buffer.
const BUFFER: usize = 2048;
/// Bytes of the header before a frame.
const HEADER: usize = 12;
/// Maximum length of a frame: Ethernet header and MTU.
pub const MAX_FRAME: usize = 14 + 1500;

/// Bytes of a queue with its buffers.
const PORT: usize = queue::BYTES + MAX_BUFFERS as usize * BUFFER;
/// Bytes of memory of a card.
pub const BYTES: usize = 2 * PORT;

/// One direction: a queue, and the buffers that belong to the device.
pub struct Port {
    queue: Queue,
    /// Bit set of buffers in the queue.
    in_flight: u64,
    count: u16,
    failure: Option<Reason>,
}

/// Returns the address of the device (5.1.4), or that of guests.
fn mac<A: Access>(device: &Negotiated<'_, A>) -> Result<[u8; 6], Reason> {
    if !device.has(MAC) {
        return Ok(trapline_abi::net::MAC);
    }
    let [mac @ .., _, _] = device.configuration()?.to_le_bytes();
    if mac[0] & MULTICAST != 0 || mac == [0; 6] {
        Err("the address of the network card is not that of one station")
    } else {
        Ok(mac)
    }
}

/// A running card.
pub struct Card<A> {
    access: A,
    /// Received frames.
    pub receiver: Port,
    /// Sent frames.
    pub transmitter: Port,
    interrupts: Interrupts,
    /// Its address.
    pub mac: [u8; 6],
}

impl Port {
    /// Returns the port of a selected queue.
    ///
    /// # Safety
    /// Same contract as of [`Queue::new`] for `memory` with [`PORT`] bytes.
    unsafe fn new<A: Access>(
        device: &Negotiated<'_, A>,
        number: u32,
        memory: *mut u8,
    ) -> Result<Self, Reason> {
        let size = device.queue_size(number);
        if size < MIN_BUFFERS {
            return Err("a queue of the network card is too short for 8 frames");
        }
        // SAFETY: same contract.
        let queue = unsafe { Queue::new(memory, PORT, size, device.has_event_index()) };
        device.place(&queue);
        Ok(Self {
            queue,
            in_flight: 0,
            count: size.min(MAX_BUFFERS),
            failure: None,
        })
    }

    fn offset(buffer: u16) -> usize {
        queue::BYTES + usize::from(buffer) * BUFFER
    }

    /// Makes a buffer with a frame of `length`, or for one, available to the device.
    fn push(&mut self, buffer: u16, length: usize, flags: u16) {
        let address = self.queue.address(Self::offset(buffer));
        let length = (HEADER + length) as u32;
        self.queue.describe(buffer, address, length, flags, 0);
        self.in_flight |= 1 << buffer;
        self.queue.push(buffer);
    }

    /// Takes the next completed buffer. Returns it with the length that the device reports.
    fn take(&mut self) -> Result<Option<(u16, usize)>, Reason> {
        let in_flight = self.in_flight.count_ones() as u16;
        let Some((id, length)) = self.queue.completion(in_flight)? else {
            return Ok(None);
        };
        if id >= self.count.into() || self.in_flight & 1 << id == 0 {
            return Err("the network card completed a frame that is not in flight");
        }
        self.queue.take();
        self.in_flight &= !(1 << id);
        Ok(Some((id as u16, length as usize)))
    }

    /// Returns the frame of a buffer that the device does not own.
    fn frame(&mut self, buffer: u16, length: usize) -> &mut [u8] {
        assert!(buffer < self.count && length <= MAX_FRAME && self.in_flight & 1 << buffer == 0);
        let start = self.queue.address(Self::offset(buffer)) as usize + HEADER;
        // SAFETY: memory of the port, by the contract of `new`; the device has completed the buffer.
        unsafe { core::slice::from_raw_parts_mut(start as *mut u8, length) }
    }

    /// Returns buffer and length of the next received frame for [`Self::read`]; `None` also after a failure.
    pub fn receive(&mut self) -> Option<(u16, usize)> {
        self.or_fail(Self::received)
    }

    fn received(&mut self) -> Result<Option<(u16, usize)>, Reason> {
        let Some((buffer, length)) = self.take()? else {
            return Ok(None);
        };
        match length.checked_sub(HEADER) {
            Some(length) if length <= MAX_FRAME => Ok(Some((buffer, length))),
            _ => Err("the network card reports a frame of impossible length"),
        }
    }

    /// Returns what `read` makes of a received frame, whose buffer is available again afterwards.
    pub fn read<T>(&mut self, buffer: u16, length: usize, read: impl FnOnce(&[u8]) -> T) -> T {
        let result = read(self.frame(buffer, length));
        self.recycle(buffer);
        result
    }

    /// Returns what `look` makes of a received frame, which may be read again.
    pub fn peek<T>(&mut self, buffer: u16, length: usize, look: impl FnOnce(&[u8]) -> T) -> T {
        look(self.frame(buffer, length))
    }

    /// Makes a buffer available for a frame.
    pub fn recycle(&mut self, buffer: u16) {
        self.push(buffer, MAX_FRAME, WRITE);
    }

    /// Returns a free buffer to send; `None` if the device owns all, or after a failure.
    pub fn free(&mut self) -> Option<u16> {
        let all = u64::MAX >> (u64::BITS - u32::from(self.count));
        while self.in_flight == all {
            self.or_fail(Self::take)?;
        }
        self.failure
            .is_none()
            .then_some(self.in_flight.trailing_ones() as u16)
    }

    /// Sends a frame that `fill` writes.
    pub fn send<T>(&mut self, buffer: u16, length: usize, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        let result = fill(self.frame(buffer, length));
        self.push(buffer, length, 0);
        result
    }

    /// Takes a result, or the reason why the card is no longer usable.
    fn or_fail<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<Option<T>, Reason>,
    ) -> Option<T> {
        if self.failure.is_some() {
            return None;
        }
        take(self).unwrap_or_else(|reason| {
            self.failure = Some(reason);
            None
        })
    }
}

impl<A: Access> Card<A> {
    /// Starts the device.
    ///
    /// # Errors
    /// The device is unsuitable.
    ///
    /// # Safety
    /// Same contract as of [`Queue::new`] for `memory` with [`BYTES`].
    pub unsafe fn start(access: A, memory: *mut u8) -> Result<Self, Reason> {
        let device = transport::negotiate(&access, MAC)?;
        // SAFETY: the two halves of the memory.
        let (receiver, mut transmitter) = unsafe {
            (
                Port::new(&device, RECEIVE, memory)?,
                Port::new(&device, TRANSMIT, memory.add(PORT))?,
            )
        };
        transmitter.queue.set_interrupt(false);
        device.start();
        let mac = mac(&device)?;
        let mut card = Self {
            receiver,
            transmitter,
            interrupts: Interrupts::so_far(&access),
            access,
            mac,
        };
        for buffer in 0..card.receiver.count {
            card.receiver.recycle(buffer);
        }
        card.notify();
        Ok(card)
    }

    /// Stops the device, which may still access buffers.
    fn fail(&mut self, reason: Reason) -> Reason {
        let stopped = transport::reset(&self.access);
        let reason = stopped.err().unwrap_or(reason);
        self.receiver.failure.get_or_insert(reason)
    }
}

impl<A: Access> Link for Card<A> {
    fn buffers(&self) -> u64 {
        self.receiver.count.min(self.transmitter.count).into()
    }

    fn notify(&mut self) {
        for (port, number) in [
            (&mut self.receiver, RECEIVE),
            (&mut self.transmitter, TRANSMIT),
        ] {
            if port.queue.needs_notification() {
                self.access.write(QUEUE_NOTIFY, number);
            }
        }
    }

    fn wait(&mut self) -> Result<(), Reason> {
        self.check()?;
        let waited = self
            .interrupts
            .wait(&mut self.access, &mut self.receiver.queue);
        waited.map_err(|reason| self.fail(reason))
    }

    fn check(&mut self) -> Result<(), Reason> {
        match self.receiver.failure.or(self.transmitter.failure) {
            Some(reason) => Err(self.fail(reason)),
            None => Ok(()),
        }
    }

    fn quiesce(&mut self) -> Result<(), Reason> {
        self.receiver.queue.set_interrupt(false);
        let seen = self.access.interrupts();
        let acknowledged = self.interrupts.acknowledge(&self.access, seen);
        acknowledged.map_err(|reason| self.fail(reason))
    }

    #[inline(always)]
    fn receive<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let (buffer, length) = self.receiver.receive()?;
        Some(self.receiver.read(buffer, length, read))
    }

    #[inline(always)]
    fn send(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let buffer = self.transmitter.free();
        let sent = buffer.map(|buffer| self.transmitter.send(buffer, length, fill));
        sent.is_some()
    }
}
