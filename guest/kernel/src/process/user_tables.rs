//! Page tables on which programs run if they are isolated from the kernel.
//!
//! There is one top-level table besides those of the processes. Its first entry maps what entry and exit need of
//! the kernel. The second is the program's: that of the process that runs, so that its pages have one set of tables.

use super::address_space::{small_page, table, KernelPage, PROGRAM};
use super::pool::Pool;
use crate::memory::entry::{index, Table, ADDRESS, ENTRIES, TABLE, USER};
use crate::memory::FRAME;

/// Builds tables that map only what `access` returns for the first 2 MiB, from the kernel's own tables. Returns the
/// address of the top-level table; `None` if the pool is exhausted.
///
/// # Safety
/// The tables of `kernel` are identity-mapped, and map the first 2 MiB in small pages.
pub unsafe fn create(
    kernel: *const Table,
    access: impl Fn(u64) -> KernelPage,
    pool: &mut Pool,
) -> Option<u64> {
    let [top, upper] = [pool.take_zeroed()?, pool.take_zeroed()?];
    let [directory, low] = [pool.take_zeroed()?, pool.take_zeroed()?];
    // SAFETY: by contract these tables exist; the new ones are frames of the pool.
    unsafe {
        let kernel_directory = table((*table((*kernel)[0]))[0]);
        let kernel_low = table((*kernel_directory)[0]);
        for index in 0..ENTRIES {
            let access = access(index as u64 * FRAME);
            (*table(low))[index] = small_page((*kernel_low)[index], access, USER);
        }
        (*table(directory))[0] = low | TABLE;
        (*table(upper))[0] = directory | TABLE;
        (*table(top))[0] = upper | TABLE;
    }
    Some(top)
}

/// Makes the program of the space whose top-level table is `space` that of `top`. The caller flushes the TLB.
///
/// # Safety
/// Both are top-level tables, and `top` is not in CR3.
pub unsafe fn set_program(top: u64, space: u64) {
    let at = index(PROGRAM.start, 3);
    // SAFETY: by contract.
    unsafe { (*table(top & ADDRESS))[at] = (*table(space))[at] };
}

#[cfg(test)]
mod tests {
    use super::super::address_space::AddressSpace;
    use super::super::pool::tests::with_pool;
    use super::*;
    use crate::memory::entry::WRITABLE;
    use std::vec::Vec;

    const CODE: u64 = 3 * FRAME;
    const ENTRY: u64 = 5 * FRAME;

    fn access(page: u64) -> KernelPage {
        match page {
            CODE => KernelPage::Readable,
            ENTRY => KernelPage::Private,
            _ => KernelPage::Guard,
        }
    }

    /// Returns all entries of a table that are not 0, with their places.
    fn used(entry: u64) -> Vec<(usize, u64)> {
        // SAFETY: a table in a frame of the pool.
        let entries = unsafe { &*table(entry) };
        let entries = entries.iter().copied().enumerate();
        entries.filter(|(_, entry)| *entry != 0).collect()
    }

    #[test]
    fn programs_map_only_code_and_entries_of_the_kernel() {
        with_pool(|pool| {
            let kernel = [(); 4].map(|()| pool.take_zeroed().unwrap());
            for pair in kernel.windows(2) {
                // SAFETY: frames of the pool.
                unsafe { (*table(pair[0])).fill(pair[1] | TABLE) };
            }
            for (entry, page) in (0..ENTRIES).zip((0..).step_by(FRAME as usize)) {
                // SAFETY: as above.
                unsafe { (*table(kernel[3]))[entry] = page | TABLE };
            }
            // SAFETY: tables in frames of the pool.
            let top = unsafe { create(table(kernel[0]), access, pool) }.unwrap();
            let space = AddressSpace::new(kernel[1] | TABLE, pool).unwrap();
            // SAFETY: as above.
            unsafe { set_program(top, space.top()) };

            let entries = used(top);
            assert_eq!(entries[1], used(space.top())[1], "the program");
            assert_eq!(entries.len(), 2);
            let mut frames = Vec::from([top]);
            let mut tables = entries[0].1;
            for _ in 0..2 {
                frames.push(tables & ADDRESS);
                let below = used(tables);
                assert_eq!((below.len(), below[0].0), (1, 0));
                tables = below[0].1;
            }
            let pages = [(3, CODE | TABLE & !WRITABLE), (5, ENTRY | TABLE & !USER)];
            assert_eq!(used(tables), pages);
            frames.push(tables & ADDRESS);
            space.free(pool);
            let all = frames.into_iter().chain(kernel);
            all.for_each(|frame| pool.release(frame));
        });
    }
}
