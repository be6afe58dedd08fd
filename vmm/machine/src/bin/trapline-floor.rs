//! Measures the cost of an exit without a VMM.
//!
//! A guest accesses a port or a register in a loop, with the same instructions as the image's workloads, and
//! measures the time itself. Variants: `unfiltered` calls KVM_RUN in a loop and ignores the exits; `filtered`
//! does the same under the seccomp filter; `vmm` uses the run loop of `trapline-vmm` under the filter; `kernel`
//! writes to an ioeventfd, without an exit to user space. Prints ticks per access as lines of `name`, tab,
//! `value`.
//!
//! Exit status: 0, 77 without /dev/kvm, or 1.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use trapline_abi::platform::{EXIT, VIRTIO_DEVICE_FEATURES_SEL, VIRTIO_MMIO};
use trapline_interface::{Entry, Exit, Gpa, IoAddr, RegSet, Region, Vcpu, VcpuState, Vm};
use trapline_kvm::{Kvm, KvmVcpu, KvmVm};
use trapline_machine::console::Console;
use trapline_machine::setup::{assemble, native_ring, Ready};
use trapline_machine::shell::Host;
use trapline_machine::{sandbox, Failure, Machine, StopReason};
use trapline_monitor::boot::test_image::{direct_note, TestImage, BASE};
use trapline_monitor::boot::{EntryPoint, Image, Plan};
use trapline_monitor::virtio::QUEUE_NOTIFY;

const SKIPPED: i32 = 77;

/// Number of batches, and accesses per batch. The first batches warm up. Most batches end before the next timer
/// interrupt of the host.
const BATCHES: u64 = 24;
const WARM_UP: usize = 4;
const ACCESSES: u64 = 200;

/// Address of the results.
const RESULTS: u64 = BASE + 0x100;

/// A measured access.
struct Access {
    name: &'static str,
    code: &'static [u8],
    /// Initial value of rbx.
    address: u64,
}

/// The same instructions as in the image.
const PORT_OUT: Access = Access {
    name: "port-out",
    code: &[
        0x66, 0xba, 0xff, 0x03, // mov dx, 0x3ff
        0xb0, 0x5a, // mov al, 0x5a
        0xee, // out dx, al
    ],
    address: 0,
};

const MMIO_WRITE: Access = Access {
    name: "mmio-write",
    code: &[0x89, 0x03], // mov [rbx], eax
    address: VIRTIO_MMIO + VIRTIO_DEVICE_FEATURES_SEL,
};

const MMIO_READ: Access = Access {
    name: "mmio-read",
    code: &[0x8b, 0x03], // mov eax, [rbx]
    address: VIRTIO_MMIO,
};

const NOTIFICATION: Access = Access {
    name: "notification",
    address: VIRTIO_MMIO + QUEUE_NOTIFY as u64,
    ..MMIO_WRITE
};

/// Bytes of the loop around an access, and of a batch around the loop.
const AROUND_ACCESS: u8 = 5;
const AROUND_BATCH: u8 = 59;

/// Assembles the guest; r8: batches, r9: accesses per batch, r10: address of the results.
#[rustfmt::skip]
fn guest(access: &Access) -> Vec<u8> {
    let length = access.code.len() as u8;
    let (again, batch) = ((AROUND_ACCESS + length).wrapping_neg(), (AROUND_BATCH + length).wrapping_neg());
    [
    // a batch: how many, and the clock before
    &[0x4d, 0x89, 0xcb][..],           // mov r11, r9
    &[0x0f, 0xae, 0xe8],               // lfence
    &[0x0f, 0x31],                     // rdtsc
    &[0x0f, 0xae, 0xe8],               // lfence
    &[0x48, 0x89, 0xd6],               // mov rsi, rdx
    &[0x48, 0x89, 0xc7],               // mov rdi, rax
    // the loop: access, count, again
    access.code,
    &[0x49, 0xff, 0xcb],               // dec r11
    &[0x75, again],                    // jnz back to the access
    // the clock after
    &[0x0f, 0xae, 0xe8],               // lfence
    &[0x0f, 0x31],                     // rdtsc
    &[0x0f, 0xae, 0xe8],               // lfence
    // what it took
    &[0x48, 0xc1, 0xe6, 0x20],         // shl rsi, 0x20
    &[0x48, 0x09, 0xfe],               // or rsi, rdi
    &[0x48, 0xc1, 0xe2, 0x20],         // shl rdx, 0x20
    &[0x48, 0x09, 0xd0],               // or rax, rdx
    &[0x48, 0x29, 0xf0],               // sub rax, rsi
    &[0x49, 0x89, 0x02],               // mov [r10], rax
    // the next batch; in the end, the exit port
    &[0x49, 0x83, 0xc2, 0x08],         // add r10, 0x8
    &[0x49, 0xff, 0xc8],               // dec r8
    &[0x75, batch],                    // jnz back to the batch
    &[0xb8, 0x10, 0x00, 0x00, 0x00],   // mov eax, 0x10
    &[0x66, 0xba, 0x01, 0x05],         // mov dx, 0x501
    &[0xef],                           // out dx, eax
    &[0x0f, 0x0b],                     // ud2
    ].concat()
}

