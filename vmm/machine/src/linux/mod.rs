//! A machine for a Linux: several vCPUs around one set of devices.
//!
//! Each vCPU has a thread, in which it is created and runs; the first has the thread
//! that the process began with. Devices at ports are behind one lock, each virtio device is
//! behind one of its own ([`slots`]): what a guest does often goes past them. A thread of
//! its own does what is slow ([`control`]). Whichever vCPU sees the end of the machine
//! ends the process, so nobody waits for anybody.

mod api;
mod control;
mod devices;
mod exits;
mod gate;
mod inbox;
mod slots;
mod statistics;

pub use devices::Devices;
pub use exits::{Cause, ExitCounts, Exits};
pub use slots::Worker;

use self::api::Api;
use self::control::Listener;
use self::gate::Gate;
use self::inbox::Inbox;
use self::slots::Slots;
use crate::console::Console;
use crate::events::Events;
use crate::file::MappedFile;
use crate::usage::Account;
use crate::virtio::Ram;
use crate::{sandbox, threads, Ending, Failure, Settings};
use std::convert::Infallible;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use trapline_abi::platform::COM1;
use trapline_interface::{
    Access, BootState, Controllers, Entry, Exit, Gpa, Hypervisor, IoAddr, IrqLine, Vcpu, VcpuId,
    Vm, VmSpec,
};
use trapline_monitor::boot::acpi::{Hardware, SerialPort, Transport};
use trapline_monitor::boot::{prepare_linux, Kernel, LinuxPlan, Prepared};
use trapline_monitor::devices::Board;

/// Where the serial port interrupts, as on every PC, and the power button.
const SERIAL_PIN: u8 = 4;
const BUTTON_PIN: u8 = 23;

/// A machine that is ready to run.
pub struct Ready<H: Hypervisor> {
    vm: H::Vm,
    ram: Ram,
    boot: BootState,
    cpus: u32,
    serial: IrqLine,
    button: IrqLine,
}

/// Makes the machine that `settings` ask for.
///
/// # Errors
/// What is wrong with them, or with the host.
pub fn set_up<H: Hypervisor>(settings: &Settings) -> Result<Ready<H>, Failure> {
    let kernel_file = MappedFile::open(&settings.image)?;
    let initrd_file = settings.initrd.as_deref().map(MappedFile::open);
    let initrd_file = initrd_file.transpose()?;
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
    settings: &Settings,
    prepared: &Prepared<'_>,
) -> Result<Ready<H>, Failure> {
    let memory = crate::setup::fill(
        settings.memory,
        (settings.pages, settings.prefault),
        prepared,
    )?;
    let vm = H::open()?.create_vm(&VmSpec {
        cpus: settings.cpus,
        paravirtual_eoi: settings.paravirtual_eoi,
        ..VmSpec::with(Controllers::Full)
    })?;
    vm.attach(Gpa(0), Arc::clone(&memory), Access::ReadWrite)?;
    Ok(Ready {
        ram: Ram::of(memory),
        serial: vm.irq_pin(SERIAL_PIN)?,
        button: vm.irq_pin(BUTTON_PIN)?,
        vm,
        boot: prepared.boot,
        cpus: settings.cpus,
    })
}

/// What all threads share, but for memory.
pub struct Common {
    devices: Mutex<Devices>,
    slots: Slots,
    inbox: Arc<Inbox>,
    listener: Listener,
    exits: Vec<Exits>,
    gate: Gate,
    button: IrqLine,
    /// Until every vCPU is there: one that starts another must find it.
    assembled: Barrier,
    settings: Settings,
    end: End,
}

/// How the process ends with the machine: whoever sees that calls this, while all others
/// are shut out.
pub type End = fn(&Common, &mut Devices, Result<Ending, Failure>) -> !;

/// Runs a machine to its end, and the process with it. `console` makes the console for the
/// first vCPU.
///
/// # Errors
/// The machine cannot be completed. Later failures are told to `end`.
pub fn run<H: Hypervisor>(
    ready: Ready<H>,
    settings: &Settings,
    console: impl FnOnce(&<H::Vm as Vm>::Vcpu) -> Result<Console, Failure>,
    events: Events,
    end: End,
) -> Result<Infallible, Failure>
where
    H::Vm: Send + Sync + 'static,
{
    settings.placement.apply(ready.cpus)?;
    threads::introduce("vcpu0");
    let api = settings.api.as_deref().map(Api::bind).transpose()?;
    let first = ready.vm.create_vcpu(VcpuId(0), Some(&ready.boot))?;
    let (slots, workers) = Slots::new(&ready.vm, &ready.ram, settings)?;
    let inbox = Arc::new(Inbox::default());
    let listener = Listener::of(&settings.command_line);
    let common = Arc::new(Common {
        devices: Mutex::new(Devices {
            board: Board::new(false).with_power().with_flow_control(),
            console: console(&first)?,
            account: events.wanted().then(Account::open),
            events,
            tsc_offset: first.tsc_offset(),
            serial: ready.serial,
            inbox: (listener == Listener::Serial).then(|| Arc::clone(&inbox)),
            wake: Arc::clone(&slots.console),
        }),
        slots,
        inbox,
        listener,
        gate: Gate::new(ready.cpus),
        button: ready.button,
        exits: (0..ready.cpus).map(|_| Exits::default()).collect(),
        assembled: Barrier::new(ready.cpus as usize),
        settings: settings.clone(),
        end,
    });
    common.gate.introduce(0, first.kicker());
    control::start(Arc::clone(&common), api, settings.sandbox)?;
    for worker in workers {
        worker.start(settings.sandbox)?;
    }
    let vm = Arc::new(ready.vm);
    for number in 1..ready.cpus {
        start_another(&vm, &common, VcpuId(number))?;
    }
    common.assembled.wait();
    sandbox::confine(settings)?;
    common.devices().begin();
    common.run(first, VcpuId(0))
}

