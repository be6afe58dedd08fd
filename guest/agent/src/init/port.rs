//! The machine's two ports: one takes bytes for the lab, one ends the machine.

use std::arch::asm;
use std::io;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::platform::{DEBUG_CONSOLE, EXIT};
use trapline_abi::Record;

/// Turns of an empty loop for which to wait for the machine to end: half a minute
/// where instructions are counted.
const PATIENCE: u64 = 10_000_000_000;

/// The right to use the ports, which the process keeps for its life.
pub struct Port(());

impl Port {
    /// Asks the kernel for the ports.
    pub fn open() -> io::Result<Self> {
        for (port, length) in [(DEBUG_CONSOLE, 1), (EXIT, 4)] {
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

    fn write(&mut self, bytes: &[u8]) {
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

    /// Ends the machine with `code`, see [`EXIT`].
    pub fn end(&mut self, code: u32) -> ! {
        // SAFETY: a port that the process may use; the machine stops here.
        unsafe { asm!("out dx, eax", in("dx") EXIT, in("eax") code, options(nostack, nomem)) };
        // QEMU 10 stops a moment later, unlike QEMU 7, and a second code would
        // replace the first. A machine without the exit device ends with its
        // init, in a panic.
        for _ in 0..PATIENCE {
            std::hint::spin_loop();
        }
        std::process::exit(1)
    }
}
