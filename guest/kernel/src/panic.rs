//! The last word: what went wrong, as a record, and the end of the machine.

use crate::cpu::{out32, out8, pause, ring, Global};
use crate::{console, xen};
use core::arch::asm;
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use trapline_abi::frame::MAX_TEXT;
use trapline_abi::job::End;
use trapline_abi::platform::{EXIT, EXIT_PANIC, KEYBOARD_CONTROLLER, RESET};
use trapline_abi::Record;

/// Text of a record, cut off where the record ends.
struct Message {
    bytes: [u8; MAX_TEXT],
    used: usize,
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            let room = &mut self.bytes[self.used..];
            if room.len() < character.len_utf8() {
                return Err(fmt::Error);
            }
            self.used += character.encode_utf8(room).len();
        }
        Ok(())
    }
}

/// Says `what` as the reason why the machine ends, and ends it.
pub fn give_up(what: fmt::Arguments<'_>) -> ! {
    let mut message = Message {
        bytes: [0; MAX_TEXT],
        used: 0,
    };
    // A message that is too long is said as far as it goes.
    let _ = message.write_fmt(what);
    let text = core::str::from_utf8(&message.bytes[..message.used]).unwrap_or_default();
    console::say(&Record::Panic { message: text });
    end(EXIT_PANIC)
}

#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    match info.location() {
        Some(at) => give_up(format_args!(
            "{} ({}:{})",
            info.message(),
            at.file(),
            at.line()
        )),
        None => give_up(format_args!("{}", info.message())),
    }
}

/// Pauses between asking a machine to end and forcing it: milliseconds at least.
const PATIENCE: u32 = 1 << 20;

/// The same where nobody would take force amiss: enough for a VMM that ends in
/// another thread.
const MOMENT: u32 = 1 << 10;

static END: Global<End> = Global::new(End::Port);

/// Chooses how the machine will be ended.
pub fn end_by(end: End) {
    // SAFETY: a reference for this assignment only.
    unsafe { *END.get() = end };
}

/// Ends the machine with `status`, if it can be told, and where nobody heeds that
/// by a triple fault; a machine at ring 3 has no other way than to wait to be
/// ended.
pub fn end(status: u32) -> ! {
    // SAFETY: copied at once.
    let patience = match unsafe { *END.get() } {
        // Some machines stop a moment after the write, and would take a fault for
        // the reason.
        End::Port => {
            out32(EXIT, status);
            PATIENCE
        }
        End::Reset => {
            out8(KEYBOARD_CONTROLLER, RESET);
            MOMENT
        }
        End::Xen => {
            console::finish();
            xen::shut_down();
            MOMENT
        }
        End::XenMachine => {
            xen::restart_machine();
            MOMENT
        }
    };
    for _ in 0..patience {
        pause();
    }
    fault_three_times();
    loop {
        pause();
    }
}

/// Ends a machine at ring 0 the hard way; at ring 3 the tables cannot be changed,
/// and this does nothing.
pub fn fault_three_times() {
    if ring() == 0 {
        let no_table = [0u16; 5];
        // SAFETY: the machine shall end: with no interrupt table the breakpoint
        // faults three times over.
        unsafe { asm!("lidt [{0}]", "int3", in(reg) &no_table) };
    }
}

/// What the processor, and vectors.s, push on an exception.
#[repr(C)]
struct Frame {
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
}

/// An exception that nobody expected; called by vectors.s.
#[no_mangle]
extern "C" fn trapline_exception(frame: &Frame) -> ! {
    let Frame {
        vector,
        error,
        rip,
        rsp,
        ..
    } = *frame;
    let name = NAMES
        .get(vector as usize)
        .unwrap_or(&"interrupt without a handler");
    if vector != PAGE_FAULT || ring() != 0 {
        give_up(format_args!(
            "{name} (vector {vector}, error {error:#x}) at {rip:#x}, stack {rsp:#x}"
        ));
    }
    let address: u64;
    // SAFETY: reads a control register, at ring 0.
    unsafe { asm!("mov {0}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    give_up(format_args!(
        "{name} (vector {vector}, error {error:#x}) at {rip:#x}, stack {rsp:#x}, address {address:#x}"
    ))
}

const PAGE_FAULT: u64 = 14;

/// Names of the exceptions (AMD64 Architecture Programmer's Manual volume 2,
/// table 8-1).
const NAMES: [&str; 22] = [
    "divide error",
    "debug exception",
    "non-maskable interrupt",
    "breakpoint",
    "overflow",
    "bound range exceeded",
    "invalid opcode",
    "device not available",
    "double fault",
    "coprocessor segment overrun",
    "invalid task state",
    "segment not present",
    "stack fault",
    "general protection fault",
    "page fault",
    "reserved exception",
    "floating point error",
    "alignment check",
    "machine check",
    "SIMD floating point error",
    "reserved exception",
    "control protection fault",
];
