//! Address spaces of processes.
//!
//! The low 512 GiB are the kernel's, equal in all processes: programs can read the code of the image
//! there and nothing else. Programs own one GiB above. The page tables are the only record of what
//! a program may access. Its own memory is anonymous: absent until the first access, then the page of
//! zeros or a frame. Frames that are shared after a fork, and the page of zeros, are read-only and
//! are replaced on the first write.
//!
//! Functions with an unused type parameter are compiled once for each ring of the kernel, so that each copy has one
//! caller and is inlined there.
#![allow(clippy::extra_unused_type_parameters)]

use super::pool::Pool;
use crate::memory::entry::{
    index, Table, ACCESSED, ADDRESS, DIRTY, ENTRIES, PRESENT, REACH, TABLE, USER, WRITABLE,
};
use crate::memory::FRAME;
use core::ops::Range;
use trapline_abi::platform::PROGRAM_PAGES;

/// Software bits. The entry has a reference to a frame of the pool.
const COUNTED: u64 = 1 << 9;
/// The program may write, after a fault if the entry is not writable.
const MAY_WRITE: u64 = 1 << 10;
/// Memory of the program, present or not.
const ANONYMOUS: u64 = 1 << 11;

/// Read-only page. Accessed and dirty bits are set, so that the CPU does not write the entry.
const READABLE: u64 = PRESENT | USER | ACCESSED;
const PRIVATE: u64 = READABLE | WRITABLE | DIRTY | COUNTED | MAY_WRITE | ANONYMOUS;

/// Addresses of programs: the second entry of a top-level table, and one table of level 2.
pub const PROGRAM: Range<u64> = 1 << 39..(1 << 39) + (1 << 30);

/// Page of an executed program.
pub const CODE: u64 = PROGRAM_PAGES[0];
const _: () = assert!(CODE == PROGRAM.start + FRAME);

/// Stack of a program. The pages below are absent.
pub const STACK: Range<u64> = PROGRAM.start + REACH - 64 * 1024..PROGRAM.start + REACH;

/// Addresses of allocated memory and mapped pages.
pub const HEAP: Range<u64> = STACK.end..PROGRAM.end;

/// Access of programs to a page of the first 2 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelPage {
    /// Programs can read it.
    Readable,
    /// Only the kernel can access it.
    Private,
    /// Absent.
    Guard,
}

/// Builds the kernel's part of all address spaces from its own tables. Returns the entry of the
/// top-level table; `None` if the pool is exhausted. A part that is not `protected` can be accessed at
/// ring 3, except for guard pages.
///
/// # Safety
/// The tables of `kernel` are identity-mapped, and map the first 4 GiB, the first 2 MiB in small pages.
pub unsafe fn kernel_part(
    kernel: *const Table,
    protected: bool,
    access: impl Fn(u64) -> KernelPage,
    pool: &mut Pool,
) -> Option<u64> {
    let user = if protected { USER } else { 0 };
    let upper = pool.take_zeroed()?;
    let [directory, low] = [pool.take()?, pool.take()?];
    // SAFETY: by contract these tables exist; the new ones are frames of the pool.
    unsafe {
        let kernel_upper = table((*kernel)[0]);
        let kernel_directory = table((*kernel_upper)[0]);
        let kernel_low = table((*kernel_directory)[0]);
        for index in 0..4 {
            (*table(upper))[index] = (*kernel_upper)[index] & !user;
        }
        for index in 0..ENTRIES {
            (*table(directory))[index] = (*kernel_directory)[index] & !user;
            let access = access(index as u64 * FRAME);
            (*table(low))[index] = small_page((*kernel_low)[index], access, user);
        }
        (*table(directory))[0] = low | TABLE;
        (*table(upper))[0] = directory | TABLE;
    }
    Some(upper | TABLE)
}

/// Returns the entry of a page of the first 2 MiB from that of the kernel's own tables. A private page does not have the
/// bits of `user`.
pub fn small_page(entry: u64, access: KernelPage, user: u64) -> u64 {
    match access {
        KernelPage::Readable => (entry | USER) & !WRITABLE,
        KernelPage::Private => entry & !user,
        KernelPage::Guard => 0,
    }
}

/// Returns the table that an entry points to.
pub fn table(entry: u64) -> *mut Table {
    (entry & ADDRESS) as *mut Table
}

/// Address space of one process. [`Self::free`] releases its frames.
pub struct AddressSpace {
    top: u64,
    /// Table of level 1, whose entries point to the lowest tables.
    directory: *mut Table,
    /// End of the used part of the heap.
    heap_end: u64,
}

