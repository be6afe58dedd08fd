//! Page whose frame changes while all CPUs read it: TLB shootdown by interrupts (Black et al., Translation lookaside buffer
//! consistency: a software approach, 1989).

use crate::cpu::pause;
use crate::interrupts::send_invalidate;
use crate::memory::{self, FRAME};
use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use trapline_workloads::Reason;

/// Address of the page, after which one with the other frame is mapped; 0 before the first use. Read by start.s.
#[no_mangle]
static trapline_remapped_page: AtomicU64 = AtomicU64::new(0);

/// Number of invalidations on all CPUs so far, counted by start.s.
#[no_mangle]
static trapline_invalidations: AtomicU32 = AtomicU32::new(0);

/// Returns the first word of the page, which the first call allocates and which is never released.
///
/// # Errors
/// Memory is exhausted.
pub fn word() -> Result<&'static AtomicU64, Reason> {
    if trapline_remapped_page.load(SeqCst) == 0 {
        let block = memory::allocate(2 * FRAME as usize);
        let block = block.ok_or("not enough memory for two pages")?;
        trapline_remapped_page.store(block.start.as_ptr() as u64, SeqCst);
    }
    Ok(word_at(trapline_remapped_page.load(SeqCst)))
}

/// Exchanges the frames of the page and of the one behind it, which has `value`, and waits until this CPU and `others` have
/// invalidated the old translations. Called by the boot CPU, after [`word`].
pub fn remap(value: u64, others: Range<u32>) {
    let page = trapline_remapped_page.load(SeqCst);
    let spare = page + FRAME;
    word_at(spare).store(value, SeqCst);
    // SAFETY: two pages of one block; other CPUs read the first one only.
    unsafe { memory::exchange(page, spare) };
    for changed in [page, spare] {
        // SAFETY: the page is mapped; this is ring 0, which alone starts further CPUs.
        unsafe { asm!("invlpg [{}]", in(reg) changed, options(nostack, preserves_flags)) };
    }
    invalidate_on(others);
}

/// Waits until `others` have invalidated their translations of the page.
#[inline(always)]
pub fn invalidate_on(others: Range<u32>) {
    let all = invalidations().wrapping_add(others.len() as u32);
    others.for_each(send_invalidate);
    while invalidations() != all {
        pause();
    }
}

/// Returns the number of invalidations on other CPUs so far, modulo 2^32.
pub fn invalidations() -> u32 {
    trapline_invalidations.load(SeqCst)
}

fn word_at(page: u64) -> &'static AtomicU64 {
    // SAFETY: a page of a block that is never released, and is accessed by atomic operations only.
    unsafe { AtomicU64::from_ptr(page as *mut u64) }
}
