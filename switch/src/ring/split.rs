//! Split virtqueues (2.7).

use super::{
    prefetch_buffer, read_once, Addresses, Builder, Chain, Descriptor, Direction, Fault, Guest,
    Mark, Segment, INDIRECT, NEXT,
};
use crate::memory::{Cache, Memory};
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU16, Ordering};

/// `VIRTQ_AVAIL_F_NO_INTERRUPT`, `VIRTQ_USED_F_NO_NOTIFY`: no notifications, please.
const NONE_PLEASE: u16 = 1;

/// A queue.
#[derive(Debug)]
pub struct Split {
    descriptors: NonNull<Descriptor>,
    /// Flags, index, entries of 16 bits.
    available: NonNull<u16>,
    /// Flags, index, entries of 64 bits.
    used: NonNull<u16>,
    mask: u16,
    /// Notifications are wanted at a position (`VIRTIO_F_EVENT_IDX`), not always or never.
    has_events: bool,
    /// Position of the next buffer to be taken.
    next: u16,
    /// Position of the driver when it was read last.
    end: u16,
    /// Position of the next buffer to be returned, and the one that the driver sees.
    used_next: u16,
    published: u16,
    cache: Cache,
}

// SAFETY: the pointers are to memory that all threads may access.
unsafe impl Send for Split {}

impl Split {
    /// Returns the queue at these addresses, which continues at position `base`. `None` unless the size is a power of two
    /// and all parts are aligned and in memory.
    pub fn new(
        memory: &Memory,
        size: u32,
        at: &Addresses,
        base: u32,
        has_events: bool,
    ) -> Option<Self> {
        if !size.is_power_of_two() || size > super::LARGEST {
            return None;
        }
        let bytes = u64::from(size);
        let descriptors = memory.user(at.descriptors, 16 * bytes, 16)?.cast();
        let available = memory.user(at.driver, 6 + 2 * bytes, 2)?.cast::<u16>();
        let used = memory.user(at.device, 6 + 8 * bytes, 4)?.cast::<u16>();
        // What is not returned yet is taken again: after the switch was restarted, both positions are that of the used ring.
        let used_next = match u16::try_from(base) {
            Ok(base) => base,
            Err(_) => return None,
        };
        Some(Self {
            descriptors,
            available,
            used,
            mask: (size - 1) as u16,
            has_events,
            next: used_next,
            end: used_next,
            used_next,
            published: used_next,
            cache: Cache::default(),
        })
    }

    fn size(&self) -> usize {
        usize::from(self.mask) + 1
    }

