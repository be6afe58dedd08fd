use super::super::pool::tests::with_pool;
use super::*;
use std::vec::Vec;

const ZEROS: u64 = 0x7000_0000;
const LARGE: u64 = 0xe7;

fn with_space(test: impl FnOnce(&mut AddressSpace, &mut Pool)) {
    with_pool(|pool| {
        let mut space = AddressSpace::new(0, pool).unwrap();
        test(&mut space, pool);
        space.free(pool);
    });
}

/// Writes or reads a word as the kernel does for a program.
fn word(space: &mut AddressSpace, address: u64, write: Option<u64>, pool: &mut Pool) -> u64 {
    let at = space.translate(address, write.is_some(), ZEROS, pool);
    let at = at.map(|(at, _)| at);
    let at = at.unwrap() as *mut u64;
    // SAFETY: a word of a frame of the pool, which is memory of the test.
    unsafe {
        if let Some(value) = write {
            at.write(value);
        }
        at.read()
    }
}

fn entry(space: &mut AddressSpace, address: u64) -> u64 {
    *space.find(address).unwrap()
}

#[test]
fn the_first_read_maps_zeros_and_the_first_write_a_frame() {
    with_space(|space, pool| {
        let start = space.allocate::<()>(3 * FRAME, pool).unwrap();
        assert_eq!(start, HEAP.start);
        let before = pool.free_count();
        assert_eq!(
            space.translate(start + 5, false, ZEROS, pool),
            Some((ZEROS + 5, true))
        );
        assert_eq!(pool.free_count(), before, "a read takes no frame");
        assert_eq!(entry(space, start) & WRITABLE, 0);
        for address in [start, start + FRAME] {
            assert_eq!(space.fault(address, true, ZEROS, pool), Some(()));
            assert_eq!(word(space, address, None, pool), 0);
            assert_ne!(entry(space, address) & WRITABLE, 0);
        }
        assert_eq!(pool.free_count(), before - 2);
        for outside in [
            start - STACK.end + STACK.start - FRAME,
            start + 3 * FRAME,
            0,
            u64::MAX,
        ] {
            assert_eq!(
                space.fault(outside, false, ZEROS, pool),
                None,
                "{outside:#x}"
            );
        }
    });
}

#[test]
fn a_fork_shares_pages_until_a_write() {
    with_space(|space, pool| {
        let start = space.allocate::<()>(2 * FRAME, pool).unwrap();
        word(space, start, Some(7), pool);
        let mut child = space.copy::<()>(pool).unwrap();
        assert_eq!(entry(space, start), entry(&mut child, start));
        assert_eq!(entry(space, start) & WRITABLE, 0);
        let frame = entry(space, start) & ADDRESS;
        assert!(pool.is_shared(frame));

        assert_eq!(word(space, start, Some(8), pool), 8);
        assert_ne!(entry(space, start) & ADDRESS, frame, "a copy");
        assert_eq!(word(&mut child, start, None, pool), 7);
        assert!(!pool.is_shared(frame));
        assert_eq!(word(&mut child, start, Some(9), pool), 9);
        assert_eq!(
            entry(&mut child, start) & ADDRESS,
            frame,
            "the last reference"
        );
        child.free(pool);
        assert_eq!(word(space, start, None, pool), 8);
    });
}

#[test]
fn protection_holds_for_present_absent_and_shared_pages() {
    with_space(|space, pool| {
        let start = space.allocate::<()>(2 * FRAME, pool).unwrap();
        word(space, start, Some(1), pool);
        for page in [start, start + FRAME] {
            space.protect(page, false, pool).unwrap();
            assert_eq!(space.fault(page, true, ZEROS, pool), None);
            assert!(space.translate(page, false, ZEROS, pool).is_some());
            space.protect(page, true, pool).unwrap();
        }
        assert_ne!(entry(space, start) & WRITABLE, 0, "a frame of its own");
        assert_eq!(
            entry(space, start + FRAME) & WRITABLE,
            0,
            "the page of zeros"
        );
        word(space, start + FRAME, Some(2), pool);

        space.protect(start, false, pool).unwrap();
        let child = space.copy::<()>(pool).unwrap();
        space.protect(start, true, pool).unwrap();
        assert_eq!(entry(space, start) & WRITABLE, 0, "shared");
        child.free(pool);
    });
}

#[test]
fn mapped_frames_stay_the_callers() {
    with_space(|space, pool| {
        let frames: Vec<u64> = (0..4).map(|_| pool.take().unwrap()).collect();
        let start = space.map::<()>(&frames, pool).unwrap();
        let third = start + 2 * FRAME;
        assert_eq!(
            space.translate(third, false, ZEROS, pool),
            Some((frames[2], false))
        );
        assert_eq!(space.translate(third, true, ZEROS, pool), None, "read-only");
        assert_eq!(space.protect(third, true, pool), None);
        let child = space.copy::<()>(pool).unwrap();
        child.free(pool);
        let free = pool.free_count();
        space.release(start..start + 4 * FRAME, pool);
        assert_eq!(pool.free_count(), free);
        assert_eq!(space.translate(start, false, ZEROS, pool), None);
        assert_eq!(
            space.map::<()>(&frames, pool),
            Some(start),
            "addresses are reused"
        );
        frames.iter().for_each(|frame| pool.release(*frame));
    });
}

