//! Memory management.
//!
//! [`frames`] tracks free frames, [`tables`] maps them, [`space`] combines both to blocks, which the
//! workloads measure. [`zero`] zeroes frames. [`small`] is the kernel's own allocator, on top of blocks. Processes have a
//! run of frames without blocks, and page tables of their own (`process`).

pub mod entry;
mod frames;
#[cfg(trapline_image)]
mod small;
mod space;
mod tables;
mod zero;

pub use frames::FRAME;
#[cfg(trapline_image)]
pub use image::{
    add, allocate, allocate_guarded, allocate_zeroed, exchange, map_registers, map_window, release,
    take_last_frames, top_table, touch_image, zero_ahead,
};
#[cfg(trapline_image)]
pub use zero::Stores;

#[cfg(trapline_image)]
mod image {
    use super::entry::Table;
    use super::space::Space;
    use super::zero::Stores;
    use super::FRAME;
    use crate::cpu::Global;
    use core::arch::x86_64::__cpuid;
    use core::ops::Range;
    use core::ptr::NonNull;
    use core::sync::atomic::{AtomicU8, Ordering};
    use trapline_abi::platform::{HOTPLUG_BASE, HOTPLUG_SIZE};
    use trapline_workloads::Block;

    extern "C" {
        /// Top-level page table; see tables.s.
        static mut trapline_page_table: Table;
        /// Ends of the boot stack, of code and of data; see image.ld.
        static trapline_stack_start: u8;
        static trapline_code_start: u8;
        static trapline_code_end: u8;
        static trapline_image_end: u8;
    }

    /// Accesses every page of the image, so that the hypervisor maps them before anything is
    /// measured. Otherwise the figure of an operation would depend on the size of other code.
    pub fn touch_image() {
        let (stack, code) = (
            &raw const trapline_stack_start,
            &raw const trapline_code_start,
        );
        let (data, end) = (&raw const trapline_code_end, &raw const trapline_image_end);
        for page in (code as u64..data as u64).step_by(FRAME as usize) {
            // SAFETY: a page of code or constants.
            unsafe { (page as *const u8).read_volatile() };
        }
        let stack_and_data = (stack as u64..code as u64).chain(data as u64..end as u64);
        for page in stack_and_data.step_by(FRAME as usize) {
            // SAFETY: a page of stack or data, which the operation does not change.
            unsafe { AtomicU8::from_ptr(page as *mut u8) }.fetch_or(0, Ordering::Relaxed);
        }
    }

    static SPACE: Global<Space> = Global::new(Space::new());

    /// Adds a range of RAM. Called once, at boot.
    pub fn add(range: Range<u64>) {
        // SAFETY: the range is RAM above the image and below 4 GiB (boot.rs), and the command line
        // has been copied from it. tables.s identity-maps it and the tables; from here on only
        // this space changes them.
        unsafe { SPACE.get().open(&raw mut trapline_page_table, range) }
    }

    /// Identity-maps the window for hotplugged memory. Called once. Returns the entry of its first
    /// page; `None` if memory is exhausted.
    pub fn map_window() -> Option<*const u64> {
        // SAFETY: tables.s maps nothing above 4 GiB, blocks begin far above, and the window is never
        // used for blocks.
        unsafe { SPACE.get().map(HOTPLUG_BASE..HOTPLUG_BASE + HOTPLUG_SIZE) }
    }

    /// Most bytes of registers of a device that are mapped.
    const MOST_REGISTERS: u64 = 16 << 20;

    /// Maps registers of a device above the identity map. Returns their address; `None` if they are too many, beyond the
    /// physical addresses of the CPU, or memory is exhausted.
    pub fn map_registers(registers: Range<u64>) -> Option<u64> {
        // Leaf 0x80000008 exists on every CPU in 64-bit mode (Intel SDM volume 2, CPUID).
        let bits = (__cpuid(0x8000_0008).eax & 0xff).min(52);
        if registers.end > 1 << bits || registers.end - registers.start > MOST_REGISTERS {
            return None;
        }
        let pages = registers.start / FRAME * FRAME..registers.end.next_multiple_of(FRAME);
        // SAFETY: RAM above 4 GiB is not used, so nothing in the range is memory of this kernel.
        let mapped = unsafe { SPACE.get().map_registers(pages.clone()) }?;
        Some(mapped + (registers.start - pages.start))
    }

    /// Returns the top-level page table.
    pub fn top_table() -> *const Table {
        &raw const trapline_page_table
    }

    /// Allocates `bytes` of the last frames of RAM, which are identity-mapped. Returns the first.
    pub fn take_last_frames(bytes: u64) -> Option<u64> {
        // SAFETY: as in `allocate_after`.
        unsafe { SPACE.get() }.take_last(bytes)
    }

    /// Allocates a block of at least `bytes`; `None` if memory is exhausted.
    #[inline]
    pub fn allocate(bytes: usize) -> Option<Block> {
        allocate_after(bytes, 0)
    }

    /// Allocates a block after a guard page, for stacks.
    pub fn allocate_guarded(bytes: usize) -> Option<Block> {
        allocate_after(bytes, 1)
    }

    fn allocate_after(bytes: usize, guard: u64) -> Option<Block> {
        // SAFETY: `allocate` takes no other reference.
        block(unsafe { SPACE.get() }.allocate(bytes as u64, guard)?)
    }

    /// Allocates a block of at least `bytes` of zeros; `None` if memory is exhausted. Frames that were not zeroed
    /// ahead are zeroed with `stores`.
    #[inline]
    pub fn allocate_zeroed(bytes: usize, stores: Stores) -> Option<Block> {
        // SAFETY: as in `allocate_after`.
        block(unsafe { SPACE.get() }.allocate_zeroed(bytes as u64, stores)?)
    }

    /// Zeroes frames, until there are `bytes` for [`allocate_zeroed`]. Returns the number of bytes zeroed.
    pub fn zero_ahead(bytes: usize, stores: Stores) -> u64 {
        // SAFETY: as in `allocate_after`.
        unsafe { SPACE.get() }.zero_ahead(bytes.next_multiple_of(FRAME as usize) as u64, stores)
    }

    #[inline(always)]
    fn block(range: Range<u64>) -> Option<Block> {
        Some(Block {
            start: NonNull::new(range.start as *mut u8)?,
            length: (range.end - range.start) as usize,
        })
    }

    /// Exchanges the frames of two pages. TLBs may keep the old translations.
    ///
    /// # Safety
    /// The pages are of blocks that are not released. Other CPUs only read them.
    pub unsafe fn exchange(one: u64, other: u64) {
        // SAFETY: same contract; `exchange` takes no other reference.
        unsafe { SPACE.get().exchange(one, other) }
    }

    /// Releases a block.
    ///
    /// # Safety
    /// `block` was allocated here, is not released yet, and is no longer used.
    pub unsafe fn release(block: Block) {
        let start = block.start.as_ptr() as u64;
        // SAFETY: same contract.
        unsafe { SPACE.get().release(start..start + block.length as u64) }
    }
}
