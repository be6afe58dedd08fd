//! Allocator of the kernel, for `alloc`: power-of-two pieces, cut from blocks, with a free list per
//! size. Larger requests are blocks.

use super::{allocate, release};
use crate::cpu::Global;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use trapline_workloads::Block;

/// Order of the smallest piece, which has room for the link of a list.
const SMALLEST: u32 = 4;
/// Order of the largest piece.
const LARGEST: u32 = 11;
/// Bytes of the blocks that are divided into pieces.
const CUT: usize = 64 * 1024;

/// Linked list of free pieces of one size.
type List = *mut Piece;

struct Piece {
    next: List,
}

struct Small;

#[global_allocator]
static ALLOCATOR: Small = Small;

static LISTS: Global<[List; (LARGEST - SMALLEST + 1) as usize]> =
    Global::new([ptr::null_mut(); (LARGEST - SMALLEST + 1) as usize]);

/// Returns the order of the piece for `layout`; above [`LARGEST`] it is a block.
fn order(layout: &Layout) -> u32 {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST);
    bytes.next_power_of_two().trailing_zeros()
}

// SAFETY: pieces are powers of two cut from page-aligned blocks, so they are aligned to their size; a
// piece is either in a list or allocated.
unsafe impl GlobalAlloc for Small {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let order = order(&layout);
        if order > LARGEST {
            // A block is page-aligned.
            let block = allocate(layout.size()).filter(|_| layout.align() <= 4096);
            return block.map_or(ptr::null_mut(), |block| block.start.as_ptr());
        }
        // SAFETY: nothing called here allocates a piece.
        let list = unsafe { &mut LISTS.get()[(order - SMALLEST) as usize] };
        if list.is_null() {
            cut(list, 1 << order);
        }
        let piece = *list;
        if !piece.is_null() {
            // SAFETY: a piece in the list is free and holds the link.
            *list = unsafe { (*piece).next };
        }
        piece.cast()
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        let order = order(&layout);
        // SAFETY: by this method's contract `start` came from `alloc` with the same
        // layout, so it is a block, or a piece of this order's list.
        unsafe {
            if order > LARGEST {
                let length = layout.size().next_multiple_of(4096);
                let start = NonNull::new_unchecked(start);
                return release(Block { start, length });
            }
            let list = &mut LISTS.get()[(order - SMALLEST) as usize];
            let piece = start.cast::<Piece>();
            piece.write(Piece { next: *list });
            *list = piece;
        }
    }
}

/// Divides a block into pieces of `bytes`. If memory is exhausted, the list stays empty.
fn cut(list: &mut List, bytes: usize) {
    let Some(block) = allocate(CUT) else {
        return;
    };
    for at in (0..CUT).step_by(bytes) {
        let piece = block.start.as_ptr().wrapping_add(at).cast::<Piece>();
        // SAFETY: the piece is within the block, which is exclusive and page-aligned, and `bytes` is a
        // power of two.
        unsafe { piece.write(Piece { next: *list }) };
        *list = piece;
    }
}
