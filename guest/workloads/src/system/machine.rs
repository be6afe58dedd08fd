//! The machine below a system.

use super::Reason;
use trapline_abi::Op;

/// Registers of a virtio device on PCI (virtio 1.2, section 4.1.4.3) or of a virtio-mmio transport (4.2.2), by their
/// addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRegisters {
    /// The register that selects 32 feature bits.
    pub selector: u64,
    /// The register with the selected feature bits.
    pub features: u64,
}

/// Register by which a driver notifies a virtio device of its queue 0 (virtio 1.2, sections 4.2.2 and 4.1.4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doorbell {
    /// Its address.
    pub address: u64,
    /// It is written with 16 bits, as on PCI, not with 32, as in a virtio-mmio transport.
    pub is_narrow: bool,
}

/// Access to the machine.
///
/// Methods with a default body are needed by the kernel only: no other implementation supports the
/// operations that call them.
pub trait Machine {
    /// Checks that this machine can run `op`, see [`Op::need`].
    ///
    /// # Errors
    /// The reason why not.
    fn supports(&self, op: Op) -> Result<(), Reason>;

    /// Writes a byte to a port, if the instruction set has them.
    fn port_out(&mut self, _port: u16, _value: u8) {}

    /// Reads a byte from a port, if the instruction set has them.
    fn port_in(&mut self, _port: u16) -> u8 {
        0
    }

    /// Returns registers of a virtio device if the machine has no transport at [`trapline_abi::platform::VIRTIO_MMIO`].
    fn device_registers(&mut self) -> Option<DeviceRegisters> {
        None
    }

    /// Reads 32 bits of device memory at physical address `address`.
    fn mmio_read(&mut self, address: u64) -> u32;

    /// Writes 32 bits of device memory at physical address `address`.
    fn mmio_write(&mut self, address: u64, value: u32);

    /// Returns the doorbell of a virtio device that was started with an empty queue.
    fn doorbell(&mut self) -> Doorbell {
        Doorbell::default()
    }

    /// Writes 16 bits of device memory at physical address `address`.
    fn mmio_write16(&mut self, _address: u64, _value: u16) {}

    /// Checks that the device of [`Self::doorbell`] works.
    ///
    /// # Errors
    /// The reason why it does not.
    fn check_doorbell(&mut self) -> Result<(), Reason> {
        Ok(())
    }

    /// Makes a hypercall without effect. Returns the hypervisor's answer.
    fn hypercall(&mut self) -> i64 {
        0
    }

    /// Sends an interrupt to this CPU and waits until its handler has run.
    fn self_ipi(&mut self) {}

    /// Returns the number of interrupts handled after [`Self::self_ipi`].
    fn self_ipi_count(&mut self) -> u64 {
        0
    }

    /// Reads a model-specific register that every CPU with a local APIC has.
    fn read_msr(&mut self, _register: u32) -> u64 {
        0
    }

    /// Queries Xen for its version, which is never 0.
    fn xen_version(&mut self) -> i64 {
        0
    }

    /// Sends an event to this Xen domain and waits until its handler has run.
    fn send_event(&mut self) {}

    /// Returns the number of events handled after [`Self::send_event`].
    fn event_count(&mut self) -> u64 {
        0
    }
}

/// Machine of a system without access to one. The type has no values.
#[derive(Debug)]
pub enum NoMachine {}

impl Machine for NoMachine {
    fn supports(&self, _: Op) -> Result<(), Reason> {
        match *self {}
    }
    fn mmio_read(&mut self, _: u64) -> u32 {
        match *self {}
    }
    fn mmio_write(&mut self, _: u64, _: u32) {
        match *self {}
    }
}
