//! Machine of a guest's init: a register of the serial port, and those of a virtio transport.
//!
//! Accesses of the program exit from the guest directly, without instructions of the guest's kernel.
//! The kernel must not have a driver bound to the transport.

use crate::arch::port::{in8, out8, PortAccess};
use crate::device_page::device_page;
use std::cell::RefCell;
use std::io;
use std::ptr::NonNull;
use trapline_abi::arch::x86_64::platform::SERIAL_SCRATCH;
use trapline_abi::platform::{
    PAGE, VIRTIO_DEVICE_FEATURES, VIRTIO_DEVICE_FEATURES_SEL, VIRTIO_MAGIC, VIRTIO_MMIO,
};
use trapline_abi::{Need, Op};
use trapline_workloads::{Machine, Reason};

const NO_PORTS: Reason = "the kernel does not allow access to ports";
const NO_SCRATCH: Reason = "the machine has no serial port with a scratch register at 0x3f8";
const NO_REGISTERS: Reason = "the kernel does not allow mapping of device registers";
const NO_TRANSPORT: Reason = "the machine has no virtio-mmio transport at 0xfeb00000";
const NO_DEVICE: Reason = "the first virtio-mmio transport has no modern device behind it";
const NOT_FOR_PROGRAMS: Reason =
    "a program in a guest has no interrupts, hypercalls or privileged instructions";

/// Machine of the init.
#[derive(Default)]
pub struct GuestMachine {
    /// Held only while ports are measured, because it slows down returns to the program.
    ports: RefCell<Option<PortAccess>>,
    registers: RefCell<Option<Registers>>,
}

impl Machine for GuestMachine {
    fn supports(&self, op: Op) -> Result<(), Reason> {
        *self.ports.borrow_mut() = None;
        match op.need() {
            Need::ScratchRegister => self.open_port(),
            Need::VirtioTransport => self.map(),
            Need::VirtioDevice => self.map().and_then(|()| self.check_device()),
            _ => Err(NOT_FOR_PROGRAMS),
        }
    }

    #[inline(always)]
    fn port_out(&mut self, port: u16, value: u8) {
        out8(port, value);
    }

    #[inline(always)]
    fn port_in(&mut self, port: u16) -> u8 {
        in8(port)
    }

    #[inline(always)]
    fn mmio_read(&mut self, address: u64) -> u32 {
        let registers = self.registers.get_mut().as_ref();
        registers.map_or(0, |registers| registers.read(address))
    }

    #[inline(always)]
    fn mmio_write(&mut self, address: u64, value: u32) {
        if let Some(registers) = self.registers.get_mut() {
            registers.write(address, value);
        }
    }
}

impl GuestMachine {
    fn open_port(&self) -> Result<(), Reason> {
        let access = PortAccess::request(SERIAL_SCRATCH, 1).map_err(|_| NO_PORTS)?;
        *self.ports.borrow_mut() = Some(access);
        let keeps = |value| {
            out8(SERIAL_SCRATCH, value);
            in8(SERIAL_SCRATCH) == value
        };
        if keeps(0x55) && keeps(0xaa) {
            Ok(())
        } else {
            Err(NO_SCRATCH)
        }
    }

    fn map(&self) -> Result<(), Reason> {
        let mut registers = self.registers.borrow_mut();
        if registers.is_none() {
            *registers = Some(Registers::map().map_err(|_| NO_REGISTERS)?);
        }
        let found = registers.as_ref().map(|found| found.read(VIRTIO_MMIO));
        match found {
            Some(VIRTIO_MAGIC) => Ok(()),
            _ => Err(NO_TRANSPORT),
        }
    }

    /// VIRTIO_F_VERSION_1 is bit 32.
    fn check_device(&self) -> Result<(), Reason> {
        let registers = self.registers.borrow();
        let features = registers.as_ref().map_or(0, |registers| {
            registers.write(VIRTIO_MMIO + VIRTIO_DEVICE_FEATURES_SEL, 1);
            registers.read(VIRTIO_MMIO + VIRTIO_DEVICE_FEATURES)
        });
        match features & 1 {
            1 => Ok(()),
            _ => Err(NO_DEVICE),
        }
    }
}

/// Mapped page of the first transport.
struct Registers {
    page: NonNull<u8>,
}

impl Registers {
    fn map() -> io::Result<Self> {
        let page = device_page(VIRTIO_MMIO)?;
        Ok(Self { page })
    }

    #[inline(always)]
    fn at(&self, address: u64) -> NonNull<u32> {
        let offset = (address.wrapping_sub(VIRTIO_MMIO) % PAGE) & !3;
        // SAFETY: the offset is of an aligned word within the mapped page.
        unsafe { self.page.add(offset as usize).cast() }
    }

    #[inline(always)]
    fn read(&self, address: u64) -> u32 {
        // SAFETY: mapped and aligned, see `at`; reading a register changes no memory.
        unsafe { self.at(address).read_volatile() }
    }

    #[inline(always)]
    fn write(&self, address: u64, value: u32) {
        // SAFETY: as in `read`; the workloads write only selectors.
        unsafe { self.at(address).write_volatile(value) }
    }
}
