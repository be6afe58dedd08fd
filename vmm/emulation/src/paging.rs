//! The guest's page tables (Intel SDM volume 3, 4.5), walked at faults.

use crate::decode::Access;
use crate::TableMemory;
use trapline_interface::System;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

const PAGING: u64 = 1 << 31;
const WRITE_PROTECT: u64 = 1 << 16;

/// Bits of a page fault's error code.
const ERROR_PRESENT: u64 = 1;
const ERROR_WRITE: u64 = 1 << 1;
const ERROR_USER: u64 = 1 << 2;

/// Registers that determine a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    pub cr0: u64,
    pub cr3: u64,
    /// The access is one of ring 3.
    pub is_user: bool,
}

impl From<&System> for Paging {
    fn from(system: &System) -> Self {
        Self {
            cr0: system.cr0,
            cr3: system.cr3,
            is_user: system.ring() == 3,
        }
    }
}

/// A page fault of the guest's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// Error code.
    pub code: u64,
    /// The address, for CR2.
    pub address: u64,
}

impl PageFault {
    /// A page fault at an address without memory.
    pub fn absent(address: u64) -> Self {
        Self { code: 0, address }
    }
}

/// A translated address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    pub address: u64,
    /// The page may be mapped writable: it allows writes and is marked dirty.
    pub is_writable: bool,
    /// Bytes of the page.
    pub page: u64,
}

/// Translates `address`, and sets accessed and dirty bits as the CPU does.
#[inline(always)]
pub fn translate(
    memory: &mut impl TableMemory,
    paging: impl Into<Paging>,
    address: u64,
    access: Access,
) -> Result<Translation, PageFault> {
    walk(memory, paging.into(), address, access, true)
}

/// Translates `address` if a CPU could have the translation cached: its entries are marked as accessed.
pub fn cached(memory: &mut impl TableMemory, system: &System, address: u64) -> Option<Translation> {
    walk(memory, system.into(), address, Access::Read, false).ok()
}

#[inline(always)]
fn walk(
    memory: &mut impl TableMemory,
    paging: Paging,
    address: u64,
    access: Access,
    sets_bits: bool,
) -> Result<Translation, PageFault> {
    let is_write = access != Access::Read;
    let is_user = paging.is_user;
    let fault = |present: u64| {
        let write = if is_write { ERROR_WRITE } else { 0 };
        let user = if is_user { ERROR_USER } else { 0 };
        let code = present | write | user;
        PageFault { code, address }
    };
    if paging.cr0 & PAGING == 0 {
        return Ok(Translation {
            address,
            is_writable: true,
            page: 1 << 12,
        });
    }
    let mut table = paging.cr3 & ADDRESS;
    let mut rights = WRITABLE | USER;
    for level in (0..4).rev() {
        let shift = 12 + 9 * level;
        let slot = table + (address >> shift & 511) * 8;
        let entry = memory.read64(slot).ok_or(fault(0))?;
        if entry & PRESENT == 0 {
            return Err(fault(0));
        }
        rights &= entry;
        let is_leaf = level == 0 || (level < 3 && entry & LARGE != 0);
        let checks_writes = is_user || paging.cr0 & WRITE_PROTECT != 0;
        let is_denied =
            is_write && checks_writes && rights & WRITABLE == 0 || is_user && rights & USER == 0;
        if is_leaf && is_denied {
            return Err(fault(ERROR_PRESENT));
        }
        let wanted = match (is_leaf, is_write) {
            (true, true) => ACCESSED | DIRTY,
            _ => ACCESSED,
        };
        if entry & wanted != wanted {
            if !sets_bits {
                return Err(fault(0));
            }
            // Tables in read-only memory keep their bits.
            let _ignored = memory.write64(slot, entry | wanted);
        }
        if is_leaf {
            let page = 1 << shift;
            let is_dirty = (entry | wanted) & DIRTY != 0;
            let may_write = !checks_writes || rights & WRITABLE != 0;
            return Ok(Translation {
                address: entry & ADDRESS & !(page - 1) | address & (page - 1),
                is_writable: is_dirty && may_write,
                page,
            });
        }
        table = entry & ADDRESS;
    }
    Err(fault(0))
}
