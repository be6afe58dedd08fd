//! The machine's ports: one takes bytes for the lab, one pauses the machine, one
//! ends it, and two give what it has to do.
//!
//! A process may use them no longer than it does: while it has any port, Linux looks at its
//! list of ports at each return to it and to every child of it, and 54 instructions would
//! stand in each exit of a VMM.

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

/// The machine's ports, which the kernel lets this process use.
pub struct Port(());

/// The right to use some ports, for as long as this lives.
pub struct Right {
    first: u16,
    count: u8,
}

impl Right {
    /// To `count` ports from `first` on.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn to(first: u16, count: u8) -> io::Result<Self> {
        // SAFETY: takes numbers only. What is then written to these ports
        // reaches the devices that the lab gave the machine for this.
        match unsafe { libc::ioperm(first.into(), count.into(), 1) } {
            0 => Ok(Self { first, count }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Right {
    fn drop(&mut self) {
        // SAFETY: as in `to`.
        unsafe { libc::ioperm(self.first.into(), self.count.into(), 0) };
    }
}

impl Port {
    /// Asks the kernel whether the ports may be used.
    pub fn open() -> io::Result<Self> {
        Right::to(DEBUG_CONSOLE, 1).map(|_| Self(()))
    }

    /// The ports, which `open` has asked for before.
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
        let Ok(_right) = Right::to(DEBUG_CONSOLE, 1) else {
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

    /// Stops the machine here. It goes on when the lab wants it to, in this very
    /// process or in another that was given the machine's state.
    pub fn pause(&mut self) {
        let Ok(_right) = Right::to(PAUSE, 1) else {
            return;
        };
        // SAFETY: a port that the process may use; registers and memory are the
        // same when the machine goes on.
        unsafe { asm!("out dx, al", in("dx") PAUSE, in("al") PAUSE_NOW, options(nostack, nomem)) };
    }

    /// Selects an item of the firmware configuration device, from its beginning.
    pub fn select(&mut self, item: u16) {
        let Ok(_right) = Right::to(FW_CFG, 2) else {
            return;
        };
        // SAFETY: a port that the process may use; it only moves a position.
        unsafe { asm!("out dx, ax", in("dx") FW_CFG, in("ax") item, options(nostack, nomem)) };
    }

    /// Reads on in the selected item. Behind its end there are zeros.
    pub fn read(&mut self, bytes: &mut [u8]) {
        let Ok(_right) = Right::to(FW_CFG, 2) else {
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

    /// Whether this is a machine without QEMU's devices.
    fn is_without_exit(&mut self) -> bool {
        let mut signature = [0; 4];
        self.select(SIGNATURE);
        self.read(&mut signature);
        signature != *b"QEMU"
    }

    /// Resets the processor; a machine without an exit device ends with that.
    fn reset(&mut self) {
        if let Ok(_right) = Right::to(KEYBOARD_CONTROLLER, 1) {
            // SAFETY: a port that the process may use, and that nobody else uses any more;
            // the machine ends here.
            unsafe {
                asm!("out dx, al", in("dx") KEYBOARD_CONTROLLER, in("al") RESET, options(nostack, nomem));
            }
        }
    }

    /// Ends the machine with `code`, see [`EXIT`].
    pub fn end(&mut self, code: u32) -> ! {
        let _right = Right::to(EXIT, 4);
        // SAFETY: a port that the process may use, as it could when it began; the machine
        // stops here.
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
