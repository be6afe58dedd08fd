//! Split virtqueues (virtio 1.2, section 2.7), device side.
//!
//! Own code instead of the crate `virtio-queue`: that needs `std`, and its guest memory costs 40 to 80 ns per
//! packet.

use crate::virtio::chain::{Chain, Part};
use crate::virtio::{DriverError, Memory};
use core::sync::atomic::{fence, Ordering};

/// Result of serving a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Progress {
    /// The guest is to be interrupted.
    pub interrupt: bool,
    /// More work is pending; serve again after other devices.
    pub more: bool,
}

impl Progress {
    /// Combines the results of two rings.
    pub fn and(self, other: Self) -> Self {
        Self {
            interrupt: self.interrupt || other.interrupt,
            more: self.more || other.more,
        }
    }
}

/// A split ring. The driver configures it only while it is not ready.
#[derive(Debug)]
pub struct Ring {
    max_size: u16,
    size: u16,
    ready: bool,
    event_index: bool,
    /// Addresses of descriptor table, available ring and used ring.
    areas: [u64; 3],
    next_available: u16,
    next_used: u16,
    /// Requests completed since the last [`Self::needs_interrupt`].
    completed: u16,
}

/// Place of a ring, for another process that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of descriptors.
    pub size: u16,
    /// Addresses of descriptor table, available ring and used ring.
    pub areas: [u64; 3],
    /// Index of the used ring, which is that of the next request if requests are completed in order.
    pub used: u16,
}

const DESCRIPTORS: usize = 0;
const AVAILABLE: usize = 1;
const USED: usize = 2;

/// Alignment of the areas.
const ALIGNMENT: [u64; 3] = [16, 2, 4];

// Layout of the available and used rings (sections 2.7.6 and 2.7.8): flags, index, elements, event index.
const INDEX: u64 = 2;
const ELEMENTS: u64 = 4;
const AVAILABLE_ELEMENT: u64 = 2;
const USED_ELEMENT: u64 = 8;

/// Used ring flag: the driver need not notify.
const NO_NOTIFY: u16 = 1;

// Descriptor flags.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

struct Descriptor {
    address: u64,
    length: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    const SIZE: u64 = 16;

    fn read(memory: &Memory, table: u64, index: u64) -> Result<Self, DriverError> {
        let mut bytes = [0; Self::SIZE as usize];
        let at = table.checked_add(index * Self::SIZE);
        memory
            .read(at.ok_or(DriverError::Chain)?, &mut bytes)
            .map_err(|_| DriverError::Chain)?;
        let [a @ .., _, _, _, _, _, _, _, _] = bytes;
        let [_, _, _, _, _, _, _, _, l0, l1, l2, l3, f0, f1, n0, n1] = bytes;
        Ok(Self {
            address: u64::from_le_bytes(a),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            flags: u16::from_le_bytes([f0, f1]),
            next: u16::from_le_bytes([n0, n1]),
        })
    }
}

impl Ring {
    /// Creates a ring of at most `max_size` entries, a power of 2.
    pub(crate) fn new(max_size: u16) -> Self {
        Self {
            max_size,
            size: max_size,
            ready: false,
            event_index: false,
            areas: [0; 3],
            next_available: 0,
            next_used: 0,
            completed: 0,
        }
    }

    /// Returns the next request, if any.
    ///
    /// # Errors
    /// The ring or the request is malformed.
    pub fn take(&mut self, memory: &Memory) -> Result<Option<Chain>, DriverError> {
        if !self.ready {
            return Ok(None);
        }
        let waiting = self
            .available_index(memory)?
            .wrapping_sub(self.next_available);
        if waiting > self.size {
            return Err(DriverError::Ring);
        }
        if waiting == 0 {
            return Ok(None);
        }
        let element = u64::from(self.next_available % self.size);
        let at = self.areas[AVAILABLE] + ELEMENTS + AVAILABLE_ELEMENT * element;
        let head = memory.load16(at).ok_or(DriverError::Ring)?;
        self.next_available = self.next_available.wrapping_add(1);
        self.chain(memory, head).map(Some)
    }

