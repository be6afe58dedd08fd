//! Pages that the VMM shares with the processes of a guest.

use crate::layout::{SWITCHER, SWITCHER_PAGES};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use trapline_interface::{Region, PAGE};

/// Pages of one process, from [`SWITCHER`] on.
#[derive(Clone)]
pub(crate) struct Pages {
    /// The switcher, its data, and the control page, which all processes of the guest share.
    pub common: Arc<Region>,
    /// Scratch pages and stack of this process.
    pub own: Arc<Region>,
}

impl Pages {
    /// Creates the pages of the first process.
    pub fn new() -> io::Result<Self> {
        let common = Arc::new(Region::new(SWITCHER_PAGES * PAGE)?);
        let own = Arc::clone(&common);
        Ok(Self { common, own })
    }

    // Code of optimisation spaces.

    /// Creates the pages of a further process.
    pub fn further(&self) -> io::Result<Self> {
        Ok(Self {
            common: Arc::clone(&self.common),
            own: Arc::new(Region::new(SWITCHER_PAGES * PAGE)?),
        })
    }
    // End of optimisation spaces.
}

/// Returns a word of one of the regions, given by its address in the process.
pub(crate) fn word(region: &Region, address: u64) -> u64 {
    region.load64(address.wrapping_sub(SWITCHER)).unwrap_or(0)
}

/// Sets a word.
pub(crate) fn set_word(region: &Region, address: u64, value: u64) {
    let stored = region.store64(address.wrapping_sub(SWITCHER), value);
    debug_assert!(stored.is_some());
}

/// Returns where the VMM has the word of a futex.
pub(crate) fn futex_word(region: &Region, address: u64) -> NonNull<u32> {
    let at = region.pointer(address.wrapping_sub(SWITCHER), size_of::<u32>());
    at.unwrap_or(region.address()).cast()
}
