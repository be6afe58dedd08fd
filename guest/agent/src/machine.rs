//! Machine of a guest's init: a register of the serial port, and those of a virtio transport.
//!
//! Accesses of the program exit from the guest directly, without instructions of the guest's kernel.
//! The kernel must not have a driver bound to the transport.

use crate::port::PortAccess;
use std::cell::RefCell;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use trapline_abi::platform::{
    PAGE, SERIAL_SCRATCH, VIRTIO_DEVICE_FEATURES, VIRTIO_DEVICE_FEATURES_SEL, VIRTIO_MAGIC,
    VIRTIO_MMIO,
};
use trapline_abi::{Need, Op};
use trapline_workloads::{Machine, Reason};

/// Physical memory as a file: major and minor number (Linux,
/// Documentation/admin-guide/devices.txt).
const MEMORY: (u32, u32) = (1, 1);
const PATH: &CStr = c"/dev/mem";

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
        let (major, minor) = MEMORY;
        // SAFETY: creates a device node; an existing one is fine.
        unsafe {
            libc::mknod(
                PATH.as_ptr(),
                libc::S_IFCHR | 0o600,
                libc::makedev(major, minor),
            )
        };
        let memory = File::options().read(true).write(true).open("/dev/mem")?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; what it shows are
        // registers of an unused device, otherwise the kernel refuses.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE as usize,
                access,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                VIRTIO_MMIO as libc::off_t,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(page.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
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

#[inline(always)]
fn out8(port: u16, value: u8) {
    // SAFETY: `supports` has requested access to the only port that the workloads use, a scratch
    // register.
    unsafe {
        std::arch::asm!("out dx, al", in("dx") port, in("al") value, options(nostack, nomem, preserves_flags));
    }
}

#[inline(always)]
fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: as in `out8`.
    unsafe {
        std::arch::asm!("in al, dx", in("dx") port, out("al") value, options(nostack, nomem, preserves_flags));
    }
    value
}
