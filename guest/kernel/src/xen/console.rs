//! The ring by which a domain speaks to dom0.
//!
//! It is emptied by a process in dom0, which has to run for that: so it is told only
//! when the ring is full or all has been said, between batches and never in one.

use super::hypercall::{Xen, EVENT_CHANNEL_OP, SCHED_OP};
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{fence, Ordering};
use trapline_abi::platform::PAGE;

/// Operations (Xen `public/sched.h`, `public/event_channel.h`).
const SCHED_YIELD: u64 = 0;
const EVENT_SEND: u64 = 4;

/// What the toolstack left for the domain (`public/hvm/params.h`).
const CONSOLE_FRAME: u32 = 17;
const CONSOLE_EVENT: u32 = 18;

const IN_BYTES: usize = 1024;
const OUT_BYTES: usize = 2048;

/// `xencons_interface` (`public/io/console.h`): two rings and how far each has been
/// read and written.
#[repr(C)]
struct Ring {
    input: [u8; IN_BYTES],
    output: [u8; OUT_BYTES],
    input_read: u32,
    input_written: u32,
    output_read: u32,
    output_written: u32,
}

/// The ring of this domain, and the event that says that there is something in it.
#[derive(Clone, Copy)]
pub struct Console {
    xen: Xen,
    ring: *mut Ring,
    event: u32,
}

impl Console {
    /// Asks Xen for it. Without one all that is said is lost.
    pub fn open() -> Console {
        let xen = Xen::here();
        Console {
            xen,
            ring: (xen.parameter(CONSOLE_FRAME) * PAGE) as *mut Ring,
            event: xen.parameter(CONSOLE_EVENT) as u32,
        }
    }

    /// The same where `is_xen`, and if there is one.
    fn open_if(is_xen: bool) -> Option<Console> {
        let console = is_xen.then(Console::open);
        console.filter(|console| !console.ring.is_null())
    }

    /// Puts `bytes` into the ring, waiting for room where there is none.
    pub fn write(self, bytes: &[u8]) {
        if self.ring.is_null() {
            return;
        }
        for byte in bytes {
            if self.used() == OUT_BYTES {
                self.empty();
            }
            let written = self.written();
            // SAFETY: the toolstack has put the ring there, outside of what the memory
            // map calls RAM; the place is free, for the ring is not full.
            unsafe {
                let place = &raw mut (*self.ring).output[written as usize % OUT_BYTES];
                place.write_volatile(*byte);
                fence(Ordering::Release);
                (&raw mut (*self.ring).output_written).write_volatile(written.wrapping_add(1));
            }
        }
    }

    /// Lets dom0 run until it has taken all that is in the ring.
    pub fn empty(self) {
        if self.ring.is_null() {
            return;
        }
        // SAFETY: the operation reads the number of an event channel, a `u32`.
        unsafe {
            self.xen
                .call(EVENT_CHANNEL_OP, EVENT_SEND, &raw const self.event as u64)
        };
        while self.used() != 0 {
            // SAFETY: the operation takes nothing.
            unsafe { self.xen.call(SCHED_OP, SCHED_YIELD, 0) };
        }
    }

    /// Reads a line; its length without its end.
    fn read_line(self, line: &mut [u8]) -> usize {
        let mut length = 0;
        while length < line.len() {
            match self.read() {
                b'\n' => break,
                byte => line[length] = byte,
            }
            length += 1;
        }
        length
    }

    /// Lets dom0 run until there is a byte.
    fn read(self) -> u8 {
        // SAFETY: as in `write`.
        let (written, read) = unsafe {
            (
                &raw const (*self.ring).input_written,
                &raw mut (*self.ring).input_read,
            )
        };
        // SAFETY: as in `write`.
        unsafe {
            let at = read.read_volatile();
            while written.read_volatile() == at {
                self.xen.call(SCHED_OP, SCHED_YIELD, 0);
            }
            fence(Ordering::Acquire);
            let byte = (&raw const (*self.ring).input[at as usize % IN_BYTES]).read_volatile();
            read.write_volatile(at.wrapping_add(1));
            byte
        }
    }

    fn written(self) -> u32 {
        // SAFETY: as in `write`.
        unsafe { (&raw const (*self.ring).output_written).read_volatile() }
    }

    fn used(self) -> usize {
        // SAFETY: as in `write`.
        let read = unsafe { (&raw const (*self.ring).output_read).read_volatile() };
        fence(Ordering::Acquire);
        self.written().wrapping_sub(read) as usize
    }
}

/// The leaf by which hypervisors tell what they are, and what Xen tells.
const HYPERVISOR: u32 = 0x4000_0000;
const SIGNATURE: [&[u8; 4]; 3] = [b"XenV", b"MMXe", b"nVMM"];

/// Reads a line from the console; its length. Nothing where this is no domain of Xen.
pub fn read_line(line: &mut [u8]) -> usize {
    let told = __cpuid(HYPERVISOR);
    let told = [told.ebx, told.ecx, told.edx].map(u32::to_le_bytes);
    let console = Console::open_if(told.each_ref() == SIGNATURE);
    console.map_or(0, |console| console.read_line(line))
}
