//! Packed virtqueues (2.8).

use super::{
    prefetch_buffer, read_once, Addresses, Builder, Chain, Descriptor, Direction, Fault, Guest,
    Mark, Segment, INDIRECT, NEXT,
};
use crate::memory::{Cache, Memory};
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU16, Ordering};

/// Flags of a descriptor that say whether it is available or used (2.8.1).
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// `RING_EVENT_FLAGS_DISABLE` (2.8.10): no notifications, please.
const DISABLE: u16 = 1;

/// A position, and the value of the available flag in this round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    index: u16,
    wrap: bool,
}

impl Position {
    /// Moves on by a number of descriptors, at most the size.
    #[inline]
    fn advance(&mut self, count: u16, size: u16) {
        let index = u32::from(self.index) + u32::from(count);
        if index >= size.into() {
            *self = Self {
                index: (index - u32::from(size)) as u16,
                wrap: !self.wrap,
            }
        } else {
            self.index = index as u16
        }
    }

    /// Parses 15 bits of index and the flag.
    fn from_base(base: u16, size: u16) -> Option<Self> {
        let index = base & 0x7fff;
        let wrap = base & 0x8000 != 0;
        (index < size).then_some(Self { index, wrap })
    }

    fn base(self) -> u16 {
        self.index | u16::from(self.wrap) << 15
    }
}

/// A queue.
#[derive(Debug)]
pub struct Packed {
    descriptors: NonNull<Descriptor>,
    /// Event suppression of the driver: offset and flags.
    driver: NonNull<u16>,
    /// Event suppression of the device.
    device: NonNull<u16>,
    size: u16,
    next: Position,
    used_next: Position,
    /// Buffers were returned since the last [`Self::publish`].
    is_unpublished: bool,
    /// Flags of the first of these, which the driver sees last.
    first: Option<(u16, u16)>,
    cache: Cache,
}

// SAFETY: the pointers are to memory that all threads may access.
unsafe impl Send for Packed {}

impl Packed {
    /// Returns the queue at these addresses, which continues at `base`. Its upper 16 bits, the next buffer to be returned,
    /// are those below, because all buffers that were taken are returned. `None` unless the size is valid and all parts are aligned and in memory.
    pub fn new(memory: &Memory, size: u32, at: &Addresses, base: u32) -> Option<Self> {
        if size == 0 || size >= super::LARGEST {
            return None;
        }
        let descriptors = memory
            .user(at.descriptors, 16 * u64::from(size), 16)?
            .cast();
        let size = size as u16;
        let next = Position::from_base(base as u16, size)?;
        Some(Self {
            descriptors,
            driver: memory.user(at.driver, 4, 4)?.cast(),
            device: memory.user(at.device, 4, 4)?.cast(),
            size,
            next,
            used_next: next,
            is_unpublished: false,
            first: None,
            cache: Cache::default(),
        })
    }

    fn descriptor(&self, index: u16) -> NonNull<Descriptor> {
        // SAFETY: positions are less than the size of the ring.
        unsafe { self.descriptors.add(index.into()) }
    }

    /// Returns the flags of a descriptor.
    fn flags(&self, index: u16) -> &AtomicU16 {
        // SAFETY: the descriptor is aligned and in memory that outlives the queue; the driver accesses its flags
        // atomically, too.
        unsafe { AtomicU16::from_ptr(self.descriptor(index).cast::<u16>().add(7).as_ptr()) }
    }

    /// Returns whether the next descriptor is available.
    #[inline(always)]
    fn is_available(&self, at: Position) -> bool {
        let flags = self.flags(at.index).load(Ordering::Acquire);
        let (available, used) = (flags & AVAILABLE != 0, flags & USED != 0);
        available == at.wrap && used != at.wrap
    }

    /// See [`super::Ring::prefetch`].
    #[inline]
    pub fn prefetch(&mut self, memory: &Memory, most: u16) -> u16 {
        let (mut at, mut count) = (self.next, 0);
        while count < most.min(self.size) && self.is_available(at) {
            // SAFETY: the position is less than the size of the ring.
            let it = unsafe { read_once(self.descriptor(at.index)) };
            prefetch_buffer(memory, &mut self.cache, it.address, it.length);
            at.advance(1, self.size);
            count += 1;
        }
        count
    }