    /// Follows a chain of descriptors, of which the last may refer to an indirect table. Both together have at most as
    /// many descriptors as the ring (section 2.7.5.3.1).
    fn chain(&self, memory: &Memory, head: u16) -> Result<Chain, DriverError> {
        let mut chain = Chain::new(head);
        let (mut table, mut entries) = (self.areas[DESCRIPTORS], u32::from(self.size));
        let (mut index, mut left, mut is_indirect) = (head, self.size, false);
        loop {
            if u32::from(index) >= entries {
                return Err(DriverError::Chain);
            }
            let descriptor = Descriptor::read(memory, table, index.into())?;
            if descriptor.flags & INDIRECT != 0 {
                if is_indirect || !u64::from(descriptor.length).is_multiple_of(Descriptor::SIZE) {
                    return Err(DriverError::Chain);
                }
                table = descriptor.address;
                entries = descriptor.length / Descriptor::SIZE as u32;
                (index, is_indirect) = (0, true);
                continue;
            }
            left = left.checked_sub(1).ok_or(DriverError::Chain)?;
            let part = Part {
                at: descriptor.address,
                length: descriptor.length as usize,
            };
            chain.add(memory, part, descriptor.flags & WRITE != 0)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(chain);
            }
            index = descriptor.next;
        }
    }

    /// Returns the place of the ring, if it is ready.
    pub fn layout(&self, memory: &Memory) -> Option<Layout> {
        let used = memory.load16(self.areas[USED] + INDEX)?;
        self.ready.then_some(Layout {
            size: self.size,
            areas: self.areas,
            used,
        })
    }

    /// Returns the last request taken to the ring, to take it again later.
    pub fn put_back(&mut self) {
        self.next_available = self.next_available.wrapping_sub(1);
    }

    /// Completes a request, of which the device has written `written` bytes.
    ///
    /// # Errors
    /// The ring is outside memory, or the request is not from this ring.
    pub fn complete(
        &mut self,
        memory: &Memory,
        head: u16,
        written: usize,
    ) -> Result<(), DriverError> {
        self.complete_all(memory, &[(head, written)])
    }

    /// Completes several requests, which the driver sees at once: heads, and bytes written.
    ///
    /// # Errors
    /// See [`Self::complete`].
    pub fn complete_all(
        &mut self,
        memory: &Memory,
        given: &[(u16, usize)],
    ) -> Result<(), DriverError> {
        for (head, written) in given {
            if *head >= self.size {
                return Err(DriverError::Ring);
            }
            let place = u64::from(self.next_used % self.size);
            let at = self.areas[USED] + ELEMENTS + USED_ELEMENT * place;
            let written = u32::try_from(*written).map_err(|_| DriverError::Request)?;
            let element = u64::from(*head) | u64::from(written) << 32;
            memory
                .write(at, &element.to_le_bytes())
                .map_err(|_| DriverError::Ring)?;
            self.next_used = self.next_used.wrapping_add(1);
            self.completed = self.completed.saturating_add(1);
        }
        self.store(memory, self.areas[USED] + INDEX, self.next_used)
    }

    /// Returns true if the driver expects an interrupt for the completed requests.
    ///
    /// # Errors
    /// The ring is outside memory.
    pub fn needs_interrupt(&mut self, memory: &Memory) -> Result<bool, DriverError> {
        let completed = core::mem::take(&mut self.completed);
        if !self.event_index {
            return Ok(completed > 0);
        }
        // The used index must be visible before the driver's event index is read.
        fence(Ordering::SeqCst);
        let at = self.areas[AVAILABLE] + ELEMENTS + AVAILABLE_ELEMENT * u64::from(self.size);
        let awaited = memory.load16(at).ok_or(DriverError::Ring)?;
        let behind = self.next_used.wrapping_sub(awaited);
        Ok(behind.wrapping_sub(1) < completed)
    }

    /// Suppresses notifications while the ring is being emptied.
    ///
    /// # Errors
    /// The ring is outside memory.
    pub fn disable_notifications(&mut self, memory: &Memory) -> Result<(), DriverError> {
        if self.ready && !self.event_index {
            self.store(memory, self.areas[USED], NO_NOTIFY)
        } else {
            Ok(())
        }
    }

    /// Requests notifications. Returns true if a request arrived meanwhile.
    ///
    /// # Errors
    /// The ring is outside memory.
    pub fn enable_notifications(&mut self, memory: &Memory) -> Result<bool, DriverError> {
        if !self.ready {
            return Ok(false);
        }
        let event = self.areas[USED] + ELEMENTS + USED_ELEMENT * u64::from(self.size);
        if self.event_index {
            self.store(memory, event, self.next_available)?
        } else {
            self.store(memory, self.areas[USED], 0)?
        }
        // The request must be visible before the available index is read.
        fence(Ordering::SeqCst);
        Ok(self.available_index(memory)? != self.next_available)
    }

    /// Serves requests until there are none, or as many as the ring holds. `serve` returns the number of bytes written,
    /// or `None` to leave this request and all others for later.
    ///
    /// # Errors
    /// The error of `serve`, or a malformed ring.
    pub fn serve_all(
        &mut self,
        memory: &Memory,
        mut serve: impl FnMut(&Chain) -> Result<Option<usize>, DriverError>,
    ) -> Result<Progress, DriverError> {
        let (mut given, mut more) = (0, true);
        self.disable_notifications(memory)?;
        while more && given < self.size {
            let Some(chain) = self.take(memory)? else {
                more = self.enable_notifications(memory)?;
                continue;
            };
            let Some(written) = serve(&chain)? else {
                self.put_back();
                self.enable_notifications(memory)?;
                more = false;
                continue;
            };
            self.complete(memory, chain.head(), written)?;
            given += 1;
        }
        Ok(Progress {
            interrupt: self.needs_interrupt(memory)?,
            more,
        })
    }

    fn available_index(&self, memory: &Memory) -> Result<u16, DriverError> {
        memory
            .load16(self.areas[AVAILABLE] + INDEX)
            .ok_or(DriverError::Ring)
    }

    fn store(&self, memory: &Memory, at: u64, value: u16) -> Result<(), DriverError> {
        memory.store16(at, value).ok_or(DriverError::Ring)
    }

    /// Size chosen by the driver.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    pub(crate) fn max_size(&self) -> u16 {
        self.max_size
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Sets the size; invalid sizes are ignored.
    pub(crate) fn set_size(&mut self, size: u32) {
        if size.is_power_of_two() && size <= self.max_size.into() {
            self.size = size as u16;
        }
    }

    /// Sets the low or high half of the address of an area: descriptors, available ring, used ring.
    pub(crate) fn set_address(&mut self, area: usize, is_high: bool, value: u32) {
        let shift = if is_high { 32 } else { 0 };
        let other = self.areas[area] & !(u64::from(u32::MAX) << shift);
        self.areas[area] = other | u64::from(value) << shift;
    }

    pub(crate) fn set_event_index(&mut self, on: bool) {
        self.event_index = on;
    }

    /// Sets the ring ready, unless an area is misaligned or outside memory.
    pub(crate) fn set_ready(&mut self, ready: bool, memory: &Memory) {
        let size = u64::from(self.size);
        let lengths = [
            Descriptor::SIZE * size,
            ELEMENTS + AVAILABLE_ELEMENT * size + 2,
            ELEMENTS + USED_ELEMENT * size + 2,
        ];
        let mut areas = self.areas.iter().zip(lengths).zip(ALIGNMENT);
        self.ready = ready
            && areas.all(|((at, length), alignment)| {
                at.is_multiple_of(alignment) && memory.contains(*at, length as usize)
            });
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.max_size);
    }
}
