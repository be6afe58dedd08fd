//! The virtual machine of the image, and what it shares with that of Linux.

use crate::events;
use crate::hypervisor::{Nova, NovaVm};
use crate::ports::{exit, Console, Messages};
use crate::vcpu::Technology;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt::Write;
use trapline_abi::platform::{EXIT_DONE, EXIT_PANIC};
use trapline_abi::record::Stage;
use trapline_abi::stamp;
use trapline_interface::{Access, Controllers, Gpa, Hypervisor, Region, VcpuId, Vm, VmSpec};
use trapline_monitor::boot::{prepare, EntryPoint, Image, Plan, Prepared};
use trapline_monitor::devices::{IoBus, IoBusConfig};
use trapline_monitor::{run as run_vcpu, start, Devices, ExitCounters, StopReason};

/// Value of the exit port after an error of the VM or of this program.
const EXIT_ERROR: u32 = 2;

/// Assembles the machine of `image` and runs it until it stops.
///
/// # Errors
/// The image is invalid, or NOVA refuses.
pub fn run<T: Technology>(image: &[u8], command_line: &str, memory: Region) -> Result<(), String> {
    let image = Image::parse(image).map_err(|error| format!("image: {error}"))?;
    let way = match image.direct() {
        Some(_) => EntryPoint::Direct { ring: 0 },
        None => EntryPoint::Pvh,
    };
    let plan = Plan {
        memory: memory.len() as u64,
        command_line,
        way,
    };
    let prepared = prepare(&image, &plan).map_err(|error| error.to_string())?;
    let without_lines = |_: &NovaVm<T>| Ok(Console::default());
    let devices = IoBusConfig::default();
    run_prepared(
        &prepared,
        memory,
        Controllers::Local,
        devices,
        without_lines,
    )
}

/// Creates a machine with these contents of memory and devices, and runs it until it stops.
///
/// # Errors
/// NOVA refuses.
pub fn run_prepared<T: Technology>(
    prepared: &Prepared<'_>,
    memory: Region,
    controllers: Controllers,
    devices: IoBusConfig,
    console: impl FnOnce(&NovaVm<T>) -> trapline_interface::Result<Console>,
) -> Result<(), String> {
    for piece in &prepared.pieces {
        let written = memory.write(piece.at.0, &piece.bytes);
        written.map_err(|error| error.to_string())?;
    }
    let memory = Arc::new(memory);
    let nova = Nova::<T>::open().map_err(|error| error.to_string())?;
    let create = || {
        let vm = nova.create_vm(&VmSpec::with(controllers))?;
        vm.attach(Gpa(0), Arc::clone(&memory), Access::ReadWrite)?;
        let vcpu = vm.create_vcpu(VcpuId(0), Some(&prepared.boot))?;
        let shell = console(&vm)?;
        Ok((vm, vcpu, shell))
    };
    let created: trapline_interface::Result<_> = create();
    let (_vm, mut vcpu, shell) = created.map_err(|error| error.to_string())?;
    let created = stamp!(VmCreated);
    let mut devices = Devices {
        io: IoBus::new(devices),
        shell,
        memory,
        interrupts: None,
    };
    let exits = ExitCounters::default();
    start(&mut vcpu).map_err(|error| error.to_string())?;
    let entered = stamp!(VmmEntry);
    let reason = run_vcpu(&mut vcpu, &mut devices, &exits);
    let ended = stamp!(VmmExit);
    events::report(&[
        (Stage::VmCreated, created),
        (Stage::VmmEntry, entered),
        (Stage::VmmExit, ended),
    ]);
    match reason.map_err(|error| error.to_string())? {
        StopReason::Done => exit(EXIT_DONE),
        StopReason::Panicked => exit(EXIT_PANIC),
        reason => Err(format!("{reason}; {vcpu}")),
    }
}

/// Prints a message and ends the machine.
pub fn fail(error: &dyn core::fmt::Display) -> ! {
    // Messages are never refused.
    let _ = writeln!(Messages, "\ntrapline-nova: {error}");
    exit(EXIT_ERROR)
}
