//! The device's side of virtqueues (Virtual I/O Device 1.2, sections 2.7 and 2.8).
//!
//! All that the driver writes is read once and checked: the position of available buffers, each descriptor, its address and
//! length. The switch writes only to buffers that are device-writable, and to its own parts of a ring.

mod packed;
mod split;

pub use packed::Packed;
pub use split::Split;

use crate::memory::{Cache, Memory};
use crate::prefetch;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

/// Maximum number of descriptors of one buffer. Drivers use up to 19 (Linux, `MAX_SKB_FRAGS` and two).
pub const MOST_SEGMENTS: u32 = 64;

/// Largest number of descriptors of a queue that is supported.
pub const LARGEST: u32 = 32_768;

/// Flags of a descriptor (2.7.5, 2.8.1).
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// An error of the driver, after which its queue is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// More buffers are available than the queue has descriptors.
    #[error("the queue has more buffers than descriptors")]
    Index,
    /// A descriptor that does not exist.
    #[error("a descriptor does not exist")]
    Descriptor,
    /// The descriptors of a buffer are a cycle, or too many.
    #[error("a buffer has more than {MOST_SEGMENTS} descriptors")]
    Length,
    /// A buffer to be read is writable, or one to be written is not.
    #[error("a buffer has the wrong direction")]
    Direction,
    /// The bytes are not in the guest's memory.
    #[error("a descriptor is not in the guest's memory")]
    Address,
    /// An indirect table with another one, or an incomplete descriptor.
    #[error("an indirect table is invalid")]
    Indirect,
    /// The guest's memory is gone, in part.
    #[error("the file of the guest's memory was truncated")]
    Truncated,
    /// A notification takes too long.
    #[error("its interrupt event takes {0} µs of CPU time: too many wait for it")]
    Event(u32),
}

/// Direction of the buffers of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The device reads them.
    Readable,
    /// The device writes them.
    Writable,
}

/// A descriptor, as the driver writes it. The last fields of the two formats have different positions.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Descriptor {
    pub address: u64,
    pub length: u32,
    /// Split: flags. Packed: buffer ID.
    pub first: u16,
    /// Split: next descriptor. Packed: flags.
    pub second: u16,
}

/// Contiguous bytes of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The first byte.
    pub start: NonNull<u8>,
    /// Number of bytes.
    pub length: u32,
}

/// A buffer: one segment, or a range of a list of segments.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// Its only segment, if the range is empty.
    only: Segment,
    /// Index of its first segment.
    first: u32,
    /// Index behind its last segment.
    end: u32,
    /// Number of bytes.
    pub length: u32,
    /// Number by which it is returned.
    pub id: u16,
    /// Descriptors that it occupies in a packed queue.
    pub slots: u16,
}

impl Chain {
    /// Returns a buffer of one segment.
    #[inline(always)]
    pub(crate) fn single(id: u16, only: Segment) -> Self {
        Self {
            only,
            first: 0,
            end: 0,
            length: only.length,
            id,
            slots: 1,
        }
    }

    /// Loads its beginning into the cache, if it is one segment.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        prefetch::for_reading(self.only.start, self.only.length);
    }

    /// Returns the number of its segments.
    #[inline(always)]
    pub fn pieces(&self) -> u32 {
        (self.end - self.first).max(1)
    }

    /// Returns its segments.
    #[inline(always)]
    pub fn of<'a>(&'a self, segments: &'a [Segment]) -> &'a [Segment] {
        if self.first == self.end {
            std::slice::from_ref(&self.only)
        } else {
            &segments[self.first as usize..self.end as usize]
        }
    }
}

/// Segments of a buffer while it is read.
pub(crate) struct Builder<'a> {
    guest: Guest<'a>,
    segments: &'a mut Vec<Segment>,
    pub chain: Chain,
}

/// Access to the memory of buffers of one direction.
pub(crate) struct Guest<'a> {
    pub memory: &'a Memory,
    pub cache: &'a mut Cache,
    pub direction: Direction,
}

impl Guest<'_> {
    #[inline(always)]
    fn check_direction(&self, flags: u16) -> Result<(), Fault> {
        let direction = match flags & WRITE {
            0 => Direction::Readable,
            _ => Direction::Writable,
        };
        if direction == self.direction {
            Ok(())
        } else {
            Err(Fault::Direction)
        }
    }

    /// Returns the bytes of a descriptor; `None` if they are not in one region of memory.
    #[inline(always)]
    pub fn segment(
        &mut self,
        address: u64,
        length: u32,
        flags: u16,
    ) -> Result<Option<Segment>, Fault> {
        self.check_direction(flags)?;
        let found = self.memory.guest(self.cache, address, length);
        Ok(found.map(|start| Segment { start, length }))
    }
}

impl<'a> Builder<'a> {
    pub fn new(guest: Guest<'a>, segments: &'a mut Vec<Segment>) -> Self {
        let only = Segment {
            start: NonNull::dangling(),
            length: 0,
        };
        let first = segments.len() as u32;
        let chain = Chain {
            first,
            end: first,
            slots: 0,
            ..Chain::single(0, only)
        };
        Self {
            guest,
            segments,
            chain,
        }
    }

    /// Adds the bytes of a descriptor, which may lie in several regions of memory.
    pub fn add(&mut self, mut address: u64, mut length: u32, flags: u16) -> Result<(), Fault> {
        self.guest.check_direction(flags)?;
        self.chain.length = self.chain.length.checked_add(length).ok_or(Fault::Length)?;
        loop {
            let Guest { memory, cache, .. } = &mut self.guest;
            let found = memory.piece(cache, address, length);
            let (start, count) = found.ok_or(Fault::Address)?;
            self.segments.push(Segment {
                start,
                length: count,
            });
            self.chain.end += 1;
            if self.chain.end - self.chain.first > MOST_SEGMENTS {
                return Err(Fault::Length);
            }
            (address, length) = (address.wrapping_add(count.into()), length - count);
            if length == 0 {
                return Ok(());
            }
        }
    }

