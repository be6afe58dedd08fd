//! Devices of the machine, at ports.

use super::port::PortAccess;
use std::arch::asm;
use std::io;
use trapline_abi::platform::{
    DEBUG_CONSOLE, EXIT, FW_CFG, KEYBOARD_CONTROLLER, PAUSE, PAUSE_NOW, RESET,
};

/// Turns of an empty loop in which the machine has to end: half a minute on the instruction clock.
const EXIT_WAIT: u64 = 10_000_000_000;

/// Item of the firmware configuration device with its signature.
const SIGNATURE: u16 = 0;

/// Checks that the kernel allows access to the ports.
///
/// # Errors
/// It refuses.
pub fn check() -> io::Result<()> {
    PortAccess::request(DEBUG_CONSOLE, 1).map(drop)
}

/// Writes frames.
pub fn write(bytes: &[u8]) {
    let Ok(_access) = PortAccess::request(DEBUG_CONSOLE, 1) else {
        return;
    };
    // SAFETY: reads `bytes` and writes them to a port that the process may use,
    // with the direction flag clear as the calling convention has it.
    unsafe {
        asm!(
            "rep outsb",
            inout("rsi") bytes.as_ptr() => _,
            inout("rcx") bytes.len() => _,
            in("dx") DEBUG_CONSOLE,
            options(nostack, readonly, preserves_flags),
        );
    }
}

/// Pauses the machine until the lab resumes it, possibly in another process from a snapshot.
pub fn pause() {
    let Ok(_access) = PortAccess::request(PAUSE, 1) else {
        return;
    };
    // SAFETY: access was requested; registers and memory are unchanged when the machine resumes.
    unsafe { asm!("out dx, al", in("dx") PAUSE, in("al") PAUSE_NOW, options(nostack, nomem)) };
}

/// Selects an item of the firmware configuration device, from its beginning.
pub fn select(item: u16) {
    let Ok(_access) = PortAccess::request(FW_CFG, 2) else {
        return;
    };
    // SAFETY: access was requested; it only sets a position.
    unsafe { asm!("out dx, ax", in("dx") FW_CFG, in("ax") item, options(nostack, nomem)) };
}

/// Reads the next bytes of the selected item, zeros after its end.
pub fn read(bytes: &mut [u8]) {
    let Ok(_access) = PortAccess::request(FW_CFG, 2) else {
        return;
    };
    // SAFETY: writes as many bytes as `bytes` has, from a port that the process
    // may use, with the direction flag clear as the calling convention has it.
    unsafe {
        asm!(
            "rep insb",
            inout("rdi") bytes.as_mut_ptr() => _,
            inout("rcx") bytes.len() => _,
            in("dx") FW_CFG + 1,
            options(nostack, preserves_flags),
        );
    }
}

/// Returns true if the machine has no devices of QEMU.
fn is_without_exit() -> bool {
    let mut signature = [0; 4];
    select(SIGNATURE);
    read(&mut signature);
    signature != *b"QEMU"
}

/// Resets the CPU, which ends a machine without an exit device.
fn reset() {
    if let Ok(_access) = PortAccess::request(KEYBOARD_CONTROLLER, 1) {
        // SAFETY: a port that the process may use, and that is no longer used;
        // the machine ends here.
        unsafe {
            asm!("out dx, al", in("dx") KEYBOARD_CONTROLLER, in("al") RESET, options(nostack, nomem));
        }
    }
}

/// Ends the machine with `code`, see [`EXIT`].
pub fn end(code: u32) -> ! {
    let _access = PortAccess::request(EXIT, 4);
    // SAFETY: a port that the process may use, as it could when it began; the machine
    // stops here.
    unsafe { asm!("out dx, eax", in("dx") EXIT, in("eax") code, options(nostack, nomem)) };
    if is_without_exit() {
        reset();
    }
    // QEMU 10 stops later than QEMU 7, and a second code would replace the first. A machine
    // without an exit device ends with its init, in a kernel panic.
    for _ in 0..EXIT_WAIT {
        std::hint::spin_loop();
    }
    std::process::exit(1)
}
