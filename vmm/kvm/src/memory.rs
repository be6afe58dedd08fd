//! Memory slots of a VM.

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trapline_interface::{Error, Gpa, Region, Result, PAGE};

/// State shared with the VM's vCPUs.
pub(crate) struct Shared {
    // Declared in this order: the VM drops before its memory.
    pub(crate) fd: VmFd,
    pub(crate) memory: Mutex<BTreeMap<Gpa, Attached>>,
}

pub(crate) struct Attached {
    pub(crate) slot: u32,
    /// Flags of the memory slot.
    pub(crate) flags: u32,
    pub(crate) region: Arc<Region>,
}

impl Shared {
    pub(crate) fn memory(&self) -> MutexGuard<'_, BTreeMap<Gpa, Attached>> {
        // A poisoned map is still consistent.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_slot(
        &self,
        slot: u32,
        at: Gpa,
        region: Option<&Region>,
        flags: u32,
    ) -> Result<()> {
        let slot = kvm_userspace_memory_region {
            slot,
            flags,
            guest_phys_addr: at.0,
            memory_size: region.map_or(0, |region| region.len() as u64),
            userspace_addr: region.map_or(0, |region| region.address().as_ptr() as u64),
        };
        // SAFETY: the caller keeps the region in the slot map as long as the slot exists, and `Shared` outlives
        // every vCPU.
        unsafe { self.fd.set_user_memory_region(slot) }
            .map_err(Error::refused("change the guest's memory"))
    }
}

/// Returns the reason why a region cannot be attached there.
pub(crate) fn attach_error(
    memory: &BTreeMap<Gpa, Attached>,
    at: Gpa,
    length: u64,
) -> Option<&'static str> {
    if !at.0.is_multiple_of(PAGE as u64) {
        return Some("the address is not that of a page");
    }
    let Some(end) = at.0.checked_add(length) else {
        return Some("it would end beyond the address space");
    };
    memory
        .iter()
        .any(|(other, there)| other.0 < end && at.0 < other.0 + there.region.len() as u64)
        .then_some("memory is attached there already")
}

pub(crate) fn free_slot(memory: &BTreeMap<Gpa, Attached>) -> u32 {
    let taken = |slot: &u32| memory.values().any(|there| there.slot == *slot);
    (0..).find(|slot| !taken(slot)).unwrap_or(u32::MAX)
}