    /// Adds an indirect table (2.7.5.3, 2.8.7). `follow` returns the index of the next descriptor, or `None` at the end.
    pub fn add_table(
        &mut self,
        address: u64,
        length: u32,
        follow: impl Fn(u32, &Descriptor) -> (u16, Option<u32>),
    ) -> Result<(), Fault> {
        const SIZE: u32 = size_of::<Descriptor>() as u32;
        if length == 0 || !length.is_multiple_of(SIZE) {
            return Err(Fault::Indirect);
        }
        let mut next = Some(0);
        while let Some(index) = next {
            if index >= length / SIZE {
                return Err(Fault::Descriptor);
            }
            let address = address.wrapping_add(u64::from(SIZE * index));
            let Guest { memory, cache, .. } = &mut self.guest;
            let at = memory.guest(cache, address, SIZE).ok_or(Fault::Address)?;
            // SAFETY: the descriptor is in memory. The address may be odd.
            let descriptor = unsafe { read_once(at.cast()) };
            let (flags, following) = follow(index, &descriptor);
            if flags & INDIRECT != 0 {
                return Err(Fault::Indirect);
            }
            self.add(descriptor.address, descriptor.length, flags)?;
            next = following;
        }
        Ok(())
    }
}

/// Reads a descriptor, each half once.
///
/// # Safety
/// It lies in memory. It need not be aligned.
#[inline(always)]
pub(crate) unsafe fn read_once(at: NonNull<Descriptor>) -> Descriptor {
    let at = at.as_ptr().cast::<u64>();
    // SAFETY: two words, which the driver may write at the same time.
    let [low, high] = unsafe {
        if at.is_aligned() {
            [0, 1].map(|index| AtomicU64::from_ptr(at.add(index)).load(Ordering::Relaxed))
        } else {
            let bytes = at.cast::<[u8; 16]>().read_volatile();
            let words = u128::from_ne_bytes(bytes);
            [words as u64, (words >> 64) as u64]
        }
    };
    let (low, high) = (u64::from_le(low), u64::from_le(high));
    Descriptor {
        address: low,
        length: high as u32,
        first: (high >> 32) as u16,
        second: (high >> 48) as u16,
    }
}

/// Loads the beginning of a writable buffer into the cache, if it is in memory.
#[inline(always)]
pub(crate) fn prefetch_buffer(memory: &Memory, cache: &mut Cache, address: u64, length: u32) {
    if let Some(start) = memory.guest(cache, address, length) {
        prefetch::for_writing(start, length);
    }
}

/// Addresses of the parts of a queue in the VMM (vhost-user, `VHOST_USER_SET_VRING_ADDR`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Descriptors.
    pub descriptors: u64,
    /// Available ring, or driver event suppression.
    pub driver: u64,
    /// Used ring, or device event suppression.
    pub device: u64,
}

/// Position in a queue that can be returned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    next: u16,
    wrap: bool,
}

/// A queue.
#[derive(Debug)]
pub enum Ring {
    /// With an available and a used ring.
    Split(Split),
    /// With one ring of descriptors.
    Packed(Packed),
}

/// Calls a method of either format.
macro_rules! either {
    ($ring:expr, $name:ident => $call:expr) => {
        match $ring {
            Ring::Split($name) => $call,
            Ring::Packed($name) => $call,
        }
    };
}

impl Ring {
    /// Returns the next buffer that the driver has made available, whose segments are added to `segments`.
    ///
    /// # Errors
    /// The driver has made an error; the queue cannot be used any more.
    #[inline(always)]
    pub fn take(
        &mut self,
        memory: &Memory,
        direction: Direction,
        segments: &mut Vec<Segment>,
    ) -> Result<Option<Chain>, Fault> {
        either!(self, ring => ring.take(memory, direction, segments))
    }

    /// Loads the beginning of the next buffers, at most so many, into the cache for writing. Nothing depends on what is read of
    /// their descriptors: [`Self::take`] reads and checks them. Returns the number of buffers.
    #[inline]
    pub fn prefetch(&mut self, memory: &Memory, most: u16) -> u16 {
        either!(self, ring => ring.prefetch(memory, most))
    }

    /// Returns a buffer to the driver, in which `written` bytes were written. The driver sees it after [`Self::publish`].
    #[inline]
    pub fn give(&mut self, chain: &Chain, written: u32) {
        either!(self, ring => ring.give(chain, written));
    }

    /// Lets the driver see the buffers that were returned. Returns whether it has to be notified.
    #[inline]
    pub fn publish(&mut self) -> bool {
        either!(self, ring => ring.publish())
    }

    /// Returns the position of the next buffer.
    pub fn mark(&self) -> Mark {
        either!(self, ring => ring.mark())
    }

    /// Returns to a position: the buffers taken since then are available again.
    pub fn rewind(&mut self, mark: Mark) {
        either!(self, ring => ring.rewind(mark));
    }

    /// Asks the driver to notify of available buffers, or not to.
    pub fn set_notifications(&mut self, are_wanted: bool) {
        either!(self, ring => ring.set_notifications(are_wanted));
    }

    /// Returns whether a buffer is available.
    pub fn has_buffer(&mut self) -> bool {
        either!(self, ring => ring.has_buffer())
    }

    /// Returns the position in the form of vhost-user (`VHOST_USER_GET_VRING_BASE`).
    pub fn base(&self) -> u32 {
        either!(self, ring => ring.base())
    }
}

#[cfg(test)]
mod tests;