fn main() {
    let status = match run() {
        Ok(()) => 0,
        Err(Failure::Missing(missing)) => {
            eprintln!("trapline-floor: skipped: {missing}");
            SKIPPED
        }
        Err(failure) => {
            eprintln!("trapline-floor: {failure}");
            1
        }
    };
    // SAFETY: ends the process; the filter forbids the exit handlers of std.
    unsafe { libc::_exit(status) }
}

fn run() -> Result<(), Failure> {
    // The filter forbids creating and freeing VMs.
    let accesses = [PORT_OUT, MMIO_WRITE, MMIO_READ];
    let machines = || accesses.iter().map(machine).collect::<Result<Vec<_>, _>>();
    let mut unfiltered = ManuallyDrop::new(machines()?);
    let mut filtered = ManuallyDrop::new(machines()?);
    let mut real = ManuallyDrop::new(machines()?.into_iter().map(wire).collect::<Vec<_>>());
    let mut rung = ManuallyDrop::new(with_doorbell()?);
    for (access, machine) in accesses.iter().zip(unfiltered.iter_mut()) {
        print(access, "unfiltered", &run_blindly(machine)?);
    }
    sandbox::enter(sandbox::Role::Vcpu, true)?;
    for (access, machine) in accesses.iter().zip(filtered.iter_mut()) {
        print(access, "filtered", &run_blindly(machine)?);
    }
    for (access, (machine, memory)) in accesses.iter().zip(real.iter_mut()) {
        match machine.run(|| ())? {
            StopReason::Done => print(access, "vmm", &results(memory)),
            other => return Err(astray(&other.to_string())),
        }
    }
    print(&NOTIFICATION, "kernel", &run_to_its_end(&mut rung)?);
    Ok(())
}

/// Wraps a VM in the real run loop.
fn wire(ready: Ready<KvmVm>) -> (Machine<KvmVcpu>, Arc<Region>) {
    let kicker = ready.vcpu.kicker();
    let console = Console::new(libc::STDOUT_FILENO, libc::STDIN_FILENO, kicker);
    let interrupts = Some(Gpa(direct_note().interrupts));
    let memory = Arc::clone(&ready.memory);
    let host = Host::new(console);
    (
        Machine::new(ready.vcpu, host, ready.memory, interrupts, ready.ring),
        memory,
    )
}

/// Creates a VM with a doorbell that is never read.
fn with_doorbell() -> Result<Ready<KvmVm>, Failure> {
    let ready = machine(&NOTIFICATION)?;
    let bell = ready.vm.doorbell(IoAddr::Mmio(NOTIFICATION.address))?;
    // Leaked, so that it stays registered.
    std::mem::forget(bell);
    Ok(ready)
}

fn machine(access: &Access) -> Result<Ready<KvmVm>, Failure> {
    let bytes = TestImage::direct(&guest(access)).bytes();
    let image = Image::parse(&bytes).map_err(|error| Failure::Boot(error.into()))?;
    let plan = Plan {
        memory: 4 << 20,
        command_line: "",
        way: EntryPoint::Direct {
            ring: native_ring(trapline_kvm::ring0()),
        },
    };
    let mut ready = assemble::<Kvm>(&image, &plan, false)?;
    let general = ready.vcpu.state(RegSet::GENERAL)?.general;
    let mut general = general.unwrap_or_default();
    (general.r8, general.r9, general.r10) = (BATCHES, ACCESSES, RESULTS);
    general.rbx = access.address;
    ready.vcpu.set_state(&VcpuState::from(general))?;
    Ok(ready)
}

/// Enters the guest once per access and ignores the exits but the last.
fn run_blindly(ready: &mut Ready<KvmVm>) -> Result<Vec<u64>, Failure> {
    ready
        .vcpu
        .run_blindly(BATCHES * ACCESSES)
        .map_err(Failure::system("run the guest"))?;
    run_to_its_end(ready)
}

/// Runs to the next exit, which is the last.
fn run_to_its_end(ready: &mut Ready<KvmVm>) -> Result<Vec<u64>, Failure> {
    let mut exit = ready.vcpu.run(Entry::Resume)?;
    if exit == Exit::Started {
        exit = ready.vcpu.run(Entry::Resume)?;
    }
    match exit {
        Exit::Write {
            at: IoAddr::Port(EXIT),
            ..
        } => Ok(results(&ready.memory)),
        other => Err(astray(&other.to_string())),
    }
}

fn astray(what: &str) -> Failure {
    Failure::Usage(format!("the guest went astray: {what}"))
}

/// Reads the batch times without warm-up, sorted.
fn results(memory: &Region) -> Vec<u64> {
    let at = |index: u64| {
        let mut bytes = [0; 8];
        let read = memory.read(RESULTS + index * 8, &mut bytes);
        read.map_or(0, |()| u64::from_le_bytes(bytes))
    };
    let mut results: Vec<u64> = (0..BATCHES).map(at).skip(WARM_UP).collect();
    results.sort_unstable();
    results
}

fn print(access: &Access, around: &str, results: &[u64]) {
    let each = |ticks: u64| ticks as f64 / ACCESSES as f64;
    let name = access.name;
    println!("{name}/{around}/min\t{:.3}", each(results[0]));
    let median = each(results[results.len() / 2]);
    println!("{name}/{around}/median\t{median:.3}");
}
