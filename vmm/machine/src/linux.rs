//! A machine for a Linux: several vCPUs around one set of devices.
//!
//! Each vCPU has a thread, in which it is created and runs; the first has the thread
//! that the process began with. Devices are behind one lock: what a guest does often goes past
//! them, and what goes to them is rare. Whichever vCPU sees the end of the machine
//! ends the process, so nobody waits for anybody.

use crate::console::Console;
use crate::events::Events;
use crate::file::MappedFile;
use crate::usage::Account;
use crate::{sandbox, signals, threads, Ending, Failure, Settings};
use std::convert::Infallible;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use trapline_abi::platform::COM1;
use trapline_abi::{stamp, Stage};
use trapline_boot::acpi::{Hardware, SerialPort};
use trapline_boot::{prepare_linux, Kernel, LinuxPlan, Prepared};
use trapline_devices::{Board, Counts, Effect, Host, Terminal, Trigger};
use trapline_interface::{
    Access, BootState, Controllers, Entry, Exit, Gpa, Hypervisor, IoAddr, IrqLine, Vcpu, VcpuId,
    Vm, VmSpec,
};

/// Where the serial port interrupts, as on every PC, and the power button.
const SERIAL_PIN: u8 = 4;
const BUTTON_PIN: u8 = 23;

/// A machine that is ready to run.
pub struct Ready<H: Hypervisor> {
    vm: H::Vm,
    boot: BootState,
    cpus: u32,
    serial: IrqLine,
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
    let hardware = hardware(settings.cpus);
    let plan = LinuxPlan {
        memory: settings.memory,
        command_line: &settings.command_line,
        initrd: initrd_file.as_ref().map_or(&[], MappedFile::bytes),
        hardware: &hardware,
    };
    assemble(settings, &prepare_linux(&kernel, &plan)?)
}

fn hardware(cpus: u32) -> Hardware {
    Hardware {
        cpus: cpus as u8,
        serial: Some(SerialPort {
            port: COM1,
            pin: SERIAL_PIN,
        }),
        transports: Vec::new(),
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
        ..VmSpec::with(Controllers::Full)
    })?;
    vm.attach(Gpa(0), memory, Access::ReadWrite)?;
    Ok(Ready {
        serial: vm.irq_pin(SERIAL_PIN)?,
        vm,
        boot: prepared.boot,
        cpus: settings.cpus,
    })
}

/// What all vCPUs share, but for memory.
struct Common {
    devices: Mutex<Devices>,
    /// Until every vCPU is there: one that starts another must find it.
    assembled: Barrier,
    settings: Settings,
    end: End,
}

/// How the process ends with the machine: whoever sees that calls this, while all others
/// are shut out.
pub type End = fn(&mut Devices, Result<Ending, Failure>) -> !;

/// What is behind the lock.
pub struct Devices {
    board: Board,
    /// The guest's console.
    pub console: Console,
    /// Where is told how it went.
    pub events: Events,
    /// What this process uses, where somebody wants to know.
    pub account: Option<Account>,
    /// Guest TSC minus host TSC, where it is known.
    pub tsc_offset: Option<i64>,
    serial: IrqLine,
    apart: u64,
}

impl Devices {
    /// Exits to the VMM, of all vCPUs.
    pub fn exits(&self) -> u64 {
        self.counts().ports + self.counts().mmio + self.apart
    }

    /// Accesses, of all vCPUs.
    pub fn counts(&self) -> Counts {
        self.board.counts()
    }
}

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
    let first = ready.vm.create_vcpu(VcpuId(0), Some(&ready.boot))?;
    let common = Arc::new(Common {
        devices: Mutex::new(Devices {
            board: Board::new(false).with_power(),
            console: console(&first)?,
            account: events.wanted().then(Account::open),
            events,
            tsc_offset: first.tsc_offset(),
            serial: ready.serial,
            apart: 0,
        }),
        assembled: Barrier::new(ready.cpus as usize),
        settings: settings.clone(),
        end,
    });
    let vm = Arc::new(ready.vm);
    for number in 1..ready.cpus {
        start_another(&vm, &common, VcpuId(number))?;
    }
    common.assembled.wait();
    sandbox::confine(settings)?;
    common.devices().begin();
    common.run(first)
}

