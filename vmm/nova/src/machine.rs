//! The virtual machine of the image: assembled by the main thread, run by the handler of its exits.

use crate::hypercall::{schedule, Selector};
use crate::hypervisor::{Nova, NovaVm, OWN};
use crate::ports::{exit, Console, Messages};
use crate::timer::VCPU;
use crate::vcpu::NovaVcpu;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt::Write;
use core::sync::atomic::{AtomicPtr, Ordering};
use trapline_abi::platform::{EXIT_DONE, EXIT_PANIC};
use trapline_interface::{Access, Controllers, Gpa, Hypervisor, Region, VcpuId, Vm, VmSpec};
use trapline_monitor::boot::{prepare, EntryPoint, Image, Plan};
use trapline_monitor::devices::{IoBus, IoBusConfig};
use trapline_monitor::{run as run_vcpu, start, Devices, ExitCounters, StopReason};

/// Scheduling context of the vCPU, and its priority: below the timer.
const CONTEXT: Selector = 86;
const PRIORITY: u64 = 2;

/// Value of the exit port after an error of the VM or of this program.
const EXIT_ERROR: u32 = 2;

struct Machine {
    vcpu: NovaVcpu,
    devices: Devices<Console>,
    exits: ExitCounters,
    _vm: NovaVm,
}

/// The machine, from its assembly until the handler takes it.
static MACHINE: AtomicPtr<Machine> = AtomicPtr::new(core::ptr::null_mut());

/// Assembles the machine of `image` and starts it: the handler runs [`trapline_run_machine`].
///
/// # Errors
/// The image is invalid, or NOVA refuses.
pub fn assemble(image: &[u8], command_line: &str, memory: Region) -> Result<(), String> {
    let image = Image::parse(image).map_err(|error| format!("image: {error}"))?;
    let way = match image.direct() {
        Some(_) => EntryPoint::Direct { ring: 0 },
        None => EntryPoint::Pvh,
    };
    let length = memory.len() as u64;
    let plan = Plan {
        memory: length,
        command_line,
        way,
    };
    let prepared = prepare(&image, &plan).map_err(|error| error.to_string())?;
    for piece in &prepared.pieces {
        let written = memory.write(piece.at.0, &piece.bytes);
        written.map_err(|error| error.to_string())?;
    }
    let memory = Arc::new(memory);
    let create = || {
        let nova = Nova::open().map_err(|error| error.to_string())?;
        let created = nova
            .create_vm(&VmSpec::with(Controllers::Local))
            .and_then(|vm| {
                vm.attach(Gpa(0), Arc::clone(&memory), Access::ReadWrite)?;
                let vcpu = vm.create_vcpu(VcpuId(0), Some(&prepared.boot))?;
                Ok((vm, vcpu))
            });
        created.map_err(|error| error.to_string())
    };
    let (vm, vcpu) = create()?;
    let machine = Machine {
        vcpu,
        devices: Devices {
            io: IoBus::new(IoBusConfig::default()),
            shell: Console,
            memory,
            interrupts: None,
        },
        exits: ExitCounters::default(),
        _vm: vm,
    };
    MACHINE.store(Box::into_raw(Box::new(machine)), Ordering::SeqCst);
    schedule(CONTEXT, OWN, VCPU, PRIORITY).map_err(|error| error.to_string())
}

/// The handler of exits: runs the machine until it stops.
#[no_mangle]
extern "C" fn trapline_run_machine() -> ! {
    let machine = MACHINE.swap(core::ptr::null_mut(), Ordering::SeqCst);
    // SAFETY: the vCPU is scheduled, and its handler entered, after `assemble` has stored the machine.
    let mut machine = unsafe { Box::from_raw(machine) };
    let Machine {
        vcpu,
        devices,
        exits,
        ..
    } = &mut *machine;
    let reason = start(vcpu).and_then(|()| run_vcpu(vcpu, devices, exits));
    match reason {
        Ok(StopReason::Done) => exit(EXIT_DONE),
        Ok(StopReason::Panicked) => exit(EXIT_PANIC),
        Ok(reason) => fail(&format_args!("{reason}; {vcpu}")),
        Err(error) => fail(&*error),
    }
}

/// Prints a message and ends the machine.
pub fn fail(error: &dyn core::fmt::Display) -> ! {
    // Messages are never refused.
    let _ = writeln!(Messages, "\ntrapline-nova: {error}");
    exit(EXIT_ERROR)
}