/// A thread in which another vCPU waits until it is started.
fn start_another<M: Vm + Send + Sync + 'static>(
    vm: &Arc<M>,
    common: &Arc<Common>,
    number: VcpuId,
) -> Result<(), Failure> {
    let (vm, common) = (Arc::clone(vm), Arc::clone(common));
    threads::unconfined(&format!("vcpu{}", number.0), move || {
        threads::hear_recalls();
        let created = vm.create_vcpu(number, None);
        if let Ok(vcpu) = &created {
            common.gate.introduce(number.0, vcpu.kicker());
        }
        common.assembled.wait();
        let confined = sandbox::confine(&common.settings);
        match confined.and_then(|()| Ok(created?)) {
            Ok(vcpu) => common.run(vcpu, number),
            Err(failure) => (common.end)(&common, &mut common.devices(), Err(failure)),
        }
    })
}

impl Common {
    fn devices(&self) -> MutexGuard<'_, Devices> {
        // Who panicked has ended the process.
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exits to this program, of each vCPU.
    pub fn exits(&self) -> impl Iterator<Item = ExitCounts> + '_ {
        self.exits.iter().map(Exits::counts)
    }

    /// Ends the machine from outside of it.
    fn stop(&self, ending: Ending) -> ! {
        (self.end)(self, &mut self.devices(), Ok(ending))
    }

    /// A vCPU was recalled: it waits while the machine is paused. What it was recalled for may
    /// come before that, or meanwhile.
    fn recalled(&self) -> Option<Ending> {
        let before = self.devices().recalled();
        before.or_else(|| {
            self.gate.pass();
            self.devices().recalled()
        })
    }

    fn run<V: Vcpu>(&self, mut vcpu: V, number: VcpuId) -> ! {
        let exits = &self.exits[number.0 as usize];
        let ending = self.run_loop(&mut vcpu, exits);
        exits.count(Cause::Other);
        (self.end)(self, &mut self.devices(), ending)
    }

    fn run_loop<V: Vcpu>(&self, vcpu: &mut V, exits: &Exits) -> Result<Ending, Failure> {
        let mut entry = Entry::Resume;
        loop {
            entry = match vcpu.run(entry)? {
                Exit::Write {
                    at: IoAddr::Mmio(address),
                    size,
                    data,
                } => {
                    exits.count(Cause::Mmio);
                    if self.slots.bus.write(address, size, data).is_none() {
                        self.devices().board.write_mmio(address, size, data);
                    }
                    Entry::Resume
                }
                Exit::Read {
                    at: IoAddr::Mmio(address),
                    size,
                } => {
                    exits.count(Cause::Mmio);
                    let read = self.slots.bus.read(address, size);
                    let elsewhere = || self.devices().board.read_mmio(address, size);
                    Entry::Answer(read.unwrap_or_else(elsewhere))
                }
                Exit::Write {
                    at: IoAddr::Port(port),
                    size,
                    data,
                } => {
                    exits.count(Cause::Port);
                    match self.devices().write(port, size, data, vcpu) {
                        None => Entry::Resume,
                        Some(ending) => return Ok(ending),
                    }
                }
                Exit::Read {
                    at: IoAddr::Port(port),
                    size,
                } => {
                    exits.count(Cause::Port);
                    Entry::Answer(self.devices().read(port, size, vcpu))
                }
                Exit::Started => Entry::Resume,
                Exit::Kicked => {
                    exits.count(Cause::Other);
                    match self.recalled() {
                        None => Entry::Resume,
                        Some(ending) => return Ok(ending),
                    }
                }
                // The kernel answers those that it knows.
                Exit::Hypercall { .. } => {
                    exits.count(Cause::Hypercall);
                    Entry::Answer(u64::MAX)
                }
                Exit::Halted => return Ok(Ending::Halted),
                Exit::Stopped(stop) => return Ok(Ending::Stopped(stop)),
            }
        }
    }
}