    /// See [`super::Ring::take`].
    #[inline(always)]
    pub fn take(
        &mut self,
        memory: &Memory,
        direction: Direction,
        segments: &mut Vec<Segment>,
    ) -> Result<Option<Chain>, Fault> {
        if !self.is_available(self.next) {
            return Ok(None);
        }
        // SAFETY: the position is less than the size of the ring.
        let it = unsafe { read_once(self.descriptor(self.next.index)) };
        let mut cache = self.cache;
        let mut guest = Guest {
            memory,
            cache: &mut cache,
            direction,
        };
        let only = match it.second & (NEXT | INDIRECT) {
            0 => guest.segment(it.address, it.length, it.second)?,
            _ => None,
        };
        let chain = match only {
            Some(only) => {
                self.next.advance(1, self.size);
                Chain::single(it.first, only)
            }
            None => self.chain(Builder::new(guest, segments), it)?,
        };
        self.cache = cache;
        Ok(Some(chain))
    }

    /// Reads a buffer of several descriptors.
    #[inline(never)]
    fn chain(&mut self, mut builder: Builder<'_>, first: Descriptor) -> Result<Chain, Fault> {
        let (mut at, mut it) = (self.next, first);
        loop {
            let (address, length, flags) = (it.address, it.length, it.second);
            builder.chain.slots += 1;
            if builder.chain.slots > self.size {
                return Err(Fault::Length);
            }
            at.advance(1, self.size);
            builder.chain.id = it.first;
            if flags & INDIRECT != 0 {
                if flags & NEXT != 0 || builder.chain.slots > 1 {
                    return Err(Fault::Indirect);
                }
                // All descriptors of the table are used, in order.
                let count = length / size_of::<Descriptor>() as u32;
                builder.add_table(address, length, |index, it| {
                    let has_next = index + 1 < count;
                    (it.second & super::WRITE, has_next.then_some(index + 1))
                })?;
                break;
            }
            builder.add(address, length, flags)?;
            if flags & NEXT == 0 {
                break;
            }
            // SAFETY: the position is less than the size of the ring.
            it = unsafe { read_once(self.descriptor(at.index)) };
        }
        self.next = at;
        Ok(builder.chain)
    }

    /// See [`super::Ring::give`].
    #[inline]
    pub fn give(&mut self, chain: &Chain, written: u32) {
        let Position { index, wrap } = self.used_next;
        let at = self.descriptor(index).cast::<u8>();
        // SAFETY: the descriptor is in the ring, and the device's until its flags are written.
        unsafe {
            at.add(8).cast::<u32>().write_volatile(written.to_le());
            at.add(12).cast::<u16>().write_volatile(chain.id.to_le());
        }
        let flags = if wrap { AVAILABLE | USED } else { 0 };
        match self.first {
            None => self.first = Some((index, flags)),
            Some(_) => self.flags(index).store(flags, Ordering::Release),
        }
        self.used_next.advance(chain.slots, self.size);
        self.is_unpublished = true;
    }

    /// See [`super::Ring::publish`].
    #[inline]
    pub fn publish(&mut self) -> bool {
        if !std::mem::take(&mut self.is_unpublished) {
            return false;
        }
        if let Some((index, flags)) = self.first.take() {
            self.flags(index).store(flags, Ordering::Release);
        }
        fence(Ordering::SeqCst);
        // SAFETY: the second half of the driver's event suppression, aligned and in memory.
        let wish = unsafe { AtomicU16::from_ptr(self.driver.add(1).as_ptr()) };
        wish.load(Ordering::Relaxed) & 3 != DISABLE
    }

    /// See [`super::Ring::mark`].
    pub fn mark(&self) -> Mark {
        Mark {
            next: self.next.index,
            wrap: self.next.wrap,
        }
    }

    /// See [`super::Ring::rewind`].
    pub fn rewind(&mut self, mark: Mark) {
        self.next = Position {
            index: mark.next,
            wrap: mark.wrap,
        };
    }

    /// See [`super::Ring::set_notifications`].
    pub fn set_notifications(&mut self, are_wanted: bool) {
        let flags = if are_wanted { 0 } else { DISABLE };
        // SAFETY: the second half of the device's event suppression, aligned and in memory.
        let own = unsafe { AtomicU16::from_ptr(self.device.add(1).as_ptr()) };
        own.store(flags, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// See [`super::Ring::has_buffer`].
    pub fn has_buffer(&mut self) -> bool {
        self.is_available(self.next)
    }

    /// See [`super::Ring::base`].
    pub fn base(&self) -> u32 {
        u32::from(self.next.base()) | u32::from(self.used_next.base()) << 16
    }
}
