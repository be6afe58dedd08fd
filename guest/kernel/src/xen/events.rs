//! Events: a loopback event channel of this domain.
//!
//! Xen sets pending bits in a page that it shares with the domain, and calls a vector that the
//! domain chooses, without a local APIC. The handler (vectors.s) acknowledges and counts. All other
//! channels are masked.

use super::hypercall::{Xen, EVENT_CHANNEL_OP};
use super::memory::share_page;
use crate::cpu::pause;
use trapline_workloads::Reason;

/// Vector of events.
pub const EVENT_VECTOR: u32 = 0x32;

/// Operations of [`EVENT_CHANNEL_OP`] (Xen `public/event_channel.h`).
const SEND: u64 = 4;
const BIND_IPI: u64 = 7;

/// HVM parameter of the event callback, and its type "vector" (`public/hvm/params.h`).
const CALLBACK: u32 = 0;
const BY_VECTOR: u64 = 2 << 56;

/// Words and offset of the mask in the shared page (`shared_info` of `public/xen.h`). A set bit masks
/// its channel.
const MASK_WORDS: usize = 64;
const MASK_AT: usize = 2560;

extern "C" {
    /// Shared page, channel and counter of the handler; see vectors.s.
    static mut trapline_shared: [u8; 4096];
    static mut trapline_channel: u64;
    static trapline_events: u64;
}

/// Returns the number of handled events.
#[inline(always)]
pub fn event_count() -> u64 {
    // SAFETY: a static counter, read as volatile.
    unsafe { (&raw const trapline_events).read_volatile() }
}

/// `evtchn_bind_ipi`.
#[repr(C)]
struct Bound {
    cpu: u32,
    channel: u32,
}

/// Event channel.
pub struct Events {
    xen: Xen,
    channel: u32,
}

impl Events {
    /// Opens the channel and enables its events.
    ///
    /// # Errors
    /// Xen refuses an operation.
    pub fn open(xen: Xen) -> Result<Events, Reason> {
        // SAFETY: a static page for this purpose, identity-mapped.
        if !unsafe { share_page(xen, &raw const trapline_shared as u64) } {
            return Err("Xen does not map the shared page");
        }
        let mut bound = Bound { cpu: 0, channel: 0 };
        // SAFETY: the structure that the operation reads, and whose channel it writes.
        if unsafe { xen.call(EVENT_CHANNEL_OP, BIND_IPI, &raw mut bound as u64) } != 0 {
            return Err("Xen does not bind an event channel");
        }
        let channel = bound.channel;
        // SAFETY: the handler reads the channel, and is not called before the vector is set.
        unsafe { (&raw mut trapline_channel).write_volatile(channel.into()) };
        mask_all_but(channel);
        if xen.set_parameter(CALLBACK, BY_VECTOR | u64::from(EVENT_VECTOR)) {
            Ok(Events { xen, channel })
        } else {
            Err("Xen does not accept a vector for events")
        }
    }

    /// Sends an event and waits until its handler has run.
    #[inline(always)]
    pub fn send(&self) {
        let before = event_count();
        // SAFETY: the operation reads the number of a channel, a `u32`.
        unsafe {
            self.xen
                .call(EVENT_CHANNEL_OP, SEND, &raw const self.channel as u64)
        };
        while event_count() == before {
            pause();
        }
    }
}

fn mask_all_but(channel: u32) {
    for word in 0..MASK_WORDS {
        let open = if word == channel as usize / 64 {
            1 << (channel % 64)
        } else {
            0
        };
        // SAFETY: within the shared page; Xen only reads the masks.
        unsafe {
            let mask = (&raw mut trapline_shared).byte_add(MASK_AT).cast::<u64>();
            mask.add(word).write_volatile(!open);
        }
    }
}
