//! Service of entropy devices.

use crate::net::readable;
use crate::virtio::Slot;
use std::os::fd::AsRawFd;
use trapline_monitor::virtio::Entropy;

/// Serves the device in `slot` until the process ends.
pub fn serve(slot: &Slot<Entropy>) -> ! {
    loop {
        let mut bell = readable(slot.bell().as_raw_fd());
        // SAFETY: one request, as is passed.
        unsafe { libc::poll(&raw mut bell, 1, -1) };
        slot.take_notification();
        while fill_buffers(slot) {}
    }
}

/// Fills the waiting buffers. Returns true if more work is pending.
pub fn fill_buffers(slot: &Slot<Entropy>) -> bool {
    slot.serve(|_, rings, memory| {
        Entropy::serve(rings, memory, &mut |bytes| {
            fill(bytes);
            slot.counters.request(bytes.len(), 0);
        })
    })
}

/// Fills `bytes` with random numbers. Such short requests do not block.
fn fill(bytes: &mut [u8]) {
    // SAFETY: the slice has the length that is passed.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
}
