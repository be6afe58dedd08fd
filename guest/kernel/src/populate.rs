//! Memory hotplug ([`trapline_abi::populate`]).
//!
//! The window of physical addresses is identity-mapped once, in pages of 2 MiB independent of the
//! pages that back it, so that the guest's page tables add little to the cost of a touch and never
//! change. It must not be accessed while no region is attached.

use crate::cpu::{in32, out32};
use crate::memory;
use core::ptr::NonNull;
use trapline_abi::platform::{HOTPLUG_BASE, POPULATE, POPULATE_PRESENT};
use trapline_abi::populate::{MemoryRequest, Refusal, RELEASE};
use trapline_workloads::{Block, Reason};

/// Mapped window.
pub struct Window {
    /// Page table entry of the first page.
    first_entry: *const u64,
}

impl Window {
    /// Checks that the VMM supports hotplug, and maps the window. Called once.
    ///
    /// # Errors
    /// It does not, or memory is exhausted.
    pub fn open(ports: bool) -> Result<Self, Reason> {
        if !ports || in32(POPULATE) != POPULATE_PRESENT {
            return Err("the VMM does not support memory hotplug for the image");
        }
        let first_entry = memory::map_window();
        let no_memory = "not enough memory for the page tables of the window";
        Ok(Self {
            first_entry: first_entry.ok_or(no_memory)?,
        })
    }

    /// Requests a region.
    #[inline(always)]
    pub fn request(&self, request: MemoryRequest) {
        out32(POPULATE, request.word());
    }

    /// Returns the requested region.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub fn region(&self) -> Result<Block, Reason> {
        // Detaching memory may make the hypervisor unmap the page tables. This maps them again, so
        // that the timed touch does not.
        // SAFETY: an entry of the page tables, which are identity-mapped and never freed.
        unsafe { self.first_entry.read_volatile() };
        attached()
    }

    /// Releases the region.
    ///
    /// # Errors
    /// The reason of the refusal.
    ///
    /// # Safety
    /// The region is no longer used.
    pub unsafe fn release(&self) -> Result<(), Reason> {
        out32(POPULATE, RELEASE);
        match in32(POPULATE) {
            0 => Ok(()),
            answer => Err(Refusal::from_word(answer).map_or(NO_ANSWER, Refusal::reason)),
        }
    }
}

/// Returns the region that the VMM reports as attached.
fn attached() -> Result<Block, Reason> {
    let answer = in32(POPULATE);
    let start = NonNull::new(HOTPLUG_BASE as *mut u8);
    match (MemoryRequest::from_word(answer), start) {
        (Some(request), Some(start)) => Ok(Block {
            start,
            length: request.bytes() as usize,
        }),
        _ => Err(Refusal::from_word(answer).map_or(NO_ANSWER, Refusal::reason)),
    }
}

const NO_ANSWER: Reason = "the VMM returned an invalid answer";
