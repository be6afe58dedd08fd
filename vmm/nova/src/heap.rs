//! The heap: memory is handed out upwards, and only the last block is taken back. The monitor allocates at the
//! start and not at exits.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Heap of the program, which threads other than the main one and the handler do not use.
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

// SAFETY: blocks do not overlap, are aligned and within the memory of `set`. The main thread no longer runs when the
// handler does, so they do not race.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = self
            .next
            .load(Ordering::Relaxed)
            .next_multiple_of(layout.align());
        match start.checked_add(layout.size()) {
            Some(end) if end <= self.end.load(Ordering::Relaxed) => {
                self.next.store(end, Ordering::Relaxed);
                start as *mut u8
            }
            _ => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if block as usize + layout.size() == self.next.load(Ordering::Relaxed) {
            self.next.store(block as usize, Ordering::Relaxed);
        }
    }
}
