//! Memory that the VMM gives while we run, at a window of physical addresses
//! ([`trapline_abi::populate`]).
//!
//! The window is mapped once, to itself and in pages of 2 MiB, whatever pages the memory
//! behind it has: our own tables then cost a touch next to nothing and never change.
//! While nothing is there nobody may touch it.

use crate::cpu::{in32, out32};
use crate::memory;
use core::ptr::NonNull;
use trapline_abi::platform::{POPULATE, POPULATE_IS_THERE, WINDOW};
use trapline_abi::populate::{Refusal, Wish, GIVE_BACK};
use trapline_workloads::{Block, Reason};

/// The window, mapped.
pub struct Window {
    /// In the page tables.
    first_entry: *const u64,
}

impl Window {
    /// Finds out whether memory can be had, and maps the window. Called once.
    ///
    /// # Errors
    /// It cannot.
    pub fn open(ports: bool) -> Result<Self, Reason> {
        if !ports || in32(POPULATE) != POPULATE_IS_THERE {
            return Err("whoever runs this machine gives it no memory while it runs");
        }
        let first_entry = memory::map_window();
        let no_memory = "there is no memory for the page tables of the window";
        Ok(Self {
            first_entry: first_entry.ok_or(no_memory)?,
        })
    }

    /// Asks for a region.
    #[inline(always)]
    pub fn ask(&self, wish: Wish) {
        out32(POPULATE, wish.word());
    }

    /// The region that was asked for.
    ///
    /// # Errors
    /// Why it is not there.
    pub fn found(&self) -> Result<Block, Reason> {
        // A hypervisor that takes memory away may forget all that it had mapped of ours:
        // the way there is not what a touch is to be charged with.
        // SAFETY: an entry of our tables, which are mapped to themselves and stay.
        unsafe { self.first_entry.read_volatile() };
        region()
    }

    /// Gives the region back.
    ///
    /// # Errors
    /// It was not taken.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub unsafe fn give_back(&self) -> Result<(), Reason> {
        out32(POPULATE, GIVE_BACK);
        match in32(POPULATE) {
            0 => Ok(()),
            answer => Err(Refusal::of_word(answer).map_or(NO_ANSWER, Refusal::reason)),
        }
    }
}

/// The region that the VMM says is there.
fn region() -> Result<Block, Reason> {
    let answer = in32(POPULATE);
    let start = NonNull::new(WINDOW as *mut u8);
    match (Wish::of_word(answer), start) {
        (Some(wish), Some(start)) => Ok(Block {
            start,
            length: wish.bytes() as usize,
        }),
        _ => Err(Refusal::of_word(answer).map_or(NO_ANSWER, Refusal::reason)),
    }
}

const NO_ANSWER: Reason = "the VMM's answer makes no sense";
