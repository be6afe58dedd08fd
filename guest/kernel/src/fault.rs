//! Misbehaviour on request, so that VMM and lab are tested with a real guest that
//! does what guests under development do.

use crate::console;
use crate::interrupts::halt;
use crate::panic::fault_three_times;
use core::arch::asm;
use trapline_abi::frame::SYNC;
use trapline_abi::job::Fault;

/// Does what `fault` says; returns where the guest goes on afterwards.
pub fn misbehave(fault: Fault) {
    match fault {
        Fault::Panic => panic!("this guest was asked to panic"),
        Fault::Hang => hang(),
        Fault::Sleep => sleep(),
        Fault::Triple => {
            fault_three_times();
            panic!("a triple fault needs ring 0");
        }
        Fault::Flood => loop {
            console::write(b"This guest was asked to flood its console. ");
        },
        Fault::Garble => garble(),
    }
}

/// Without `pause`, at which many hypervisors take over: what hangs is this guest
/// and nobody else.
fn hang() -> ! {
    loop {
        // SAFETY: no instruction at all; it only keeps the loop from being taken for
        // one that cannot be.
        unsafe { asm!("", options(nomem, nostack, preserves_flags)) };
    }
}

/// No interrupt is set up that would be waited for.
fn sleep() -> ! {
    loop {
        halt(|| 0, 0);
    }
}

/// Beginnings of frames with every length and kind, none of them complete, and
/// bytes that are no text.
fn garble() {
    for byte in 0..=u8::MAX {
        console::write(&SYNC);
        console::write(&[byte, byte, byte & 3, byte ^ 0x5a, !byte]);
    }
}
