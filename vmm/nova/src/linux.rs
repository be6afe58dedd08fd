//! The virtual machine of a Linux kernel: the platform of `trapline-vmm` without virtio devices.

use crate::machine::run_prepared;
use crate::ports::Console;
use crate::vcpu::Technology;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use trapline_abi::platform::COM1;
use trapline_interface::{Controllers, Region, Vm};
use trapline_monitor::boot::acpi::{Hardware, SerialPort};
use trapline_monitor::boot::{prepare_linux, Kernel, LinuxPlan};
use trapline_monitor::devices::IoBusConfig;

/// I/O APIC pins of the serial port, as on every PC, and of the power button, which is never pressed.
const SERIAL_PIN: u8 = 4;
const BUTTON_PIN: u8 = 23;

/// Assembles the machine of `kernel` with `initrd`, and runs it until it stops.
///
/// # Errors
/// The kernel is invalid, or NOVA refuses.
pub fn run<T: Technology>(
    kernel: &[u8],
    initrd: &[u8],
    command_line: &str,
    memory: Region,
) -> Result<(), String> {
    let kernel = Kernel::parse(kernel).map_err(|error| format!("kernel: {error}"))?;
    let hardware = Hardware {
        cpus: 1,
        serial: Some(SerialPort {
            port: COM1,
            pin: SERIAL_PIN,
        }),
        transports: Vec::new(),
        button: BUTTON_PIN,
    };
    let plan = LinuxPlan {
        memory: memory.len() as u64,
        command_line,
        initrd,
        hardware: &hardware,
    };
    let prepared = prepare_linux(&kernel, &plan).map_err(|error| error.to_string())?;
    let devices = IoBusConfig {
        power: true,
        flow_control: true,
        ..IoBusConfig::default()
    };
    run_prepared::<T>(&prepared, memory, Controllers::Full, devices, |vm| {
        let serial = Some(vm.irq_pin(SERIAL_PIN)?);
        Ok(Console { serial })
    })
}