/// A thread in which another vCPU waits until it is started.
fn start_another<M: Vm + Send + Sync + 'static>(
    vm: &Arc<M>,
    common: &Arc<Common>,
    number: VcpuId,
) -> Result<(), Failure> {
    let (vm, common) = (Arc::clone(vm), Arc::clone(common));
    threads::unconfined(&format!("vcpu{}", number.0), move || {
        let created = vm.create_vcpu(number, None);
        common.assembled.wait();
        let confined = sandbox::confine(&common.settings);
        match confined.and_then(|()| Ok(created?)) {
            Ok(vcpu) => common.run(vcpu),
            Err(failure) => (common.end)(&mut common.devices(), Err(failure)),
        }
    })
}

impl Common {
    fn devices(&self) -> MutexGuard<'_, Devices> {
        // Who panicked has ended the process.
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run<V: Vcpu>(&self, mut vcpu: V) -> ! {
        let ending = self.run_loop(&mut vcpu);
        (self.end)(&mut self.devices(), ending)
    }

    fn run_loop<V: Vcpu>(&self, vcpu: &mut V) -> Result<Ending, Failure> {
        let mut entry = Entry::Resume;
        loop {
            entry = match vcpu.run(entry)? {
                Exit::Write { at, size, data } => {
                    match self.devices().write(at, size, data, vcpu) {
                        None => Entry::Resume,
                        Some(ending) => return Ok(ending),
                    }
                }
                Exit::Read { at, size } => Entry::Answer(self.devices().read(at, size, vcpu)),
                Exit::Started => Entry::Resume,
                Exit::Kicked => match self.devices().recalled() {
                    None => Entry::Resume,
                    Some(ending) => return Ok(ending),
                },
                // The kernel answers those that it knows.
                Exit::Hypercall { .. } => Entry::Answer(u64::MAX),
                Exit::Halted => return Ok(Ending::Halted),
                Exit::Stopped(stop) => return Ok(Ending::Stopped(stop)),
            }
        }
    }
}

impl Devices {
    /// The last moment before the guest's first instruction.
    fn begin(&mut self) {
        self.events.stage(Stage::VmmEntry, stamp!(VmmEntry));
        self.events.flush();
    }

    fn write(&mut self, at: IoAddr, size: u8, data: u64, vcpu: &mut impl Vcpu) -> Option<Ending> {
        let (board, mut around) = self.split(vcpu);
        match at {
            IoAddr::Port(port) => ending_of(board.write_port(port, size, data as u32, &mut around)),
            IoAddr::Mmio(address) => {
                board.write_mmio(address, size, data);
                None
            }
        }
    }

    fn read(&mut self, at: IoAddr, size: u8, vcpu: &mut impl Vcpu) -> u64 {
        let (board, mut around) = self.split(vcpu);
        match at {
            IoAddr::Port(port) => board.read_port(port, size, &mut around).into(),
            IoAddr::Mmio(address) => board.read_mmio(address, size),
        }
    }

    fn split<'a, V>(&'a mut self, vcpu: &'a mut V) -> (&'a mut Board, Around<'a, V>) {
        let around = Around {
            console: &mut self.console,
            serial: &self.serial,
            vcpu,
        };
        (&mut self.board, around)
    }

    fn recalled(&mut self) -> Option<Ending> {
        self.apart += 1;
        self.console.flush();
        let deaf = self.console.failure().map(|_| Ending::Deaf);
        signals::stopped().map(Ending::Signal).or(deaf)
    }
}

/// What a write means for the machine.
fn ending_of(effect: Effect) -> Option<Ending> {
    match effect {
        Effect::Exit(value) => Some(Ending::of_exit(value)),
        Effect::Off => Some(Ending::Done),
        Effect::Reset => Some(Ending::Reset),
        // Not offered here, or of no consequence.
        Effect::None
        | Effect::Idle(_)
        | Effect::Frame(_)
        | Effect::Tick(_)
        | Effect::Populate(_) => None,
    }
}

/// What the devices see of the machine around them.
struct Around<'a, V> {
    console: &'a mut Console,
    serial: &'a IrqLine,
    vcpu: &'a mut V,
}

impl<V> Terminal for Around<'_, V> {
    fn say(&mut self, byte: u8) {
        self.console.send(byte);
    }

    fn has_room(&self) -> bool {
        self.console.has_room()
    }

    fn hear(&mut self) -> Option<u8> {
        self.console.get()
    }
}

impl<V> Trigger for Around<'_, V> {
    fn trigger(&mut self) {
        // The guest polls where its interrupt cannot be delivered.
        let _delivered = self.serial.trigger();
    }
}

impl<V: Vcpu> Host for Around<'_, V> {
    fn print(&mut self, byte: u8) {
        self.console.put(byte);
    }

    fn exits(&mut self, accesses: u64) -> u64 {
        self.console.flush();
        self.vcpu.tally().kernel.unwrap_or(accesses)
    }
}
