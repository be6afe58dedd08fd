//! A batch of frames on its way from one port to others.

use crate::copy::copy;
use crate::counters::Reason;
use crate::frame::Header;
use crate::memory::Memory;
use crate::port::{Active, Effort, Queue};
use crate::ring::{Chain, Direction, Fault, Segment};

/// Buffers that are taken from a queue at a time.
pub const BATCH: usize = 64;

/// Bytes as which each descriptor counts: its page may have to be found first.
const PIECE: u32 = 4096;

/// Receive buffers that are loaded into the cache at a time.
const PREFETCHED: u16 = 32;

/// Descriptors of several buffers that are taken for a frame, but for those of the last one.
const MOST_PIECES: usize = Effort::MOST as usize;

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
    /// Number of the turn of a port.
    pub turn: u32,
}

/// A receive queue with buffers that were not published yet.
pub struct Touched {
    pub port: usize,
    pub index: usize,
    /// Frames and bytes in them.
    pub received: [u64; 2],
}

impl Work {
    /// Takes a batch of frames from a queue, those before an invalid one included, and none behind the first `room` bytes, of which each
    /// descriptor needs [`PIECE`] more. Returns their number of bytes.
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
                    bytes = bytes
                        .saturating_add(chain.length)
                        .saturating_add(PIECE * chain.pieces());
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
        let found = if self.touched.last().is_some_and(is_it) {
            self.touched.len() - 1
        } else {
            self.touched.iter().position(is_it).unwrap_or_else(|| {
                self.touched.push(Touched {
                    port,
                    index,
                    received: [0; 2],
                });
                self.touched.len() - 1
            })
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

/// Copies a frame to a receive queue, that of the same number as the sender's if there are as many. Returns its number. A receiver
/// whose buffers have too many descriptors gets no more frames in this turn.
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
    if receiver.effort.is_spent(work.turn) {
        return Err(Refused::Drop(Reason::TooLong));
    }
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
        if first.pieces() > 1 {
            let pieces = first.pieces() as usize;
            receiver.effort.add(work.turn, pieces, frame.length);
        }
        return Ok(index);
    }
    let spread = spread(receiver, index, frame, header, first, work);
    let pieces = work.buffers.len().max(work.targets.len());
    receiver.effort.add(work.turn, pieces, frame.length);
    if let Err(refused) = spread {
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
        let is_complete = work.buffers.len() == BATCH || work.targets.len() > MOST_PIECES;
        if is_complete || !receiver.is_mergeable {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{memory_file, SplitDriver};
    use crate::memory::Spec;
    use crate::ring::{Addresses, Ring, Split, INDIRECT, MOST_SEGMENTS, NEXT, WRITE};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::ptr::NonNull;
    use std::sync::Arc;

    const SIZE: u16 = 256;
    const LENGTH: u64 = 0x1_0000;
    /// Offset of a table of descriptors, and of the bytes that they have.
    const TABLE: u64 = 0x8000;
    const BYTES: u64 = 0xc000;

    fn write(file: &File, at: u64, (address, length): (u64, u32), flags: u16, next: u16) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        file.write_all_at(&bytes, at).unwrap();
    }

    /// Returns a guest whose queue has as many buffers as it can have, each of 64 descriptors of this length.
    fn guest(length: u32, flags: u16) -> (File, Arc<Memory>, Queue) {
        let file = memory_file(LENGTH).unwrap();
        let spec = Spec {
            guest: 0,
            size: LENGTH,
            user: 0,
            offset: 0,
        };
        let memory = Memory::new(&[(spec, file.try_clone().unwrap())]).unwrap();
        let [driver, device, _] = SplitDriver::layout(SIZE);
        let at = Addresses {
            descriptors: 0,
            driver,
            device,
        };
        let ring = Split::new(&memory, SIZE.into(), &at, 0, false).unwrap();
        let most = MOST_SEGMENTS as u16;
        for index in 0..most {
            let next = if index + 1 < most { NEXT } else { 0 };
            let at = TABLE + 16 * u64::from(index);
            write(&file, at, (BYTES, length), flags | next, index + 1);
        }
        for index in 0..SIZE {
            let table = (TABLE, 16 * MOST_SEGMENTS);
            write(&file, 16 * u64::from(index), table, INDIRECT | flags, 0);
            let at = driver + 4 + 2 * u64::from(index);
            file.write_all_at(&index.to_le_bytes(), at).unwrap();
        }
        file.write_all_at(&SIZE.to_le_bytes(), driver + 2).unwrap();
        let queue = Queue {
            index: 0,
            ring: Ring::Split(ring),
            kick: None,
            call: None,
            prefetched: 0,
        };
        (file, Arc::new(memory), queue)
    }

    #[test]
    fn descriptors_of_frames_fill_a_turn_as_pages_do() {
        let (_file, memory, mut queue) = guest(1, 0);
        let mut work = Work::default();
        let room = 1 << 20;
        assert!(work.take(&memory, &mut queue, room).unwrap() >= room);
        assert_eq!(work.frames.len() as u32, room / PIECE / MOST_SEGMENTS);
    }

    /// Sends frames to a guest in one turn until it gets no more, for which nothing is read of it. Returns the number of those
    /// before.
    fn sent_until_spent(length: u32, is_mergeable: bool) -> usize {
        let (file, memory, queue) = guest(length, WRITE);
        let mut receiver = Active {
            memory,
            receive: vec![queue],
            transmit: Vec::new(),
            first: 0,
            is_mergeable,
            effort: Effort::default(),
        };
        let mut bytes = [0_u8; 100];
        let only = Segment {
            start: NonNull::from(&mut bytes).cast(),
            length: 100,
        };
        let (frame, header) = (Chain::single(0, only), Header::new(&[0; 14]));
        let mut work = Work {
            turn: 1,
            ..Work::default()
        };
        let mut count = 0;
        while !receiver.effort.is_spent(work.turn) {
            let result = receive(&mut receiver, 0, &frame, header, &mut work);
            let is_long_enough = length * MOST_SEGMENTS >= frame.length;
            assert_eq!(result.is_ok(), is_long_enough);
            count += 1;
        }
        // A descriptor that does not exist.
        let [driver, ..] = SplitDriver::layout(SIZE);
        for index in 0..u64::from(SIZE) {
            let at = driver + 4 + 2 * index;
            file.write_all_at(&[0xff; 2], at).unwrap();
        }
        let again = receive(&mut receiver, 0, &frame, header, &mut work);
        assert!(matches!(again, Err(Refused::Drop(Reason::TooLong))));
        work.turn += 1;
        let next = receive(&mut receiver, 0, &frame, header, &mut work);
        assert!(matches!(next, Err(Refused::Fault(Fault::Descriptor))));
        count
    }

    #[test]
    fn receiver_whose_buffers_have_many_descriptors_gets_few_frames_in_a_turn() {
        assert_eq!(sent_until_spent(2, false), 5);
        assert_eq!(sent_until_spent(0, false), 5);
        assert_eq!(sent_until_spent(0, true), 1);
    }
}
