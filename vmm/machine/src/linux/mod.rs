//! A VM with a Linux kernel and several vCPUs.
//!
//! Each vCPU has a thread; vCPU 0 uses the main thread. Port devices share one lock, each virtio device has its own
//! ([`slots`]), and notifications bypass both. The control thread does slow work ([`control`]). No thread but that of the
//! console's queue waits for the reader of output. The vCPU that stops the VM ends the process.

mod api;
mod control;
mod pause;
mod slots;
mod statistics;

use self::api::Api;
use self::control::InputTarget;
use self::pause::PauseGate;
use self::slots::Slots;
use crate::console::{Console, OutputQueue};
use crate::events::Events;
use crate::file::MappedFile;
use crate::input::InputBuffer;
use crate::shell::{Host, Input};
use crate::usage::MemoryUsage;
use crate::{privileges, sandbox, signals, threads, Failure, StopReason, VmConfig};
use std::convert::Infallible;
use std::ops::DerefMut;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use trapline_abi::platform::COM1;
use trapline_abi::{stamp, Stage};
use trapline_interface::{
    Access, BootState, Controllers, Gpa, Hypervisor, IrqLine, Region, Vcpu, VcpuId, Vm, VmSpec,
};
use trapline_monitor::boot::acpi::{Hardware, SerialPort, Transport};
use trapline_monitor::boot::{prepare_linux, Kernel, LinuxPlan, Prepared, MAX_MEMORY};
use trapline_monitor::devices::{IoBus, IoBusConfig};
use trapline_monitor::{run as run_vcpu, Devices, ExitCounters, Platform};

/// I/O APIC pins of the serial port, as on every PC, and of the power button.
const SERIAL_PIN: u8 = 4;
const BUTTON_PIN: u8 = 23;

/// A VM ready to run.
pub struct Ready<H: Hypervisor> {
    vm: H::Vm,
    memory: Arc<Region>,
    boot: BootState,
    cpus: u32,
    serial: IrqLine,
    button: IrqLine,
}

/// Creates the VM described by `settings`.
///
/// # Errors
/// The settings or the host are unsuitable.
pub fn set_up<H: Hypervisor>(settings: &VmConfig) -> Result<Ready<H>, Failure> {
    let open = |path: &Path| MappedFile::open(path, MAX_MEMORY);
    let kernel_file = open(&settings.image)?;
    let initrd_file = settings.initrd.as_deref().map(open).transpose()?;
    let kernel = Kernel::parse(kernel_file.bytes()).map_err(|source| Failure::Kernel {
        path: settings.image.clone(),
        source,
    })?;
    let hardware = hardware(settings.cpus, slots::places(settings)?);
    let plan = LinuxPlan {
        memory: settings.memory,
        command_line: &settings.command_line,
        initrd: initrd_file.as_ref().map_or(&[], MappedFile::bytes),
        hardware: &hardware,
    };
    assemble(settings, &prepare_linux(&kernel, &plan)?)
}

fn hardware(cpus: u32, transports: Vec<Transport>) -> Hardware {
    Hardware {
        cpus: cpus as u8,
        serial: Some(SerialPort {
            port: COM1,
            pin: SERIAL_PIN,
        }),
        transports,
        button: BUTTON_PIN,
    }
}

fn assemble<H: Hypervisor>(
    settings: &VmConfig,
    prepared: &Prepared<'_>,
) -> Result<Ready<H>, Failure> {
    let memory = crate::setup::fill(
        settings.memory,
        (settings.memory_kind(), settings.prefault),
        prepared,
        None,
    )?;
    let vm = H::open()?.create_vm(&VmSpec {
        cpus: settings.cpus,
        paravirtual_eoi: settings.paravirtual_eoi,
        ..VmSpec::with(Controllers::Full)
    })?;
    for (at, length) in memory.pieces() {
        let part = memory
            .part(at, length)
            .map_err(Failure::system("divide the guest's memory"))?;
        vm.attach(Gpa(at as u64), Arc::new(part), Access::ReadWrite)?;
    }
    Ok(Ready {
        memory,
        serial: vm.irq_pin(SERIAL_PIN)?,
        button: vm.irq_pin(BUTTON_PIN)?,
        vm,
        boot: prepared.boot,
        cpus: settings.cpus,
    })
}

/// State shared by all threads.
pub struct Common {
    devices: Mutex<Devices<Host>>,
    /// Queues of the console.
    output: Vec<OutputQueue>,
    slots: Slots,
    input: Arc<InputBuffer>,
    input_target: InputTarget,
    /// Exit counters by vCPU.
    pub exits: Vec<ExitCounters>,
    gate: PauseGate,
    button: IrqLine,
    /// Passed when all vCPUs exist, since one of them may start another.
    assembled: Barrier,
    settings: VmConfig,
    report: Mutex<Report>,
    /// The guest has ended, and its output is being written.
    ending: AtomicBool,
    end: End,
}

/// Results reported at the end of a run.
pub struct Report {
    /// Event stream.
    pub events: Events,
    /// Memory usage, if events are recorded.
    pub usage: Option<MemoryUsage>,
    /// TSC offset of vCPU 0, if known.
    pub tsc_offset: Option<i64>,
}

/// Ends the process. Called with both locks held, so that no other thread proceeds.
pub type End = fn(&Common, &mut Devices<Host>, &mut Report, Result<StopReason, Failure>) -> !;

