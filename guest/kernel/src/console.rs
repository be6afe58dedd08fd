//! Consoles for records: the first serial port, a port that is always ready, a port that takes
//! whole frames, or the console ring of Xen.

use crate::cpu::{in8, out32, out8, Global};
use crate::xen;
use core::fmt;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::job::Console;
use trapline_abi::platform::{COM1, DEBUG_CONSOLE, FLOATING_BUS, FRAME as FRAME_PORT};
use trapline_abi::Record;
use trapline_workloads::ticks;

/// Registers of a 16550, from its first port (National Semiconductor PC16550D).
const DATA: u16 = COM1;
const INTERRUPT_ENABLE: u16 = COM1 + 1;
const FIFO_CONTROL: u16 = COM1 + 2;
const INTERRUPT_ID: u16 = COM1 + 2;
const LINE_CONTROL: u16 = COM1 + 3;
const LINE_STATUS: u16 = COM1 + 5;

const EIGHT_BITS_NO_PARITY: u8 = 0x03;
const FIFO_ON_AND_EMPTY: u8 = 0x07;
const FIFO_IS_ON: u8 = 0xc0;
const RECEIVED: u8 = 0x01;
const TRANSMITTER_EMPTY: u8 = 0x20;
const FIFO_BYTES: usize = 16;

/// Open console.
#[derive(Clone, Copy)]
enum Line {
    /// Serial port, with this many bytes each time the transmitter is empty.
    Serial { at_once: usize },
    /// Port that is always ready.
    Port,
    /// Frames by address, text by the port that is always ready.
    Frames,
    /// Console ring of Xen.
    Xen(xen::Console),
}

static LINE: Global<Line> = Global::new(Line::Serial { at_once: 1 });
static FRAME: Global<[u8; MAX_FRAME]> = Global::new([0; MAX_FRAME]);

/// Opens a console for all further output.
pub fn open(console: Console) {
    let line = match console {
        Console::Serial => open_serial(),
        Console::Port => Line::Port,
        Console::Frames => Line::Frames,
        Console::Xen => Line::Xen(xen::Console::open()),
    };
    // SAFETY: a reference for this assignment only.
    unsafe { *LINE.get() = line };
}

fn open_serial() -> Line {
    out8(INTERRUPT_ENABLE, 0);
    out8(LINE_CONTROL, EIGHT_BITS_NO_PARITY);
    out8(FIFO_CONTROL, FIFO_ON_AND_EMPTY);
    let fifo = in8(INTERRUPT_ID) & FIFO_IS_ON == FIFO_IS_ON;
    Line::Serial {
        at_once: if fifo { FIFO_BYTES } else { 1 },
    }
}

/// Sends a record with a timestamp.
pub fn send(record: &Record<'_>) {
    // SAFETY: no function called from here on sends a record, except an exception handler, which
    // does not return.
    let frame = unsafe { FRAME.get() };
    match encode(record, ticks(), frame) {
        Ok(length) => write_frame(&frame[..length]),
        Err(error) => panic!("a record does not fit a frame: {error:?}"),
    }
}

/// Sends an encoded record of `length` bytes, at most [`MAX_FRAME`]; `byte` returns each.
pub fn send_encoded(length: usize, byte: impl FnMut(usize) -> u8) {
    // SAFETY: as in `send`.
    let frame = unsafe { &mut FRAME.get()[..length] };
    for (to, from) in frame.iter_mut().zip((0..length).map(byte)) {
        *to = from;
    }
    write_frame(frame);
}

fn write_frame(frame: &[u8]) {
    // SAFETY: copied at once.
    match unsafe { *LINE.get() } {
        // Identity-mapped, below 4 GiB. The assembly is assumed to read all memory, so the
        // frame is complete.
        Line::Frames => out32(FRAME_PORT, frame.as_ptr() as u32),
        _ => write(frame),
    }
}

/// Writes text.
pub fn write(bytes: &[u8]) {
    // SAFETY: copied at once.
    match unsafe { *LINE.get() } {
        // Not a string instruction, because KVM emulates those byte by byte.
        Line::Port | Line::Frames => bytes.iter().for_each(|byte| out8(DEBUG_CONSOLE, *byte)),
        Line::Xen(console) => console.write(bytes),
        Line::Serial { at_once } => {
            for piece in bytes.chunks(at_once) {
                while in8(LINE_STATUS) & TRANSMITTER_EMPTY == 0 {}
                piece.iter().for_each(|byte| out8(DATA, *byte));
            }
        }
    }
}

/// The console as a destination of formatted text.
pub struct Text;

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write(text.as_bytes());
        Ok(())
    }
}

/// Waits until all output has left the console ring.
pub fn finish() {
    // SAFETY: copied at once.
    if let Line::Xen(console) = unsafe { *LINE.get() } {
        console.flush();
    }
}

/// Waits for a byte on the serial port. Returns at once if there is no serial port.
pub fn wait_for_byte() {
    loop {
        match in8(LINE_STATUS) {
            FLOATING_BUS => return,
            status if status & RECEIVED != 0 => break,
            _ => {}
        }
    }
    in8(DATA);
}
