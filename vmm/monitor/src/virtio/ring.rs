//! A queue of requests (virtio 1.2, section 2.7), as one device sees it.

use crate::virtio::chain::{Chain, Part};
use crate::virtio::Broken;
use crate::virtio::Memory;
use std::sync::atomic::{fence, Ordering};
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

/// What came of serving a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Served {
    /// The guest is to be interrupted.
    pub interrupt: bool,
    /// There is more: serve it again when others had their turn.
    pub more: bool,
}

impl Served {
    /// Of two rings.
    pub fn and(self, other: Self) -> Self {
        Self {
            interrupt: self.interrupt || other.interrupt,
            more: self.more || other.more,
        }
    }
}

/// A split ring. A driver can only touch its layout while it is not ready.
#[derive(Debug)]
pub struct Ring {
    queue: Queue,
    /// Given since it was last asked whether to interrupt.
    given: u16,
}

/// From the end of the available ring to where the driver says what it waits for, and from
/// the used ring to its first element (section 2.7.6 and 2.7.8).
const AVAILABLE_HEADER: u64 = 4;
const USED_HEADER: u64 = 4;
const USED_ELEMENT: u64 = 8;

impl Ring {
    /// A ring of at most `most` entries, a power of 2.
    pub(crate) fn new(most: u16) -> Self {
        let queue = Queue::new(most).or_else(|_| Queue::new(1));
        // A ring of one entry is always possible.
        Self {
            queue: queue.unwrap_or_else(|_| unreachable!("1 is a power of 2")),
            given: 0,
        }
    }

    /// The next request; `None` while there is none.
    ///
    /// # Errors
    /// What the driver has put there makes no sense.
    pub fn take(&mut self, memory: &Memory) -> Result<Option<Chain>, Broken> {
        if !self.queue.ready() {
            return Ok(None);
        }
        let most = self.queue.size().into();
        let mut waiting = self.queue.iter(memory).map_err(|_| Broken::Ring)?;
        let Some(descriptors) = waiting.next() else {
            return Ok(None);
        };
        walk(descriptors, memory, most).map(Some)
    }

    /// Puts back what was taken last, to take it again later.
    pub fn put_back(&mut self) {
        self.queue.go_to_previous_position();
    }

    /// Gives a request back, of which `written` bytes are the device's.
    ///
    /// # Errors
    /// The ring is not in memory any more, or the request was not of it.
    pub fn give(&mut self, memory: &Memory, head: u16, written: usize) -> Result<(), Broken> {
        // A chain holds no more than this many.
        let written = u32::try_from(written).map_err(|_| Broken::Request)?;
        self.given = self.given.saturating_add(1);
        self.queue
            .add_used(memory, head, written)
            .map_err(|_| Broken::Ring)
    }

    /// The same of several requests, which the driver sees at once: heads, and bytes
    /// written.
    ///
    /// # Errors
    /// As of one.
    pub fn give_all(&mut self, memory: &Memory, given: &[(u16, usize)]) -> Result<(), Broken> {
        let Some(((head, written), before)) = given.split_last() else {
            return Ok(());
        };
        let first = self.queue.next_used();
        for (number, (head, written)) in (0..).zip(before) {
            let place = u64::from(first.wrapping_add(number) % self.queue.size());
            let at = self.queue.used_ring() + USED_HEADER + USED_ELEMENT * place;
            let written = u32::try_from(*written).map_err(|_| Broken::Request)?;
            // In memory the head comes first, and then the length, in 32 bits each.
            let element = u64::from(*head) | u64::from(written) << 32;
            let put = memory.write_obj(element.to_le(), GuestAddress(at));
            put.map_err(|_| Broken::Ring)?;
        }
        let before = before.len() as u16;
        self.queue.set_next_used(first.wrapping_add(before));
        self.given = self.given.saturating_add(before);
        self.give(memory, *head, *written)
    }

