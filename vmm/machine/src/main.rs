//! `trapline-vmm`: runs one VM in one process.
//!
//! The C library calls `main` directly. Rust's runtime would read /proc/self/maps and install a signal stack and
//! handlers for stack overflow, which delays the guest's first instruction.
#![no_main]

use std::convert::Infallible;
use std::io::{self, Write};
use std::panic;
use std::sync::Arc;
use trapline_abi::record::Counter;
use trapline_abi::{stamp, Stage};
use trapline_interface::{has_huge_pages, Hypervisor, Ring0, Vcpu, Vm};
use trapline_kvm::{Kvm, KvmUserApic, KvmVcpu};
use trapline_machine::console::Console;
use trapline_machine::events::Events;
use trapline_machine::hotplug::VmMemory;
use trapline_machine::image_devices::ImageDevices;
use trapline_machine::linux::{self, Common, Report};
use trapline_machine::settings::{parse, Backend, Guest, Request, HELP};
use trapline_machine::setup::{adopt, set_up, Ready};
use trapline_machine::shell::Host;
use trapline_machine::stop::{exit_status, leave, print_error};
use trapline_machine::ticker::Ticker;
use trapline_machine::usage::{cpu_time, MemoryUsage};
use trapline_machine::{
    descriptors, privileges, sandbox, secondary, signals, Failure, Machine, StopReason, VmConfig,
};
use trapline_monitor::{Devices, ExitCounters, ExitCounts};
use trapline_process::Process;

const INTERNAL: i32 = 5;

