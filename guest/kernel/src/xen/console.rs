//! Console ring of a domain.
//!
//! A process in dom0 empties it, and has to run for that. So dom0 is notified only if the ring is
//! full or the output is complete, which never happens within a batch.

use super::hypercall::{Xen, EVENT_CHANNEL_OP, SCHED_OP};
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{fence, Ordering};
use trapline_abi::platform::PAGE;

/// Operations (Xen `public/sched.h`, `public/event_channel.h`).
const SCHED_YIELD: u64 = 0;
const EVENT_SEND: u64 = 4;

/// HVM parameters (`public/hvm/params.h`).
const CONSOLE_FRAME: u32 = 17;
const CONSOLE_EVENT: u32 = 18;

const IN_BYTES: usize = 1024;
const OUT_BYTES: usize = 2048;

/// `xencons_interface` (`public/io/console.h`): two rings and their indices.
#[repr(C)]
struct Ring {
    input: [u8; IN_BYTES],
    output: [u8; OUT_BYTES],
    input_read: u32,
    input_written: u32,
    output_read: u32,
    output_written: u32,
}

/// Console ring of this domain, and its event channel.
#[derive(Clone, Copy)]
pub struct Console {
    xen: Xen,
    ring: *mut Ring,
    event: u32,
}

impl Console {
    /// Queries Xen for the ring. Without one all output is lost.
    pub fn open() -> Console {
        let xen = Xen::here();
        Console {
            xen,
            ring: (xen.parameter(CONSOLE_FRAME) * PAGE) as *mut Ring,
            event: xen.parameter(CONSOLE_EVENT) as u32,
        }
    }

    /// Opens the console if `is_xen` and there is a ring.
    fn open_if(is_xen: bool) -> Option<Console> {
        let console = is_xen.then(Console::open);
        console.filter(|console| !console.ring.is_null())
    }

    /// Writes `bytes` to the ring; waits while it is full.
    pub fn write(self, bytes: &[u8]) {
        if self.ring.is_null() {
            return;
        }
        for byte in bytes {
            if self.used() == OUT_BYTES {
                self.flush();
            }
            let written = self.written();
            // SAFETY: the toolstack has placed the ring outside of the RAM of the memory map; the
            // slot is free, because the ring is not full.
            unsafe {
                let place = &raw mut (*self.ring).output[written as usize % OUT_BYTES];
                place.write_volatile(*byte);
                fence(Ordering::Release);
                (&raw mut (*self.ring).output_written).write_volatile(written.wrapping_add(1));
            }
        }
    }

    /// Lets dom0 run until the ring is empty.
    pub fn flush(self) {
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

    /// Reads a line. Returns its length without the newline.
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

    /// Reads a byte; lets dom0 run until there is one.
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

/// Hypervisor leaf of cpuid, and the signature of Xen.
const HYPERVISOR: u32 = 0x4000_0000;
const SIGNATURE: [&[u8; 4]; 3] = [b"XenV", b"MMXe", b"nVMM"];

/// Reads a line from the console. Returns its length, 0 if this is not a Xen domain.
pub fn read_line(line: &mut [u8]) -> usize {
    let leaf = __cpuid(HYPERVISOR);
    let signature = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes);
    let console = Console::open_if(signature.each_ref() == SIGNATURE);
    console.map_or(0, |console| console.read_line(line))
}
