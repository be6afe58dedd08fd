//! The kernel as the [`Machine`] that the workloads access.

use super::Kernel;
use crate::cpu::{in8, mmio_read, mmio_write, out8, rdmsr, ring};
use crate::hypercall::HypercallInstruction;
use crate::interrupts;
use crate::virtio::{self, NotifiedDevice};
use crate::xen::{self, Xen};
use core::arch::x86_64::__cpuid;
use trapline_abi::platform::{FLOATING_BUS, SERIAL_SCRATCH};
use trapline_abi::{Need, Op};
use trapline_workloads::{DeviceRegisters, Doorbell, Machine, Reason};

impl Machine for Kernel {
    fn supports(&self, op: Op) -> Result<(), Reason> {
        match op.need() {
            Need::ScratchRegister => scratch_register(),
            Need::SerialPort => scratch_register().or_else(floating_bus),
            Need::VirtioTransport => self.registers().map(drop),
            Need::VirtioDevice => match self.registers()? {
                Some(_) => Ok(()),
                None => virtio::check_first_device(),
            },
            Need::VirtioQueue => self.notified().map(drop),
            Need::Hypercall => self.hypercall_instruction().map(drop),
            Need::LocalApic => self.apic().map(drop),
            Need::ModelSpecificRegisters => model_specific_registers(),
            Need::Xen => self.xen.map(drop),
            Need::EventChannel => self.channel().map(drop),
            _ => Ok(()),
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

    fn device_registers(&mut self) -> Option<DeviceRegisters> {
        self.registers().ok().flatten()
    }

    #[inline(always)]
    fn mmio_read(&mut self, address: u64) -> u32 {
        // SAFETY: the workloads access only the transport that `supports` has found, and its page
        // is not allocated as memory.
        unsafe { mmio_read(address) }
    }

    #[inline(always)]
    fn mmio_write(&mut self, address: u64, value: u32) {
        // SAFETY: as above.
        unsafe { mmio_write(address, value) }
    }

    fn doorbell(&mut self) -> Doorbell {
        self.notified()
            .map_or_else(|_| Doorbell::default(), NotifiedDevice::doorbell)
    }

    #[inline(always)]
    fn mmio_write16(&mut self, address: u64, value: u16) {
        // SAFETY: the workloads write only to the doorbell of a device.
        unsafe { (address as *mut u16).write_volatile(value) }
    }

    fn check_doorbell(&mut self) -> Result<(), Reason> {
        match self.notified.get_mut() {
            Some(Ok(device)) => device.check(),
            _ => Err("the virtio device is not started"),
        }
    }

    #[inline(always)]
    fn hypercall(&mut self) -> i64 {
        self.hypercall_instruction()
            .map_or(0, HypercallInstruction::call)
    }

    #[inline(always)]
    fn self_ipi(&mut self) {
        if let Ok(apic) = self.apic() {
            apic.interrupt_self();
        }
    }

    fn self_ipi_count(&mut self) -> u64 {
        interrupts::ipis()
    }

    #[inline(always)]
    fn read_msr(&mut self, register: u32) -> u64 {
        // SAFETY: the workloads read only registers of every CPU that `supports` accepts.
        unsafe { rdmsr(register) }
    }

    #[inline(always)]
    fn xen_version(&mut self) -> i64 {
        self.xen.map_or(0, Xen::version)
    }

    #[inline(always)]
    fn send_event(&mut self) {
        if let Ok(channel) = self.channel() {
            channel.send();
        }
    }

    fn event_count(&mut self) -> u64 {
        xen::event_count()
    }
}

/// Bits in `edx` of cpuid leaf 1: `rdmsr`, and an APIC that is enabled, which has a base.
const HAS_MSR_AND_APIC: u32 = 1 << 5 | 1 << 9;

/// Checks that the registers of a CPU with a local APIC can be read.
fn model_specific_registers() -> Result<(), Reason> {
    if ring() != 0 {
        return Err("ring 3 cannot read model-specific registers");
    }
    match __cpuid(1).edx & HAS_MSR_AND_APIC {
        HAS_MSR_AND_APIC => Ok(()),
        _ => Err("the CPU has no local APIC, and no model-specific register for it"),
    }
}

/// Checks that the scratch register of the first serial port keeps its value.
fn scratch_register() -> Result<(), Reason> {
    let keeps = |value| {
        out8(SERIAL_SCRATCH, value);
        in8(SERIAL_SCRATCH) == value
    };
    if keeps(0x55) && keeps(0xaa) {
        Ok(())
    } else {
        Err("the machine has no serial port with a scratch register at 0x3f8")
    }
}

/// Checks that the port has no device at all. Returns `reason` otherwise.
fn floating_bus(reason: Reason) -> Result<(), Reason> {
    match in8(SERIAL_SCRATCH) {
        FLOATING_BUS => Ok(()),
        _ => Err(reason),
    }
}
