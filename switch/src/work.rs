//! A batch of frames on its way from one port to others.

use crate::copy::copy;
use crate::counters::Reason;
use crate::frame::Header;
use crate::memory::Memory;
use crate::port::{Active, Queue};
use crate::ring::{Chain, Direction, Fault, Segment};

/// Buffers that are taken from a queue at a time.
pub const BATCH: usize = 64;

/// Receive buffers that are loaded into the cache at a time.
const PREFETCHED: u16 = 32;

/// Buffers that are in use, in memory that is allocated once.
#[derive(Default)]
pub struct Work {
    /// Segments of the frames of a batch.
    pub segments: Vec<Segment>,
    pub frames: Vec<Chain>,
    /// Segments of the buffers of one receiver.
    pub targets: Vec<Segment>,
    pub buffers: Vec<Chain>,
    /// Receive queues with buffers that were not published yet.
    pub touched: Vec<Touched>,
    /// Frames and bytes of the batch.
    pub sent: [u64; 2],
}

/// A receive queue with buffers that were not published yet.
pub struct Touched {
    pub port: usize,
    pub index: usize,
    /// Frames and bytes in them.
    pub received: [u64; 2],
}

impl Work {
    /// Takes a batch of frames from a queue, those before an invalid one included, and none behind the first `room` bytes. Returns their
    /// number of bytes.
    ///
    /// # Errors
    /// The driver has made an error.
    #[inline(always)]
    pub fn take(&mut self, memory: &Memory, queue: &mut Queue, room: u32) -> Result<u32, Fault> {
        let mut bytes = 0_u32;
        self.segments.clear();
        self.frames.clear();
        while self.frames.len() < BATCH && bytes < room {
            let taken = queue
                .ring
                .take(memory, Direction::Readable, &mut self.segments);
            match taken? {
                Some(chain) => {
                    chain.prefetch();
                    bytes = bytes.saturating_add(chain.length);
                    self.frames.push(chain);
                }
                None => break,
            }
        }
        Ok(bytes)
    }

    /// Returns the counts of a receive queue, which has to be published.
    #[inline]
    pub fn received(&mut self, port: usize, index: usize) -> &mut [u64; 2] {
        let is_it = |it: &Touched| (it.port, it.index) == (port, index);
        let found = match self.touched.last().is_some_and(is_it) {
            true => self.touched.len() - 1,
            false => self.touched.iter().position(is_it).unwrap_or_else(|| {
                self.touched.push(Touched {
                    port,
                    index,
                    received: [0; 2],
                });
                self.touched.len() - 1
            }),
        };
        &mut self.touched[found].received
    }
}

/// Cause of the end of a batch.
#[derive(Default)]
pub enum End {
    /// Nothing: the port is open.
    #[default]
    Open,
    /// An error of the driver.
    Fault(Fault),
    /// The tap was deleted.
    Gone,
}

/// A batch of a port.
#[derive(Default)]
pub struct Batch {
    pub has_frames: bool,
    pub end: End,
}

/// The reason why a receiver does not get a frame.
pub enum Refused {
    Drop(Reason),
    Fault(Fault),
}

/// Copies a frame to a receive queue, that of the same number as the sender's if there are as many. Returns its number.
#[inline(always)]
pub fn receive(
    receiver: &mut Active,
    queue: usize,
    frame: &Chain,
    header: Header,
    work: &mut Work,
) -> Result<usize, Refused> {
    let index = match receiver.receive.len() {
        0 => return Err(Refused::Drop(Reason::Down)),
        1 => 0,
        count => queue % count,
    };
    let queue = &mut receiver.receive[index];
    let ring = &mut queue.ring;
    if queue.prefetched == 0 {
        queue.prefetched = ring.prefetch(&receiver.memory, PREFETCHED);
    }
    queue.prefetched = queue.prefetched.saturating_sub(1);
    let mark = ring.mark();
    work.targets.clear();
    let taken = ring.take(&receiver.memory, Direction::Writable, &mut work.targets);
    let first = match taken.map_err(Refused::Fault)? {
        Some(first) => first,
        None => return Err(Refused::Drop(Reason::NoBuffer)),
    };
    if first.length >= frame.length {
        let (from, to) = (frame.of(&work.segments), first.of(&work.targets));
        copy(from, to, 1, header, frame.length);
        ring.give(&first, frame.length);
    } else if let Err(refused) = spread(receiver, index, frame, header, first, work) {
        receiver.receive[index].ring.rewind(mark);
        return Err(refused);
    }
    Ok(index)
}

/// Copies a frame to several buffers, if the driver permits that (`VIRTIO_NET_F_MRG_RXBUF`).
#[inline(never)]
fn spread(
    receiver: &mut Active,
    index: usize,
    frame: &Chain,
    header: Header,
    first: Chain,
    work: &mut Work,
) -> Result<(), Refused> {
    let ring = &mut receiver.receive[index].ring;
    work.buffers.clear();
    work.buffers.push(first);
    let mut room = first.length;
    while room < frame.length {
        if work.buffers.len() == BATCH || !receiver.is_mergeable {
            return Err(Refused::Drop(Reason::TooLong));
        }
        let taken = ring.take(&receiver.memory, Direction::Writable, &mut work.targets);
        let chain = taken.map_err(Refused::Fault)?;
        let chain = chain.ok_or(Refused::Drop(Reason::NoBuffer))?;
        room = room.saturating_add(chain.length);
        work.buffers.push(chain);
    }
    let all = work.buffers.iter().flat_map(|it| it.of(&work.targets));
    let all: Vec<Segment> = all.copied().collect();
    let count = work.buffers.len() as u16;
    copy(frame.of(&work.segments), &all, count, header, frame.length);
    let mut rest = frame.length;
    for chain in &work.buffers {
        let written = rest.min(chain.length);
        rest -= written;
        ring.give(chain, written);
    }
    Ok(())
}