impl AddressSpace {
    /// Creates an address space with this [`kernel_part`] and an empty stack; `None` if the pool is
    /// exhausted.
    pub fn new(kernel_part: u64, pool: &mut Pool) -> Option<Self> {
        let mut space = Self::empty(kernel_part, pool)?;
        match space.reserve::<()>(STACK, pool) {
            Some(()) => Some(space),
            None => {
                space.free(pool);
                None
            }
        }
    }

    fn empty(kernel_part: u64, pool: &mut Pool) -> Option<Self> {
        if pool.free_count() < 3 {
            return None;
        }
        let frames = [
            pool.take_zeroed()?,
            pool.take_zeroed()?,
            pool.take_zeroed()?,
        ];
        let [top, upper, directory] = frames;
        // SAFETY: frames of the pool, which this space owns.
        unsafe {
            (*table(top))[index(0, 3)] = kernel_part;
            (*table(top))[index(PROGRAM.start, 3)] = upper | TABLE;
            (*table(upper))[index(PROGRAM.start, 2)] = directory | TABLE;
        }
        Some(Self {
            top,
            directory: table(directory),
            heap_end: HEAP.start,
        })
    }

    /// Returns the address of the top-level table, for CR3.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Returns the entry of a program's address; `None` if there is no table for it.
    fn find(&mut self, address: u64) -> Option<&mut u64> {
        if !PROGRAM.contains(&address) {
            return None;
        }
        // SAFETY: the directory and the tables that it points to belong to this space.
        unsafe {
            let lowest = (*self.directory)[index(address, 1)];
            (lowest != 0).then(|| &mut (*table(lowest))[index(address, 0)])
        }
    }

    /// Returns the entry of a program's address, with a table for it.
    fn find_or_create(&mut self, address: u64, pool: &mut Pool) -> Option<&mut u64> {
        let at = index(address, 1);
        // SAFETY: the directory belongs to this space.
        unsafe {
            if (*self.directory)[at] == 0 {
                (*self.directory)[at] = pool.take_zeroed()? | TABLE;
            }
        }
        self.find(address)
    }

    /// Makes the pages of `range` anonymous and absent.
    fn reserve<R>(&mut self, range: Range<u64>, pool: &mut Pool) -> Option<()> {
        for page in range.step_by(FRAME as usize) {
            *self.find_or_create(page, pool)? = ANONYMOUS | MAY_WRITE;
        }
        Some(())
    }

    /// Allocates `bytes` of zeros, without frames; `None` if addresses or frames are exhausted.
    pub fn allocate<R>(&mut self, bytes: u64, pool: &mut Pool) -> Option<u64> {
        let range = self.next_range(bytes)?;
        self.heap_end = range.end;
        let start = range.start;
        if self.reserve::<R>(range.clone(), pool).is_none() {
            self.release(range, pool);
            return None;
        }
        Some(start)
    }

    fn next_range(&self, bytes: u64) -> Option<Range<u64>> {
        let length = bytes.checked_next_multiple_of(FRAME)?.max(FRAME);
        let end = self.heap_end.checked_add(length)?;
        (end <= HEAP.end).then_some(self.heap_end..end)
    }

    /// Maps `frames`, which stay the caller's, read-only.
    pub fn map<R>(&mut self, frames: &[u64], pool: &mut Pool) -> Option<u64> {
        let range = self.next_range(frames.len() as u64 * FRAME)?;
        self.heap_end = range.end;
        let start = range.start;
        for (page, frame) in range.clone().step_by(FRAME as usize).zip(frames) {
            match self.find_or_create(page, pool) {
                Some(entry) => *entry = frame | READABLE,
                None => {
                    self.release(range, pool);
                    return None;
                }
            }
        }
        Some(start)
    }

    /// Maps `frame`, which stays the caller's, as the page of the executed program.
    pub fn map_code(&mut self, frame: u64, pool: &mut Pool) -> Option<()> {
        *self.find_or_create(CODE, pool)? = frame | READABLE;
        Some(())
    }

    /// Unmaps the pages of `range`. The caller flushes the TLB. The addresses are used again if
    /// they are the last of the heap.
    pub fn release(&mut self, range: Range<u64>, pool: &mut Pool) {
        for page in range.clone().step_by(FRAME as usize) {
            if let Some(entry) = self.find(page) {
                release_entry(core::mem::take(entry), pool);
            }
        }
        if range.end == self.heap_end {
            self.heap_end = range.start;
        }
    }

    /// Checks that a program may unmap or protect the `length` bytes at `start`: whole pages of the
    /// used part of the heap.
    pub fn heap_range(&self, start: u64, length: u64) -> Option<Range<u64>> {
        let end = start.checked_add(length)?;
        let is_heap = start >= HEAP.start && end <= self.heap_end && start < end;
        (is_heap && (start | length).is_multiple_of(FRAME)).then_some(start..end)
    }

