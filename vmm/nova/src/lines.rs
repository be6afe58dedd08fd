//! Interrupt lines: requests of other threads and of devices for the local APIC of the vCPU, and for pins of the I/O APIC.

use crate::timer::wake;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use trapline_emulation::apic::VECTORS;
use trapline_interface::IrqLine;

/// Requested vectors, a bit each.
static REQUESTS: [AtomicU32; VECTORS / 32] = [const { AtomicU32::new(0) }; VECTORS / 32];

/// Edges at pins of the I/O APIC, a bit each.
static PINS: AtomicU32 = AtomicU32::new(0);

/// There is a line, which may end a halt.
static HAS_LINES: AtomicBool = AtomicBool::new(false);

/// Returns the line of a vector.
pub fn line(vector: u8) -> IrqLine {
    HAS_LINES.store(true, Ordering::SeqCst);
    IrqLine::new(move || {
        REQUESTS[usize::from(vector) / 32].fetch_or(1 << (vector % 32), Ordering::SeqCst);
        wake();
        Ok(())
    })
}

/// Returns the line of a pin, below 32.
pub fn pin(pin: u8) -> IrqLine {
    HAS_LINES.store(true, Ordering::SeqCst);
    IrqLine::new(move || {
        PINS.fetch_or(1 << (pin % 32), Ordering::SeqCst);
        wake();
        Ok(())
    })
}

/// Returns whether a line may end a halt.
pub fn exist() -> bool {
    HAS_LINES.load(Ordering::SeqCst)
}

/// Calls `request` with each requested vector, and clears the requests.
pub fn take_vectors(mut request: impl FnMut(u8)) {
    for (index, word) in REQUESTS.iter().enumerate() {
        take(word, |bit| request((index * 32) as u8 + bit));
    }
}

/// Calls `request` with each pin that had an edge, and clears the edges.
pub fn take_pins(request: impl FnMut(u8)) {
    take(&PINS, request);
}

fn take(word: &AtomicU32, mut request: impl FnMut(u8)) {
    let mut bits = word.swap(0, Ordering::SeqCst);
    while bits != 0 {
        request(bits.trailing_zeros() as u8);
        bits &= bits - 1;
    }
}
