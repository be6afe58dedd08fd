//! Counts by call path. Most instructions leave the path unchanged; this module detects that
//! without locking [`CallChains`].

use super::call_chains::{CallChains, StackSlot, Transfer};
use super::call_tree::ROOT;
use super::InsnSite;
use crate::address_space::KERNEL;
use crate::format::CallPath;
use crate::insn::Flow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Path of an instruction that this window has not counted.
const NO_PATH: u32 = u32::MAX;

/// The current call path. Inactive before [`Self::enable`].
pub struct PathCounter {
    is_enabled: AtomicBool,
    /// True from a call or return until the next instruction.
    is_transferring: AtomicBool,
    in_guest: AtomicBool,
    in_kernel: AtomicBool,
    last_address: AtomicU64,
    path: AtomicU32,
    chains: Mutex<Option<CallChains>>,
}

/// Executions of an instruction on the path that it was last executed on.
#[derive(Debug)]
pub struct PathCount {
    path: AtomicU32,
    count: AtomicU64,
}

impl PathCount {
    pub const fn new() -> Self {
        Self {
            path: AtomicU32::new(NO_PATH),
            count: AtomicU64::new(0),
        }
    }
}

impl PathCounter {
    /// Creates a counter that is not enabled.
    pub const fn new() -> Self {
        Self {
            is_enabled: AtomicBool::new(false),
            is_transferring: AtomicBool::new(false),
            in_guest: AtomicBool::new(false),
            in_kernel: AtomicBool::new(false),
            last_address: AtomicU64::new(0),
            path: AtomicU32::new(ROOT),
            chains: Mutex::new(None),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut CallChains) -> T) -> T {
        let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        act(chains.get_or_insert_with(CallChains::new))
    }

    /// Enables the counter, before the machine's first instruction if all callers are needed.
    pub fn enable(&self) {
        self.is_enabled.store(true, Relaxed);
    }

    /// Returns true if paths are counted.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Relaxed)
    }

    /// Records that the call or return at `site` accessed `slot`. QEMU 7.2 also reports some
    /// accesses of later instructions: only the first one of the last instruction is valid.
    pub fn access_slot(&self, flow: Flow, site: u64, next_address: u64, slot: StackSlot) {
        if self.last_address.load(Relaxed) != site || self.is_transferring.swap(true, Relaxed) {
            return;
        }
        self.with(|chains| {
            chains.transfer(Transfer {
                flow,
                site,
                next_address,
                slot,
            });
        });
    }

    /// Records that the next instruction is at `address`.
    pub fn reach(&self, address: u64, in_guest: bool) {
        if !self.is_enabled() {
            return;
        }
        let in_kernel = address >= KERNEL;
        let is_path_unchanged = self.in_guest.load(Relaxed) == in_guest
            && self.in_kernel.load(Relaxed) == in_kernel
            && !self.is_transferring.load(Relaxed);
        let last = self.last_address.load(Relaxed);
        self.last_address.store(address, Relaxed);
        if is_path_unchanged {
            return;
        }
        self.is_transferring.store(false, Relaxed);
        self.in_guest.store(in_guest, Relaxed);
        self.in_kernel.store(in_kernel, Relaxed);
        self.with(|chains| {
            chains.reach(address, in_guest, last);
            self.path.store(chains.path(), Relaxed);
        });
    }

    /// Opens a window.
    pub fn open(&self) {
        if self.is_enabled() {
            self.with(|chains| {
                chains.open();
                self.path.store(chains.path(), Relaxed);
            });
        }
    }

    /// Counts one execution of `site` on the current path.
    pub fn count(&self, site: &InsnSite) {
        if !self.is_enabled() {
            return;
        }
        let (path_count, path) = (&site.path_count, self.path.load(Relaxed));
        if path_count.path.load(Relaxed) != path {
            self.with(|chains| flush(chains, site));
            path_count.path.store(path, Relaxed);
        }
        // Only one thread writes, so no atomic addition is needed.
        let count = path_count.count.load(Relaxed);
        path_count.count.store(count + 1, Relaxed);
    }

    /// Closes the window and returns its paths, with the counts of all `sites`.
    pub fn close<'p>(&self, sites: impl Iterator<Item = &'p InsnSite>) -> Vec<CallPath> {
        if !self.is_enabled() {
            return Vec::new();
        }
        self.with(|chains| {
            sites.for_each(|site| flush(chains, site));
            chains.close()
        })
    }
}

fn flush(chains: &mut CallChains, site: &InsnSite) {
    let path = site.path_count.path.swap(NO_PATH, Relaxed);
    let count = site.path_count.count.swap(0, Relaxed);
    if count != 0 {
        chains.count(path, site.address, count);
    }
}
