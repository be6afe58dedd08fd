//! Service of entropy devices.

use crate::virtio::Slot;
use trapline_monitor::virtio::Entropy;

/// Serves the device in `slot`, which [waits for notifications](Slot::await_notifications), until the process ends.
pub fn serve(slot: &Slot<Entropy>) -> ! {
    loop {
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
