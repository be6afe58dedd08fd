//! Memory of a driver under test, as its device accesses it.

use std::alloc::{alloc_zeroed, dealloc, Layout};

/// Page-aligned memory.
pub struct Memory {
    pub start: *mut u8,
    layout: Layout,
}

impl Memory {
    pub fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, 4096).unwrap();
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        Self { start, layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// Reads a number of the driver's memory.
pub fn load<T>(address: u64) -> T {
    // SAFETY: the driver has given an address in its memory, which is the test's.
    unsafe { (address as *const T).read_volatile() }
}

/// Writes a number to the driver's memory.
pub fn store<T>(address: u64, value: T) {
    // SAFETY: as above.
    unsafe { (address as *mut T).write_volatile(value) };
}