    /// Whether the driver waits to be interrupted for what it was given.
    ///
    /// # Errors
    /// The ring is not in memory any more.
    pub fn must_interrupt(&mut self, memory: &Memory) -> Result<bool, Broken> {
        let given = std::mem::take(&mut self.given);
        if !self.queue.state().event_idx_enabled {
            return Ok(given > 0);
        }
        // What was given is seen before it is asked what the driver waits for.
        fence(Ordering::SeqCst);
        let entries = AVAILABLE_HEADER + 2 * u64::from(self.queue.size());
        let at = GuestAddress(self.queue.avail_ring() + entries);
        let awaited: u16 = memory
            .load(at, Ordering::Relaxed)
            .map_err(|_| Broken::Ring)?;
        let behind = self.queue.next_used().wrapping_sub(u16::from_le(awaited));
        Ok(behind.wrapping_sub(1) < given)
    }

    /// The driver need not ring while its ring is being emptied.
    ///
    /// # Errors
    /// The ring is not in memory any more.
    pub fn deafen(&mut self, memory: &Memory) -> Result<(), Broken> {
        match self.queue.ready() {
            true => self
                .queue
                .disable_notification(memory)
                .map_err(|_| Broken::Ring),
            false => Ok(()),
        }
    }

    /// The driver has to ring again. True if something came before it could know.
    ///
    /// # Errors
    /// The ring is not in memory any more.
    pub fn listen(&mut self, memory: &Memory) -> Result<bool, Broken> {
        match self.queue.ready() {
            true => self
                .queue
                .enable_notification(memory)
                .map_err(|_| Broken::Ring),
            false => Ok(false),
        }
    }

    /// Serves requests until there are none, or as many as the ring holds: `serve` tells how
    /// many bytes it wrote into one, or `None` to leave it and all others for later.
    ///
    /// # Errors
    /// What `serve` says, or the ring.
    pub fn serve_all(
        &mut self,
        memory: &Memory,
        mut serve: impl FnMut(&Chain) -> Result<Option<usize>, Broken>,
    ) -> Result<Served, Broken> {
        let (mut given, mut more) = (0, true);
        self.deafen(memory)?;
        while more && given < self.queue.size() {
            let Some(chain) = self.take(memory)? else {
                more = self.listen(memory)?;
                continue;
            };
            let Some(written) = serve(&chain)? else {
                self.put_back();
                self.listen(memory)?;
                more = false;
                continue;
            };
            self.give(memory, chain.head(), written)?;
            given += 1;
        }
        Ok(Served {
            interrupt: self.must_interrupt(memory)?,
            more,
        })
    }

    pub(crate) fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Entries, as the driver has chosen.
    pub(crate) fn size(&self) -> u16 {
        self.queue.size()
    }

    pub(crate) fn most(&self) -> u16 {
        self.queue.max_size()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.queue.ready()
    }

    /// The driver says that it is complete. One that makes no sense stays away.
    pub(crate) fn make_ready(&mut self, memory: &Memory) {
        self.queue.set_ready(true);
        if !self.queue.is_valid(memory) {
            self.queue.set_ready(false);
        }
    }
}

/// Follows descriptors to their end. A table of its own may hold no more of them than the
/// ring (section 2.7.5.3.1).
fn walk(
    descriptors: DescriptorChain<&Memory>,
    memory: &Memory,
    most: usize,
) -> Result<Chain, Broken> {
    let mut chain = Chain::begun(descriptors.head_index());
    let mut more = true;
    for descriptor in descriptors.take(most) {
        let part = Part {
            at: descriptor.addr(),
            length: descriptor.len() as usize,
        };
        chain.add(memory, part, descriptor.is_write_only())?;
        more = descriptor.has_next();
    }
    // It ended early: at a descriptor that cannot be read, or in a circle.
    match more {
        false => Ok(chain),
        true => Err(Broken::Chain),
    }
}
