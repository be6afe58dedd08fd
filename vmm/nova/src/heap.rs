//! The heap: memory is handed out upwards, and only the last block is taken back. The monitor allocates at the
//! start and not at exits.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Heap of the program.
struct Heap {
    next: AtomicUsize,
    end: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap {
    next: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
};

/// Gives the heap its memory.
///
/// # Safety
/// The memory is mapped and used by nothing else.
pub unsafe fn set(start: usize, length: usize) {
    HEAP.next.store(start, Ordering::Relaxed);
    HEAP.end.store(start + length, Ordering::Relaxed);
}

// SAFETY: blocks do not overlap, are aligned and within the memory of `set`. Changes of `next` are atomic, because a
// thread may interrupt another.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let end = self.end.load(Ordering::Relaxed);
        let start = |next: usize| next.next_multiple_of(layout.align());
        let behind = |next| {
            start(next)
                .checked_add(layout.size())
                .filter(|it| *it <= end)
        };
        let taken = (self.next).fetch_update(Ordering::Relaxed, Ordering::Relaxed, behind);
        taken.map_or(core::ptr::null_mut(), |next| start(next) as *mut u8)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let (block, behind) = (block as usize, block as usize + layout.size());
        let order = Ordering::Relaxed;
        let _not_the_last = self.next.compare_exchange(behind, block, order, order);
    }
}