/// Entry from the C library; std provides the arguments.
#[no_mangle]
pub extern "C" fn main() -> libc::c_int {
    let begun = stamp!(VmmMain);
    panic::set_hook(Box::new(|why| {
        print_error(&why);
        leave(INTERNAL);
    }));
    let status = match parse(lexopt::Parser::from_env()) {
        Ok(Request::Run(settings)) => run(&settings, begun).map(|never| match never {}),
        Ok(Request::Help) => print(HELP),
        Ok(Request::Version) => print(concat!("trapline-vmm ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(failure) => Err(failure),
    };
    leave(status.unwrap_or_else(|failure| report(&failure)))
}

/// Runs a VM until the process ends.
fn run(settings: &VmConfig, begun: u64) -> Result<Infallible, Failure> {
    if let Some(seconds) = settings.seconds {
        signals::set_time_limit(seconds);
    }
    signals::ignore_file_limit();
    descriptors::close_others(settings)?;
    let mut events = Events::new(settings.events);
    events.stage(Stage::VmmMain, begun);
    match (settings.guest, settings.backend) {
        (Guest::Image, Backend::Kvm) => {
            let mut ready = set_up(settings, Kvm::open, trapline_kvm::ring0())?;
            let secondary = std::mem::take(&mut ready.secondary);
            let start = || secondary::start(secondary, settings, |failure| leave(report(failure)));
            run_ready(settings, ready, events, start)
        }
        (Guest::Image, Backend::KvmUserApic) => {
            let ready = set_up(settings, KvmUserApic::open, trapline_kvm::ring0())?;
            run_ready(settings, ready, events, || Ok(()))
        }
        (Guest::Image, Backend::Process) => {
            let open = || Ok(Process::configured(settings.process));
            let ready = set_up(settings, open, Ring0::Emulated)?;
            run_ready(settings, ready, events, || Ok(()))
        }
        (Guest::Image, Backend::Xen) => run_ready(settings, adopt(settings)?, events, || Ok(())),
        (Guest::Linux, _) => run_linux(settings, events),
    }
}

/// Runs an image. `start_secondary` starts the threads of further vCPUs.
fn run_ready<V: Vm + Send + 'static>(
    settings: &VmConfig,
    ready: Ready<V>,
    mut events: Events,
    start_secondary: impl FnOnce() -> Result<(), Failure>,
) -> Result<Infallible, Failure> {
    events.stage(Stage::VmCreated, stamp!(VmCreated));
    let Ready {
        vm,
        vcpu,
        memory,
        interrupts,
        ring,
        ..
    } = ready;
    let mut devices = if settings.has_devices() {
        Some(ImageDevices::open(&vm, &memory, settings)?)
    } else {
        None
    };
    let usage = events.wanted().then(|| MemoryUsage::open(&memory));
    let has_huge_pages = settings.populate.is_some() && has_huge_pages();
    if settings.backend != Backend::Process {
        privileges::drop_all(settings.user, settings.chroot.as_deref())?;
    }
    if let Some(devices) = &mut devices {
        devices.start(settings.sandbox)?;
    }
    let mut host = Host::new(console(settings, &vcpu)?);
    if settings.ticker {
        host.ticker = Some(Ticker::start(&vm, Arc::clone(&memory), settings.sandbox)?);
    }
    // The VM lives as long as its vCPU.
    if let Some(how) = settings.populate {
        host.memory = Some(Box::new(VmMemory::new(vm, how, has_huge_pages)));
    }
    start_secondary()?;
    let mut machine = Machine::new(vcpu, host, memory, interrupts, ring);
    sandbox::enter(settings.role(), settings.sandbox)?;
    let starting = || {
        events.stage(Stage::VmmEntry, stamp!(VmmEntry));
        events.flush();
    };
    let reason = match devices {
        None => machine.run(starting),
        Some(devices) => devices.run(&mut machine, starting),
    };
    machine.vcpu.end();
    events.stage(Stage::VmmExit, stamp!(VmmExit));
    if events.wanted() {
        let counts = image_counts(&mut machine);
        let offset = machine.vcpu.tsc_offset();
        report_counts(&counts, usage.as_ref(), offset, &mut events);
        events.count(Counter::Ring, ring.into());
        events.flush();
    }
    exit_with(reason)
}

/// Returns the counts of the first vCPU, the only one with devices.
fn image_counts(machine: &mut Machine<impl Vcpu>) -> [(Counter, Option<u64>); 6] {
    let exits = machine.exits.counts();
    let stats = machine.vcpu.stats();
    [
        (
            Counter::UserExits,
            Some(exits.all() - stats.string_elements),
        ),
        (Counter::KernelExits, stats.kernel_exits),
        (Counter::PortExits, Some(exits.port)),
        (Counter::MmioExits, Some(exits.mmio)),
        (Counter::HaltExits, Some(exits.halt)),
        (Counter::Unclaimed, Some(machine.devices.io.unclaimed())),
    ]
}

fn run_linux(settings: &VmConfig, mut events: Events) -> Result<Infallible, Failure> {
    limit_malloc_arenas();
    let ready = linux::set_up::<Kvm>(settings)?;
    events.stage(Stage::VmCreated, stamp!(VmCreated));
    let console = |vcpu: &KvmVcpu| console(settings, vcpu);
    linux::run(
        ready,
        settings,
        console,
        events,
        |common, devices, report, result| {
            devices.shell.console.report_dropped();
            report.events.stage(Stage::VmmExit, stamp!(VmmExit));
            report_linux_counts(common, devices, report);
            exit_with(result)
        },
    )
}

/// Limits malloc to one arena, which is smaller and grows by `brk`, as the seccomp filters allow.
fn limit_malloc_arenas() {
    // SAFETY: sets a parameter of malloc; no other thread exists.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

fn report_linux_counts(common: &Common, devices: &Devices<Host>, report: &mut Report) {
    let exits: ExitCounts = common.exits.iter().map(ExitCounters::counts).sum();
    let counts = [
        (Counter::UserExits, Some(exits.all())),
        (Counter::PortExits, Some(exits.port)),
        (Counter::MmioExits, Some(exits.mmio)),
        (Counter::Unclaimed, Some(devices.io.unclaimed())),
    ];
    let Report {
        events,
        usage,
        tsc_offset,
    } = report;
    report_counts(&counts, usage.as_ref(), *tsc_offset, events);
    events.flush();
}

fn report_counts(
    counts: &[(Counter, Option<u64>)],
    usage: Option<&MemoryUsage>,
    tsc_offset: Option<i64>,
    events: &mut Events,
) {
    let own = [
        (Counter::OwnMemory, usage.and_then(MemoryUsage::own_memory)),
        (Counter::CpuTime, cpu_time()),
        (Counter::TscOffset, tsc_offset.map(|offset| offset as u64)),
    ];
    for (counter, value) in counts.iter().chain(&own) {
        if let Some(value) = value {
            events.count(*counter, *value);
        }
    }
}

/// Creates the console. SIGTERM and SIGINT kick `vcpu`, which this thread will run.
fn console(settings: &VmConfig, vcpu: &impl Vcpu) -> Result<Console, Failure> {
    let kicker = vcpu.kicker();
    signals::kick_on_stop(kicker.clone());
    Console::open(settings, kicker)
}

fn exit_with(result: Result<StopReason, Failure>) -> ! {
    leave(match result {
        Ok(reason) => {
            if !matches!(reason, StopReason::Done | StopReason::Panicked) {
                print_error(&reason);
            }
            exit_status(reason)
        }
        Err(failure) => report(&failure),
    })
}

fn report(failure: &Failure) -> i32 {
    print_error(failure);
    failure.status()
}

fn print(text: &str) -> Result<i32, Failure> {
    let printed = io::stdout().write_all(text.as_bytes());
    printed
        .map(|()| 0)
        .map_err(Failure::system("write to standard output"))
}
