//! The slot of a vCPU in the page of an I/O request server: `struct ioreq` (Xen `public/hvm/ioreq.h`).
//!
//! Xen writes a request and sets the state to ready; the device model writes the result and sets the state to response.
//! The guest cannot access the page, and its vCPU waits for the response.

use crate::privcmd::Mapping;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};

/// `struct ioreq`.
#[repr(C)]
struct Layout {
    address: AtomicU64,
    data: AtomicU64,
    count: AtomicU32,
    size: AtomicU32,
    port: AtomicU32,
    pad: u16,
    /// State in bits 0 to 3, and the flags below.
    flags: AtomicU8,
    kind: AtomicU8,
}

const STATE: u8 = 0xf;
const DATA_IS_POINTER: u8 = 1 << 4;
const IS_READ: u8 = 1 << 5;
const IS_DOWNWARD: u8 = 1 << 6;

/// `STATE_IOREQ_READY` and `STATE_IORESP_READY`.
const READY: u8 = 1;
const RESPONSE: u8 = 3;

/// `IOREQ_TYPE_PIO` and `IOREQ_TYPE_COPY`.
const PORT: u8 = 0;
const MEMORY: u8 = 1;

/// Address space of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Port,
    Memory,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IoRequest {
    /// Address space, `None` if no access to a device, such as a notification that the domain's memory changed.
    pub space: Option<Space>,
    pub address: u64,
    /// Value of a write, or with `is_pointer` the guest-physical address of the first element.
    pub data: u64,
    pub is_pointer: bool,
    pub count: u32,
    pub size: u32,
    pub is_read: bool,
    /// Addresses descend from element to element.
    pub is_downward: bool,
}

/// The slot of vCPU 0.
#[derive(Debug)]
pub(crate) struct Slot {
    layout: NonNull<Layout>,
}

// SAFETY: the page stays mapped as long as the process lives, and all accesses are atomic.
unsafe impl Send for Slot {}

impl Slot {
    /// Returns the first slot of a mapped page.
    pub fn first(page: Mapping) -> Self {
        Self {
            layout: page.start.cast(),
        }
    }

    fn layout(&self) -> &Layout {
        // SAFETY: the page stays mapped, is aligned, and is accessed atomically.
        unsafe { self.layout.as_ref() }
    }

    /// Returns the event channel of the domain that Xen uses for the slot.
    pub fn port(&self) -> u32 {
        self.layout().port.load(Ordering::Relaxed)
    }

    /// Returns the request, if there is one.
    #[inline]
    pub fn request(&self) -> Option<IoRequest> {
        let layout = self.layout();
        let flags = layout.flags.load(Ordering::Acquire);
        (flags & STATE == READY).then(|| IoRequest {
            space: match layout.kind.load(Ordering::Relaxed) {
                PORT => Some(Space::Port),
                MEMORY => Some(Space::Memory),
                _ => None,
            },
            address: layout.address.load(Ordering::Relaxed),
            data: layout.data.load(Ordering::Relaxed),
            is_pointer: flags & DATA_IS_POINTER != 0,
            count: layout.count.load(Ordering::Relaxed),
            size: layout.size.load(Ordering::Relaxed),
            is_read: flags & IS_READ != 0,
            is_downward: flags & IS_DOWNWARD != 0,
        })
    }

    /// Responds to the request, a read with `data`.
    #[inline]
    pub fn respond(&self, data: Option<u64>) {
        let layout = self.layout();
        if let Some(data) = data {
            layout.data.store(data, Ordering::Relaxed);
        }
        let flags = layout.flags.load(Ordering::Relaxed);
        let response = flags & !STATE | RESPONSE;
        layout.flags.store(response, Ordering::Release);
    }
}
