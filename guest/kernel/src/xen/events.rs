//! Events, which are a domain's interrupts: a channel that leads back to this domain.
//!
//! Xen says what is due in a page that it shares with the domain, and enters the domain
//! by a vector of its choice, without a local APIC. The handler (vectors.s) acknowledges
//! and counts. All other channels are masked, so that nobody else's event comes in
//! between.

use super::hypercall::{Xen, EVENT_CHANNEL_OP};
use super::memory::share_page;
use crate::cpu::pause;
use trapline_workloads::Reason;

/// Vector by which events come.
pub const EVENT_VECTOR: u32 = 0x32;

/// Operations of [`EVENT_CHANNEL_OP`] (Xen `public/event_channel.h`).
const SEND: u64 = 4;
const BIND_IPI: u64 = 7;

/// How the domain is told of events: the kind "vector", and which
/// (`public/hvm/params.h`).
const CALLBACK: u32 = 0;
const BY_VECTOR: u64 = 2 << 56;

/// Words of the mask in the shared page, the `shared_info` of `public/xen.h`. A bit
/// that is set keeps its channel from being told.
const MASK_WORDS: usize = 64;
const MASK_AT: usize = 2560;

extern "C" {
    /// The shared page, and what the handler knows and counts; see vectors.s.
    static mut trapline_shared: [u8; 4096];
    static mut trapline_channel: u64;
    static trapline_events: u64;
}

/// How many events of the channel have been handled.
#[inline(always)]
pub fn taken() -> u64 {
    // SAFETY: a counter that is always there, read as it is now.
    unsafe { (&raw const trapline_events).read_volatile() }
}

/// `evtchn_bind_ipi`.
#[repr(C)]
struct Bound {
    cpu: u32,
    channel: u32,
}

/// The channel.
pub struct Events {
    xen: Xen,
    channel: u32,
}

impl Events {
    /// Opens the channel and lets its events in.
    ///
    /// # Errors
    /// What Xen refuses.
    pub fn open(xen: Xen) -> Result<Events, Reason> {
        // SAFETY: the linker has set the page aside for this, and virtual is physical.
        if !unsafe { share_page(xen, &raw const trapline_shared as u64) } {
            return Err("Xen does not share its page with this domain");
        }
        let mut bound = Bound { cpu: 0, channel: 0 };
        // SAFETY: the structure that the operation reads, and whose channel it writes.
        if unsafe { xen.call(EVENT_CHANNEL_OP, BIND_IPI, &raw mut bound as u64) } != 0 {
            return Err("Xen gives this domain no event channel");
        }
        let channel = bound.channel;
        // SAFETY: the handler reads the channel's number, and is not called before
        // the vector is known.
        unsafe { (&raw mut trapline_channel).write_volatile(channel.into()) };
        mask_all_but(channel);
        match xen.set_parameter(CALLBACK, BY_VECTOR | u64::from(EVENT_VECTOR)) {
            true => Ok(Events { xen, channel }),
            false => Err("Xen takes no vector for the events of this domain"),
        }
    }

    /// Sends an event and waits until its handler has run.
    #[inline(always)]
    pub fn send(&self) {
        let before = taken();
        // SAFETY: the operation reads the number of a channel, a `u32`.
        unsafe {
            self.xen
                .call(EVENT_CHANNEL_OP, SEND, &raw const self.channel as u64)
        };
        while taken() == before {
            pause();
        }
    }
}

fn mask_all_but(channel: u32) {
    for word in 0..MASK_WORDS {
        let open = match word == channel as usize / 64 {
            true => 1 << (channel % 64),
            false => 0,
        };
        // SAFETY: within the shared page, which is where Xen was told; Xen reads the
        // masks only.
        unsafe {
            let mask = (&raw mut trapline_shared).byte_add(MASK_AT).cast::<u64>();
            mask.add(word).write_volatile(!open);
        }
    }
}