    /// Returns a word of one of the rings.
    fn word(at: NonNull<u16>, index: usize) -> &'static AtomicU16 {
        // SAFETY: the callers' indices are in the ring, which is aligned and in memory that outlives the queue; the driver
        // accesses it atomically, too. The reference is not kept.
        unsafe { AtomicU16::from_ptr(at.as_ptr().add(index)) }
    }

    /// Reads the position of the driver, if all buffers known are taken.
    #[inline(always)]
    fn refresh(&mut self) -> Result<bool, Fault> {
        if self.next != self.end {
            return Ok(true);
        }
        self.end = Self::word(self.available, 1).load(Ordering::Acquire);
        match self.end.wrapping_sub(self.next) {
            0 => Ok(false),
            count if u32::from(count) > u32::from(self.mask) + 1 => Err(Fault::Index),
            _ => Ok(true),
        }
    }

    /// See [`super::Ring::take`].
    #[inline(always)]
    pub fn take(
        &mut self,
        memory: &Memory,
        direction: Direction,
        segments: &mut Vec<Segment>,
    ) -> Result<Option<Chain>, Fault> {
        if !self.refresh()? {
            return Ok(None);
        }
        let slot = 2 + usize::from(self.next & self.mask);
        let head = Self::word(self.available, slot).load(Ordering::Relaxed);
        let (address, length, flags, next) = self.descriptor(head)?;
        let mut cache = self.cache;
        let mut guest = Guest {
            memory,
            cache: &mut cache,
            direction,
        };
        let only = match flags & (NEXT | INDIRECT) {
            0 => guest.segment(address, length, flags)?,
            _ => None,
        };
        let chain = match only {
            Some(only) => Chain::single(head, only),
            None => {
                let first = (address, length, flags, next);
                let chain = self.chain(Builder::new(guest, segments), first)?;
                Chain { id: head, ..chain }
            }
        };
        self.cache = cache;
        self.next = self.next.wrapping_add(1);
        Ok(Some(chain))
    }

    /// See [`super::Ring::prefetch`].
    #[inline]
    pub fn prefetch(&mut self, memory: &Memory, most: u16) -> u16 {
        if self.refresh() != Ok(true) {
            return 0;
        }
        let count = self.end.wrapping_sub(self.next).min(most);
        let mut cache = self.cache;
        for ahead in 0..count {
            let slot = 2 + usize::from(self.next.wrapping_add(ahead) & self.mask);
            let head = Self::word(self.available, slot).load(Ordering::Relaxed);
            if let Ok((address, length, ..)) = self.descriptor(head) {
                prefetch_buffer(memory, &mut cache, address, length);
            }
        }
        self.cache = cache;
        count
    }

    /// Reads address, length, flags and successor of a descriptor.
    #[inline(always)]
    fn descriptor(&self, index: u16) -> Result<(u64, u32, u16, u16), Fault> {
        if index > self.mask {
            return Err(Fault::Descriptor);
        }
        // SAFETY: the index is less than the size of the table.
        let it = unsafe { read_once(self.descriptors.add(index.into())) };
        Ok((it.address, it.length, it.first, it.second))
    }

    /// Reads a buffer of several descriptors.
    #[inline(never)]
    fn chain(&self, mut builder: Builder<'_>, first: (u64, u32, u16, u16)) -> Result<Chain, Fault> {
        let (mut address, mut length, mut flags, mut next) = first;
        loop {
            if flags & INDIRECT != 0 {
                if flags & NEXT != 0 {
                    return Err(Fault::Indirect);
                }
                builder.add_table(address, length, |_, it| {
                    let has_next = it.first & NEXT != 0;
                    (it.first, has_next.then_some(it.second.into()))
                })?;
                return Ok(builder.chain);
            }
            builder.add(address, length, flags)?;
            if flags & NEXT == 0 {
                return Ok(builder.chain);
            }
            (address, length, flags, next) = self.descriptor(next)?;
        }
    }

    /// See [`super::Ring::give`].
    #[inline]
    pub fn give(&mut self, chain: &Chain, written: u32) {
        let slot = 4 + 8 * usize::from(self.used_next & self.mask);
        // SAFETY: the element is in the ring. The driver does not read it before the index is published.
        unsafe {
            let element = self.used.as_ptr().byte_add(slot).cast::<u32>();
            element.write_volatile(u32::from(chain.id).to_le());
            element.add(1).write_volatile(written.to_le());
        }
        self.used_next = self.used_next.wrapping_add(1);
    }

    /// See [`super::Ring::publish`].
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.used_next == self.published {
            return false;
        }
        let before = std::mem::replace(&mut self.published, self.used_next);
        Self::word(self.used, 1).store(self.used_next, Ordering::Release);
        // The index is visible before the flags are read, or a driver that just enables notifications misses one.
        fence(Ordering::SeqCst);
        if self.has_events {
            // The driver's event is among the buffers published now (2.7.10).
            let event = Self::word(self.available, 2 + self.size()).load(Ordering::Relaxed);
            let since = self.used_next.wrapping_sub(event).wrapping_sub(1);
            return since < self.used_next.wrapping_sub(before);
        }
        Self::word(self.available, 0).load(Ordering::Relaxed) & NONE_PLEASE == 0
    }

    /// See [`super::Ring::mark`].
    pub fn mark(&self) -> Mark {
        Mark {
            next: self.next,
            wrap: false,
        }
    }

    /// See [`super::Ring::rewind`].
    pub fn rewind(&mut self, mark: Mark) {
        self.next = mark.next;
    }

    /// See [`super::Ring::set_notifications`].
    pub fn set_notifications(&mut self, are_wanted: bool) {
        if !self.has_events {
            let flags = if are_wanted { 0 } else { NONE_PLEASE };
            Self::word(self.used, 0).store(flags, Ordering::Relaxed);
        } else if are_wanted {
            // Otherwise the last event has passed, and there is no other.
            let event = Self::word(self.used, 2 + 4 * self.size());
            event.store(self.next, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// See [`super::Ring::has_buffer`].
    pub fn has_buffer(&mut self) -> bool {
        // An error is found when the buffer is taken.
        self.refresh().unwrap_or(true)
    }

    /// See [`super::Ring::base`].
    pub fn base(&self) -> u32 {
        self.next.into()
    }
}
