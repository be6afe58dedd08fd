//! Fault injection, to test VMM and lab with a misbehaving guest.

use crate::console;
use crate::interrupts::halt;
use crate::panic::triple_fault;
use crate::process;
use core::arch::asm;
use trapline_abi::frame::SYNC;
use trapline_abi::job::Fault;
use trapline_abi::Job;
use trapline_workloads::GuestInfo;

/// Injects `fault`. Returns if the guest continues afterwards; otherwise it reports before that it has started.
pub fn inject(fault: Fault, job: &Job, info: &GuestInfo) {
    if !matches!(fault, Fault::Garble | Fault::Programs) {
        console::send(&info.hello(job));
        console::finish();
    }
    match fault {
        Fault::Panic => panic!("this guest was asked to panic"),
        Fault::Hang => hang(),
        Fault::Sleep => sleep(),
        Fault::Triple => {
            triple_fault();
            panic!("a triple fault needs ring 0");
        }
        Fault::Flood => loop {
            console::write(b"This guest was asked to flood its console. ");
        },
        Fault::Garble => garble(),
        Fault::Programs => process::contain_programs(job),
    }
}

/// Loops without `pause`, at which many hypervisors intervene.
fn hang() -> ! {
    loop {
        // SAFETY: no instruction; it only keeps the compiler from removing the loop.
        unsafe { asm!("", options(nomem, nostack, preserves_flags)) };
    }
}

/// Halts without any interrupt enabled.
fn sleep() -> ! {
    loop {
        halt(|| 0, 0);
    }
}

/// Writes incomplete frames with every length and kind, and bytes that are not text.
fn garble() {
    for byte in 0..=u8::MAX {
        console::write(&SYNC);
        console::write(&[byte, byte, byte & 3, byte ^ 0x5a, !byte]);
    }
}
