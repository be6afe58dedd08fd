//! `trapline-vmm`: one image, one machine, one process.
//!
//! It is entered from the C library directly. What Rust's own runtime does before
//! `main` - it reads /proc/self/maps, makes a signal stack and handlers for stack
//! overflow - would come before the guest's first instruction, too.
#![no_main]

use std::convert::Infallible;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::panic;
use std::sync::Arc;
use trapline_abi::record::Counter;
use trapline_abi::{stamp, Stage};
use trapline_interface::Vcpu;
use trapline_kvm::{Kvm, KvmVcpu};
use trapline_machine::console::Console;
use trapline_machine::events::Events;
use trapline_machine::line::Line;
use trapline_machine::linux::{self, Common, Devices, ExitCounts};
use trapline_machine::populate::Memory;
use trapline_machine::settings::{parse, Guest, Request, HELP};
use trapline_machine::setup::{set_up, Ready};
use trapline_machine::ticker::Ticker;
use trapline_machine::usage::{cpu_time, Account};
use trapline_machine::{sandbox, signals, Ending, Failure, Machine, Settings};

const INTERNAL: i32 = 5;

/// Where the C library enters; arguments are taken from the standard library.
#[no_mangle]
pub extern "C" fn main() -> libc::c_int {
    let begun = stamp!(VmmMain);
    panic::set_hook(Box::new(|why| {
        complain(&why);
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

/// Runs a machine to its end, and the process with it.
fn run(settings: &Settings, begun: u64) -> Result<Infallible, Failure> {
    if let Some(seconds) = settings.seconds {
        signals::end_after(seconds);
    }
    let mut events = Events::new(settings.events);
    events.stage(Stage::VmmMain, begun);
    match settings.guest {
        Guest::Image => run_image(settings, events),
        Guest::Linux => run_linux(settings, events),
    }
}

fn run_image(settings: &Settings, mut events: Events) -> Result<Infallible, Failure> {
    let ready = set_up::<Kvm>(settings, trapline_kvm::ring0())?;
    events.stage(Stage::VmCreated, stamp!(VmCreated));
    let Ready {
        vm,
        vcpu,
        memory,
        interrupts,
        ring,
    } = ready;
    let account = events.wanted().then(Account::open);
    let console = console(settings, &vcpu)?;
    let machine = Machine::new(vcpu, console, Arc::clone(&memory), interrupts);
    let mut machine = match settings.ticker {
        false => machine,
        true => machine.with_ticker(Ticker::start(&vm, memory, settings.sandbox)?),
    };
    // The machine stays as long as its vCPU, whoever holds it.
    if let Some(how) = settings.populate {
        machine = machine.with_giver(Box::new(Memory::new(vm, how)));
    }
    sandbox::confine(settings)?;
    let ending = machine.run(|| {
        events.stage(Stage::VmmEntry, stamp!(VmmEntry));
        events.flush();
    });
    events.stage(Stage::VmmExit, stamp!(VmmExit));
    tell_counts(&mut events, &mut machine, account.as_ref(), ring);
    leave_with(ending)
}

fn run_linux(settings: &Settings, mut events: Events) -> Result<Infallible, Failure> {
    one_arena();
    let ready = linux::set_up::<Kvm>(settings)?;
    events.stage(Stage::VmCreated, stamp!(VmCreated));
    let console = |vcpu: &KvmVcpu| console(settings, vcpu);
    linux::run(
        ready,
        settings,
        console,
        events,
        |common, devices, ending| {
            devices.console.finish();
            devices.events.stage(Stage::VmmExit, stamp!(VmmExit));
            tell_counts_of_linux(common, devices);
            leave_with(ending)
        },
    )
}

/// One heap for all threads: it grows by a call that their filters allow, and is small.
fn one_arena() {
    // SAFETY: sets a number of the C library's; no other thread is there yet.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

fn tell_counts_of_linux(common: &Common, devices: &mut Devices) {
    let exits = common.exits().fold(ExitCounts::default(), ExitCounts::and);
    tell(
        &[
            (Counter::UserExits, Some(exits.all())),
            (Counter::PortExits, Some(exits.port)),
            (Counter::MmioExits, Some(exits.mmio)),
            (Counter::Unclaimed, Some(devices.counts().unclaimed)),
            (
                Counter::OwnMemory,
                devices.account.as_ref().and_then(Account::own_memory),
            ),
            (Counter::CpuTime, cpu_time()),
            (
                Counter::TscOffset,
                devices.tsc_offset.map(|offset| offset as u64),
            ),
        ],
        &mut devices.events,
    );
}

fn tell(counts: &[(Counter, Option<u64>)], events: &mut Events) {
    for (counter, value) in counts {
        if let Some(value) = value {
            events.count(*counter, *value);
        }
    }
    events.flush();
}

/// The console; SIGTERM and SIGINT recall `vcpu`, which this thread will run.
fn console(settings: &Settings, vcpu: &impl Vcpu) -> Result<Console, Failure> {
    let kicker = vcpu.kicker();
    signals::recall(kicker.clone());
    let console = Console::new(libc::STDOUT_FILENO, libc::STDIN_FILENO, kicker);
    let line = Line::open(settings.serial, io::stdout().as_fd(), settings.sandbox)?;
    Ok(console.with_line(line))
}

fn leave_with(ending: Result<Ending, Failure>) -> ! {
    leave(match ending {
        Ok(ending) => explain(ending),
        Err(failure) => report(&failure),
    })
}

fn tell_counts<V: Vcpu>(
    events: &mut Events,
    machine: &mut Machine<V>,
    account: Option<&Account>,
    ring: u8,
) {
    if !events.wanted() {
        return;
    }
    let totals = machine.totals();
    let own_memory = account.and_then(Account::own_memory);
    let counts = [
        (Counter::UserExits, Some(totals.user_exits)),
        (Counter::KernelExits, totals.kernel_exits),
        (Counter::PortExits, Some(totals.ports)),
        (Counter::MmioExits, Some(totals.mmio)),
        (Counter::HaltExits, Some(totals.halts)),
        (Counter::Unclaimed, Some(totals.unclaimed)),
        (Counter::OwnMemory, own_memory),
        (Counter::CpuTime, cpu_time()),
        (
            Counter::TscOffset,
            machine.tsc_offset().map(|offset| offset as u64),
        ),
        (Counter::Ring, Some(ring.into())),
    ];
    tell(&counts, events);
}

fn explain(ending: Ending) -> i32 {
    if !matches!(ending, Ending::Done | Ending::Panicked) {
        complain(&ending);
    }
    ending.status()
}

fn report(failure: &Failure) -> i32 {
    complain(failure);
    failure.status()
}

fn print(text: &str) -> Result<i32, Failure> {
    let printed = io::stdout().write_all(text.as_bytes());
    printed
        .map(|()| 0)
        .map_err(Failure::system("write to standard output"))
}

fn complain(what: &dyn std::fmt::Display) {
    let _nobody_may_listen = writeln!(io::stderr(), "trapline-vmm: {what}");
}

/// Ends the process without giving anything back: the kernel does that faster.
fn leave(status: i32) -> ! {
    // SAFETY: nothing is left to be done.
    unsafe { libc::_exit(status) }
}
