//! Panics and the end of the machine.

use crate::cpu::{out32, out8, pause, ring, Global};
use crate::{acpi, console, process, xen};
use core::arch::asm;
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use trapline_abi::frame::MAX_TEXT;
use trapline_abi::job::Shutdown;
use trapline_abi::platform::{EXIT, EXIT_PANIC, KEYBOARD_CONTROLLER, RESET};
use trapline_abi::Record;

/// Text of a record, truncated to its maximum length.
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

/// Sends `reason` as a panic record, and ends the machine.
pub fn give_up(reason: fmt::Arguments<'_>) -> ! {
    let mut message = Message {
        bytes: [0; MAX_TEXT],
        used: 0,
    };
    // A message that is too long is truncated.
    let _ = message.write_fmt(reason);
    let text = core::str::from_utf8(&message.bytes[..message.used]).unwrap_or_default();
    console::send(&Record::Panic { message: text });
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

/// Pauses between a shutdown request and the triple fault: milliseconds at least.
const LONG_WAIT: u32 = 1 << 20;

/// The same for VMMs that accept a triple fault: enough for a VMM that ends in another thread.
const SHORT_WAIT: u32 = 1 << 10;

static SHUTDOWN: Global<Shutdown> = Global::new(Shutdown::Port);

/// Sets the shutdown method.
pub fn set_shutdown(shutdown: Shutdown) {
    // SAFETY: a reference for this assignment only.
    unsafe { *SHUTDOWN.get() = shutdown };
}

/// Ends the machine, with `status` if the method supports it. If the machine does not end, causes a
/// triple fault; at ring 3, where that is impossible, loops forever.
pub fn end(status: u32) -> ! {
    // SAFETY: copied at once.
    let wait = match unsafe { *SHUTDOWN.get() } {
        // Some machines end a while after the write, and would report a triple fault as the reason.
        Shutdown::Port => {
            out32(EXIT, status);
            LONG_WAIT
        }
        Shutdown::PowerOff if acpi::power_off() => LONG_WAIT,
        Shutdown::PowerOff | Shutdown::Reset => {
            out8(KEYBOARD_CONTROLLER, RESET);
            SHORT_WAIT
        }
        Shutdown::Xen => {
            console::finish();
            xen::shut_down();
            SHORT_WAIT
        }
        Shutdown::XenMachine => {
            xen::restart_machine();
            SHORT_WAIT
        }
    };
    for _ in 0..wait {
        pause();
    }
    triple_fault();
    loop {
        pause();
    }
}

/// Causes a triple fault at ring 0. At ring 3, where the tables cannot be changed, does nothing.
pub fn triple_fault() {
    if ring() == 0 {
        let no_table = [0u16; 5];
        // SAFETY: the machine is to end: without an interrupt table the breakpoint causes a triple
        // fault.
        unsafe { asm!("lidt [{0}]", "int3", in(reg) &no_table) };
    }
}

/// Stack frame of an exception, as pushed by the CPU and vectors.s.
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

/// Ends the program that caused an exception, or reports it. Called by vectors.s.
#[no_mangle]
extern "C" fn trapline_exception(frame: &Frame) -> ! {
    let Frame {
        vector,
        error,
        rip,
        cs,
        rsp,
        ..
    } = *frame;
    if cs & 3 != 0 && !ABORTS.contains(&vector) {
        process::end_on_exception(vector, rsp);
    }
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

/// Exceptions that no program causes: non-maskable interrupt, double fault, machine check.
const ABORTS: [u64; 3] = [2, 8, 18];

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
