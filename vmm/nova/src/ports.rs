//! Ports of the machine, and the services of this program for the monitor.

use core::arch::asm;
use core::fmt;
use trapline_abi::platform::{COM1, DEBUG_CONSOLE, EXIT};
use trapline_interface::IrqLine;
use trapline_monitor::devices::{Shell, Terminal};
use trapline_monitor::StopReason;

/// Second serial port of a PC.
const COM2: u16 = 0x2f8;

/// Real-time clock of a PC: number of a register, and behind it its value.
pub const RTC: u16 = 0x70;

/// Port of Bochs that ends the machine after this text. QEMU has no device there.
const BOCHS_END: u16 = 0x8900;
const BOCHS_END_TEXT: &[u8] = b"Shutdown";

/// Line status register of a serial port, and its bit "transmitter empty" (National Semiconductor PC16550D).
const LINE_STATUS: u16 = 5;
const EMPTY: u8 = 1 << 5;

/// Ports of this program: first port, and power of two of their number.
pub const PORTS: [(u16, u64); 9] = [
    (COM1, 3),
    (COM2, 3),
    (RTC, 1),
    (DEBUG_CONSOLE, 0),
    (EXIT, 0),
    (EXIT + 1, 0),
    (EXIT + 2, 0),
    (EXIT + 3, 0),
    (BOCHS_END, 0),
];

pub fn out8(port: u16, value: u8) {
    // SAFETY: the program has received its ports; their devices do not access memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) };
}

pub fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: as in `out8`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}

/// Ends the machine, QEMU with a value of the exit port.
pub fn exit(value: u32) -> ! {
    loop {
        // SAFETY: as in `out8`.
        unsafe { asm!("out dx, eax", in("dx") EXIT, in("eax") value, options(nomem, nostack)) };
        BOCHS_END_TEXT
            .iter()
            .for_each(|byte| out8(BOCHS_END, *byte));
    }
}

/// Messages of this program, on the serial port that NOVA uses, too.
pub struct Messages;

impl fmt::Write for Messages {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| send(COM1, byte));
        Ok(())
    }
}

/// Sends a byte of an event to the second serial port.
pub fn send_event(byte: u8) {
    send(COM2, byte);
}

fn send(port: u16, byte: u8) {
    while in8(port + LINE_STATUS) & EMPTY == 0 {}
    out8(port, byte);
}

/// The guest's console: the machine's debug console.
#[derive(Default)]
pub struct Console {
    /// Interrupt of the guest's serial port. With it the port is no console, and its output is that of [`Messages`].
    pub serial: Option<IrqLine>,
}

impl Terminal for Console {
    fn send(&mut self, byte: u8) {
        match self.serial {
            None => self.print(byte),
            Some(_) => send(COM1, byte),
        }
    }

    fn has_room(&self) -> bool {
        true
    }

    fn receive(&mut self) -> Option<u8> {
        None
    }

    fn interrupt(&mut self) {
        if let Some(line) = &self.serial {
            // Lines of this program are never refused.
            let _delivered = line.trigger();
        }
    }
}

impl Shell for Console {
    fn print(&mut self, byte: u8) {
        out8(DEBUG_CONSOLE, byte);
    }

    fn print_all(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.print(*byte);
        }
    }

    fn flush(&mut self) {}

    fn stop_reason(&mut self) -> Option<StopReason> {
        None
    }
}