#[test]
fn an_executed_program_can_be_read_only() {
    with_pool(|pool| {
        let program = pool.take().unwrap();
        let mut space = AddressSpace::new(0x1000 | TABLE, pool).unwrap();
        space.map_code(program, pool).unwrap();
        assert_eq!(
            space.translate(CODE, false, ZEROS, pool),
            Some((program, false))
        );
        assert_eq!(space.translate(CODE, true, ZEROS, pool), None);
        assert_eq!(space.heap_range(CODE, FRAME), None);
        // SAFETY: the top-level table of the space.
        let kernel_part = unsafe { (*table(space.top()))[0] };
        assert_eq!(kernel_part, 0x1000 | TABLE);
        space.free(pool);
        pool.release(program);
    });
}

#[test]
fn only_whole_pages_of_the_used_heap_can_be_released() {
    with_space(|space, pool| {
        let start = space.allocate::<()>(4 * FRAME, pool).unwrap();
        assert!(space.heap_range(start + FRAME, FRAME).is_some());
        for (from, length) in [
            (start, 5 * FRAME),
            (start, 0),
            (start + 8, FRAME),
            (start, FRAME - 8),
            (STACK.start, FRAME),
            (0x11_0000, FRAME),
            (start, u64::MAX - start + 1),
            (u64::MAX - 4095, FRAME),
        ] {
            assert_eq!(space.heap_range(from, length), None, "{from:#x}");
        }
        assert_eq!(space.allocate::<()>(u64::MAX, pool), None);
        assert_eq!(space.allocate::<()>(2 << 30, pool), None);
    });
}

/// Every number of free frames, until a fork succeeds.
#[test]
fn exhaustion_loses_no_frame() {
    with_space(|space, pool| {
        let start = space.allocate::<()>(600 * FRAME, pool).unwrap();
        word(space, start, Some(1), pool);
        let mut held: Vec<u64> = std::iter::from_fn(|| pool.take()).collect();
        let all = held.len();
        assert_eq!(space.fault(start + FRAME, true, ZEROS, pool), None);
        loop {
            let free = pool.free_count();
            if let Some(child) = space.copy::<()>(pool) {
                child.free(pool);
                break;
            }
            assert_eq!(pool.free_count(), free);
            pool.release(held.pop().unwrap());
        }
        assert_eq!(held.len() + pool.free_count(), all);
        assert_eq!(
            pool.free_count(),
            6,
            "three tables, and a copy of each of three"
        );
        held.into_iter().for_each(|frame| pool.release(frame));
    });
}

#[test]
fn programs_can_read_only_the_code_of_the_image() {
    with_pool(|pool| {
        let [top, upper, directory, low] = [(); 4].map(|()| pool.take_zeroed().unwrap());
        // SAFETY: frames of the pool.
        let kernel_part = unsafe {
            (*table(top))[0] = upper | TABLE;
            for at in 0..4 {
                (*table(upper))[at] = directory | TABLE;
            }
            for at in 0..ENTRIES as u64 {
                (*table(directory))[at as usize] = (at * REACH) | LARGE;
                (*table(low))[at as usize] = (at * FRAME) | TABLE;
            }
            (*table(directory))[0] = low | TABLE;
            let access = |page| match page / FRAME {
                3 => KernelPage::Readable,
                4 => KernelPage::Guard,
                _ => KernelPage::Private,
            };
            kernel_part(table(top), true, access, pool).unwrap()
        };
        // SAFETY: the entries of tables in frames of the pool.
        let first = |entry: u64, at: usize| unsafe { (*table(entry))[at] };
        let user = |entry: u64| entry & USER != 0;
        assert!(user(kernel_part) && user(first(kernel_part, 0)));
        assert!((1..4).all(|at| !user(first(kernel_part, at)) && first(kernel_part, at) != 0));
        let directory_of_space = first(kernel_part, 0);
        assert!((1..ENTRIES).all(|at| !user(first(directory_of_space, at))));
        let pages = first(directory_of_space, 0);
        for at in 0..ENTRIES {
            assert_eq!(user(first(pages, at)), at == 3);
            assert_eq!(first(pages, at) & WRITABLE == 0, at == 3 || at == 4);
        }
        assert_eq!(first(pages, 4), 0);
        for frame in [top, upper, directory, low, kernel_part & ADDRESS] {
            pool.release(frame);
        }
        pool.release(directory_of_space & ADDRESS);
        pool.release(pages & ADDRESS);
    });
}