/// Runs a VM until the process ends. `console` creates the console for vCPU 0.
///
/// # Errors
/// The VM cannot be completed. Later errors are passed to `end`.
pub fn run<H: Hypervisor>(
    ready: Ready<H>,
    settings: &VmConfig,
    console: impl FnOnce(&<H::Vm as Vm>::Vcpu) -> Result<Console, Failure>,
    events: Events,
    end: End,
) -> Result<Infallible, Failure>
where
    H::Vm: Send + Sync + 'static,
{
    settings.placement.apply(ready.cpus)?;
    threads::register("vcpu0");
    let api = settings.api.as_deref().map(Api::bind).transpose()?;
    let first = ready.vm.create_vcpu(VcpuId(0), Some(&ready.boot))?;
    let (slots, workers) = Slots::new(&ready.vm, &ready.memory, settings)?;
    let input = Arc::new(InputBuffer::default());
    let input_target = InputTarget::of(&settings.command_line);
    let usage = events.wanted().then(|| MemoryUsage::open(&ready.memory));
    privileges::drop_all(settings.user, settings.chroot.as_deref())?;
    let host = Host {
        input: match input_target {
            InputTarget::Serial => Input::Buffered(Arc::clone(&input), Arc::clone(&slots.console)),
            InputTarget::Virtio => Input::None,
        },
        serial: Some(ready.serial),
        ..Host::new(console(&first)?)
    };
    let common = Arc::new(Common {
        output: host.console.queues().cloned().collect(),
        devices: Mutex::new(Devices {
            io: ports(),
            shell: host,
            memory: ready.memory,
            interrupts: None,
        }),
        report: Mutex::new(Report {
            usage,
            events,
            tsc_offset: first.tsc_offset(),
        }),
        slots,
        input,
        input_target,
        gate: PauseGate::new(ready.cpus),
        button: ready.button,
        exits: (0..ready.cpus).map(|_| ExitCounters::default()).collect(),
        assembled: Barrier::new(ready.cpus as usize),
        settings: settings.clone(),
        ending: AtomicBool::new(false),
        end,
    });
    common.gate.register(0, first.kicker());
    control::start(Arc::clone(&common), api, settings.sandbox)?;
    for worker in workers {
        worker.start(settings.sandbox)?;
    }
    let vm = Arc::new(ready.vm);
    for number in 1..ready.cpus {
        start_another(&vm, &common, VcpuId(number))?;
    }
    common.assembled.wait();
    sandbox::enter(settings.role(), settings.sandbox)?;
    let mut report = lock(&common.report);
    report.events.stage(Stage::VmmEntry, stamp!(VmmEntry));
    report.events.flush();
    drop(report);
    common.run(first, VcpuId(0))
}

/// Returns the port devices of a Linux.
fn ports() -> IoBus {
    IoBus::new(IoBusConfig {
        power: true,
        flow_control: true,
        ..IoBusConfig::default()
    })
}

/// Starts the thread of another vCPU, which waits for SIPI.
fn start_another<M: Vm + Send + Sync + 'static>(
    vm: &Arc<M>,
    common: &Arc<Common>,
    number: VcpuId,
) -> Result<(), Failure> {
    let (vm, common) = (Arc::clone(vm), Arc::clone(common));
    threads::spawn_unfiltered(&format!("vcpu{}", number.0), move || {
        threads::unblock_kicks();
        let created = vm.create_vcpu(number, None);
        if let Ok(vcpu) = &created {
            common.gate.register(number.0, vcpu.kicker());
        }
        common.assembled.wait();
        let settings = &common.settings;
        let confined = sandbox::enter(settings.role(), settings.sandbox);
        match confined.and_then(|()| Ok(created?)) {
            Ok(vcpu) => common.run(vcpu, number),
            Err(failure) => common.end(Err(failure)),
        }
    })
}

/// Locks `mutex`, ignoring poison: a panic ends the process.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Common {
    fn devices(&self) -> MutexGuard<'_, Devices<Host>> {
        lock(&self.devices)
    }

    /// Ends the process, after the guest's output was written. No lock is held meanwhile, so that a stop request is served.
    fn end(&self, result: Result<StopReason, Failure>) -> ! {
        let is_requested = matches!(result, Ok(StopReason::UserRequest | StopReason::Signal(_)));
        // The first end counts, or a request meanwhile.
        while self.ending.swap(true, Ordering::Relaxed) && !is_requested {
            thread::park();
        }
        self.devices().shell.console.flush();
        for queue in &self.output {
            queue.drain(|| is_requested || signals::stop_signal().is_some());
        }
        (self.end)(self, &mut self.devices(), &mut lock(&self.report), result)
    }

    fn run<V: Vcpu>(&self, mut vcpu: V, number: VcpuId) -> ! {
        let exits = &self.exits[number.0 as usize];
        let result = run_vcpu(&mut vcpu, &mut Shared(self), exits);
        self.end(result.map_err(Failure::from))
    }
}

/// Access of one vCPU to the shared devices.
struct Shared<'a>(&'a Common);

impl Platform for Shared<'_> {
    type Shell = Host;

    fn devices(&mut self) -> impl DerefMut<Target = Devices<Host>> {
        self.0.devices()
    }

    fn read_mmio(&mut self, address: u64, size: u8) -> Option<u64> {
        self.0.slots.bus.read(address, size)
    }

    fn write_mmio(&mut self, address: u64, size: u8, value: u64) -> Option<()> {
        self.0.slots.bus.write(address, size, value)
    }

    fn wait_while_paused(&mut self) {
        self.0.gate.pass();
    }
}
