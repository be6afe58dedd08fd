//! The interrupt controllers of the vCPU: its local APIC, and the I/O APIC of a machine that has one.

use super::now;
use crate::{lines, timer};
use core::ops::Range;
use trapline_emulation::apic::{Apic, VECTORS};
use trapline_emulation::io_apic::IoApic;

/// Page of the local APIC (Intel SDM volume 3, 11.4.1).
const LOCAL: Range<u64> = 0xfee0_0000..0xfee0_1000;
/// Page of the I/O APIC, below (Intel 82093AA data sheet, 3.0).
const IO: Range<u64> = 0xfec0_0000..0xfec0_1000;

/// The controllers.
pub(super) struct Controllers {
    pub local: Apic<[u32; VECTORS / 32]>,
    pub io: Option<IoApic>,
}

impl Controllers {
    /// Creates controllers after a reset.
    pub fn new(has_io: bool) -> Self {
        Self {
            local: Apic::new([0; VECTORS / 32]),
            io: has_io.then(IoApic::default),
        }
    }

    /// Returns whether an address may be one of controllers. No other device is above the first.
    #[inline(always)]
    pub fn contain(address: u64) -> bool {
        address >= IO.start
    }

    /// Reads a register; `None` if no controller has the address.
    #[inline(always)]
    pub fn read(&mut self, address: u64) -> Option<u32> {
        if LOCAL.contains(&address) {
            Some(self.local.read(address - LOCAL.start, now()))
        } else {
            self.read_io(address)
        }
    }

    /// Writes a register; `None` if no controller has the address.
    #[inline(always)]
    pub fn write(&mut self, address: u64, value: u32) -> Option<()> {
        if !LOCAL.contains(&address) {
            return self.write_io(address, value);
        }
        self.local.write(address - LOCAL.start, value, now());
        timer::set(self.local.deadline());
        Some(())
    }

    #[cold]
    fn read_io(&mut self, address: u64) -> Option<u32> {
        let io = self.io.as_ref().filter(|_| IO.contains(&address))?;
        Some(io.read(address - IO.start))
    }

    #[cold]
    fn write_io(&mut self, address: u64, value: u32) -> Option<()> {
        let io = self.io.as_mut().filter(|_| IO.contains(&address))?;
        io.write(address - IO.start, value);
        Some(())
    }

    /// Requests the interrupts of lines and pins, and that of the timer if it has expired.
    #[inline(always)]
    pub fn update(&mut self) {
        if lines::exist() {
            self.take_lines();
        }
        self.local.expire(now());
    }

    #[cold]
    fn take_lines(&mut self) {
        let Self { local, io } = self;
        lines::take_vectors(|vector| local.request(vector));
        lines::take_pins(|pin| {
            if let Some(vector) = io.as_ref().and_then(|io| io.vector(pin)) {
                local.request(vector);
            }
        });
    }
}