    /// Makes the page at `address` writable or read-only. The caller flushes its translation.
    pub fn protect(&mut self, address: u64, writable: bool, pool: &Pool) -> Option<()> {
        let entry = self.find(address)?;
        if *entry & ANONYMOUS == 0 {
            return None;
        }
        let is_private = *entry & COUNTED != 0 && !pool.is_shared(*entry & ADDRESS);
        *entry = match writable {
            true if is_private => *entry | PRIVATE,
            true => *entry | MAY_WRITE,
            false => *entry & !(MAY_WRITE | WRITABLE),
        };
        Some(())
    }

    /// Maps or copies the page at `address` after a fault. `zeros` is the page of zeros. Returns
    /// `None` if the program may not access it or the pool is exhausted.
    pub fn fault(&mut self, address: u64, write: bool, zeros: u64, pool: &mut Pool) -> Option<()> {
        let entry = self.find(address)?;
        *entry = match (*entry & PRESENT != 0, write) {
            (_, true) if *entry & MAY_WRITE != 0 => make_private(*entry, pool)?,
            (false, false) if *entry & ANONYMOUS != 0 => zeros | READABLE | *entry,
            _ => return None,
        };
        Some(())
    }

    /// Returns the identity-mapped address of a byte that the program may access, and whether its page was mapped
    /// or copied for that, as by [`Self::fault`]. The caller flushes the translation then.
    pub fn translate(
        &mut self,
        address: u64,
        write: bool,
        zeros: u64,
        pool: &mut Pool,
    ) -> Option<(u64, bool)> {
        let needed = if write { PRESENT | WRITABLE } else { PRESENT };
        let mut entry = *self.find(address)?;
        let is_absent = entry & needed != needed;
        if is_absent {
            self.fault(address, write, zeros, pool)?;
            entry = *self.find(address)?;
        }
        Some(((entry & ADDRESS) + address % FRAME, is_absent))
    }

    /// Creates the address space of a forked child. Writable pages become read-only in both. The
    /// caller flushes the TLB. `None` if the pool is exhausted.
    pub fn copy<R>(&mut self, pool: &mut Pool) -> Option<Self> {
        // SAFETY: the top-level table belongs to this space.
        let kernel_part = unsafe { (*table(self.top))[0] };
        let mut child = Self::empty(kernel_part, pool)?;
        child.heap_end = self.heap_end;
        for at in 0..ENTRIES {
            // SAFETY: the directory and the tables that it points to belong to this space.
            let lowest = unsafe { (*self.directory)[at] };
            if lowest == 0 {
                continue;
            }
            let Some(copy) = pool.take() else {
                child.free(pool);
                return None;
            };
            // SAFETY: as above; the copy and the child's directory belong to the child.
            unsafe {
                share(&mut *table(lowest), &mut *table(copy), pool);
                (*child.directory)[at] = copy | TABLE;
            }
        }
        Some(child)
    }

    /// Releases all frames. The space is not in CR3.
    pub fn free(self, pool: &mut Pool) {
        // SAFETY: the tables belong to this space, which ends here.
        unsafe {
            for lowest in (*self.directory).iter().filter(|entry| **entry != 0) {
                for entry in &*table(*lowest) {
                    release_entry(*entry, pool);
                }
                pool.release(lowest & ADDRESS);
            }
            pool.release(self.directory as u64);
            pool.release((*table(self.top))[index(PROGRAM.start, 3)] & ADDRESS);
        }
        pool.release(self.top);
    }
}

/// Returns a writable entry with a frame of its own for the content of `entry`.
fn make_private(entry: u64, pool: &mut Pool) -> Option<u64> {
    let frame = entry & ADDRESS;
    if entry & COUNTED == 0 {
        return Some(pool.take_zeroed()? | PRIVATE);
    }
    if !pool.is_shared(frame) {
        return Some(frame | PRIVATE);
    }
    let copy = pool.take_copy(frame)?;
    pool.release(frame);
    Some(copy | PRIVATE)
}

/// Copies a table. Its writable pages become read-only.
fn share(from: &mut Table, to: &mut Table, pool: &mut Pool) {
    for (from, to) in from.iter_mut().zip(to) {
        if *from & COUNTED != 0 {
            pool.share(*from & ADDRESS);
            *from &= !WRITABLE;
        }
        *to = *from;
    }
}

fn release_entry(entry: u64, pool: &mut Pool) {
    if entry & COUNTED != 0 {
        pool.release(entry & ADDRESS);
    }
}

#[cfg(test)]
mod tests;
