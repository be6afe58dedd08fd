//! The machine's ports: one takes bytes for the lab, one pauses the machine, one
//! ends it, and two give what it has to do.

use std::arch::asm;
use std::io;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::platform::{
    DEBUG_CONSOLE, EXIT, FW_CFG, KEYBOARD_CONTROLLER, PAUSE, PAUSE_NOW, RESET,
};
use trapline_abi::Record;

/// Turns of an empty loop for which to wait for the machine to end: half a minute
/// where instructions are counted.
const PATIENCE: u64 = 10_000_000_000;

/// The item of the firmware configuration device that says who made it.
const SIGNATURE: u16 = 0;

/// The right to use the ports, which the process keeps for its life.
pub struct Port(());

impl Port {
    /// Asks the kernel for the ports.
    pub fn open() -> io::Result<Self> {
        for (port, length) in [(DEBUG_CONSOLE, 1), (PAUSE, 1), (FW_CFG, 2), (EXIT, 4)] {
            // SAFETY: takes numbers only. What is then written to these ports
            // reaches the devices that the lab gave the machine for this.
            if unsafe { libc::ioperm(port.into(), length, 1) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self(()))
    }

    /// The ports, which `open` has opened before.
    pub fn opened() -> Self {
        Self(())
    }

    /// Says `record`, stamped `at` ticks.
    pub fn say(&mut self, record: &Record<'_>, at: u64) {
        let mut frame = [0; MAX_FRAME];
        // Texts are clipped and relayed pieces short: every record fits.
        if let Ok(length) = encode(record, at, &mut frame) {
            self.write(&frame[..length]);
        }
    }

    /// Says bytes that are frames already.
    pub fn write(&mut self, bytes: &[u8]) {
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

    /// Stops the machine here. It goes on when the lab wants it to, in this very
    /// process or in another that was given the machine's state.
    pub fn pause(&mut self) {
        // SAFETY: a port that the process may use; registers and memory are the
        // same when the machine goes on.
        unsafe { asm!("out dx, al", in("dx") PAUSE, in("al") PAUSE_NOW, options(nostack, nomem)) };
    }

    /// Selects an item of the firmware configuration device, from its beginning.
    pub fn select(&mut self, item: u16) {
        // SAFETY: a port that the process may use; it only moves a position.
        unsafe { asm!("out dx, ax", in("dx") FW_CFG, in("ax") item, options(nostack, nomem)) };
    }

    /// Reads on in the selected item. Behind its end there are zeros.
    pub fn read(&mut self, bytes: &mut [u8]) {
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

    /// Whether this is a machine without QEMU's devices.
    fn is_without_exit(&mut self) -> bool {
        let mut signature = [0; 4];
        self.select(SIGNATURE);
        self.read(&mut signature);
        signature != *b"QEMU"
    }

    /// Resets the processor; a machine without an exit device ends with that.
    fn reset(&mut self) {
        // SAFETY: takes numbers only; the port that may be used then is the
        // machine's keyboard controller, which nobody else uses any more.
        if unsafe { libc::ioperm(KEYBOARD_CONTROLLER.into(), 1, 1) } == 0 {
            // SAFETY: a port that the process may use; the machine ends here.
            unsafe {
                asm!("out dx, al", in("dx") KEYBOARD_CONTROLLER, in("al") RESET, options(nostack, nomem));
            }
        }
    }

    /// Ends the machine with `code`, see [`EXIT`].
    pub fn end(&mut self, code: u32) -> ! {
        // SAFETY: a port that the process may use; the machine stops here.
        unsafe { asm!("out dx, eax", in("dx") EXIT, in("eax") code, options(nostack, nomem)) };
        if self.is_without_exit() {
            self.reset();
        }
        // QEMU 10 stops a moment later, unlike QEMU 7, and a second code would
        // replace the first. A machine without the exit device ends with its
        // init, in a panic.
        for _ in 0..PATIENCE {
            std::hint::spin_loop();
        }
        std::process::exit(1)
    }
}
