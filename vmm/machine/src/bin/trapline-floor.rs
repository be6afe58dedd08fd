//! The floor: what an exit costs with no VMM around it.
//!
//! A guest writes to a port in a loop, the same instructions as the image's own
//! `port-out`, and takes the time itself. Three machines like those of
//! `trapline-vmm` run it, and each prints ticks per write as lines of `name`, tab,
//! `value`: one around which KVM_RUN is called again and again without a look at why
//! it came back (`unfiltered`), the same under the seccomp filter (`filtered`), and
//! one in the real loop of `trapline-vmm`, under the filter as well (`vmm`).
//!
//! Exit status 0, or 77 where there is no /dev/kvm, or 1.

use std::mem::ManuallyDrop;
use trapline_boot::specimen::{direct_note, Specimen, BASE};
use trapline_boot::{Image, Plan, Way};
use trapline_interface::{Entry, Exit, Gpa, RegSet, Region, Vcpu, VcpuState};
use trapline_kvm::{Kvm, KvmVcpu};
use trapline_machine::console::Console;
use trapline_machine::setup::{assemble, native_ring, Ready};
use trapline_machine::{sandbox, Ending, Failure, Machine};

const SKIPPED: i32 = 77;

/// Batches, and writes in each. The first batches warm up.
const BATCHES: u64 = 24;
const WARM_UP: usize = 4;
const WRITES: u64 = 1_000;

/// Where the guest leaves what its batches took.
const RESULTS: u64 = BASE + 0x100;

/// The guest; r8 batches, r9 writes in each, r10 where to leave the results.
#[rustfmt::skip]
const GUEST: &[&[u8]] = &[
    // a batch: how many, and the clock before
    &[0x4d, 0x89, 0xcb],               // mov r11, r9
    &[0x0f, 0xae, 0xe8],               // lfence
    &[0x0f, 0x31],                     // rdtsc
    &[0x0f, 0xae, 0xe8],               // lfence
    &[0x48, 0x89, 0xd6],               // mov rsi, rdx
    &[0x48, 0x89, 0xc7],               // mov rdi, rax
    // the loop, as in the image: load, out, count, again
    &[0x66, 0xba, 0xff, 0x03],         // mov dx, 0x3ff
    &[0xb0, 0x5a],                     // mov al, 0x5a
    &[0xee],                           // out dx, al
    &[0x49, 0xff, 0xcb],               // dec r11
    &[0x75, 0xf4],                     // jnz back to the loop
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
    &[0x75, 0xbe],                     // jnz back to the batch
    &[0xb8, 0x10, 0x00, 0x00, 0x00],   // mov eax, 0x10
    &[0x66, 0xba, 0x01, 0x05],         // mov dx, 0x501
    &[0xef],                           // out dx, eax
    &[0x0f, 0x0b],                     // ud2
];

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
    // SAFETY: nothing is left to be done, and what the standard library would do
    // at the end the filter forbids.
    unsafe { libc::_exit(status) }
}

fn run() -> Result<(), Failure> {
    // Under the filter no machine can be made, and none be given back.
    let mut unfiltered = ManuallyDrop::new(machine()?);
    let mut filtered = ManuallyDrop::new(machine()?);
    let real = machine()?;
    let memory = ManuallyDrop::new(real.memory.clone());
    let mut real = ManuallyDrop::new(wire(real));
    print("unfiltered", &run_blindly(&mut unfiltered)?);
    sandbox::enter(sandbox::Role::Vcpu).map_err(Failure::system("put on the seccomp filter"))?;
    print("filtered", &run_blindly(&mut filtered)?);
    match real.run(|| ())? {
        Ending::Done => print("vmm", &results(&memory)),
        other => return Err(astray(&other.to_string())),
    }
    Ok(())
}

fn wire(ready: Ready<Kvm>) -> Machine<KvmVcpu> {
    let kicker = ready.vcpu.kicker();
    let console = Console::new(libc::STDOUT_FILENO, libc::STDIN_FILENO, kicker);
    let interrupts = Some(Gpa(direct_note().interrupts));
    Machine::new(ready.vcpu, console, ready.memory, interrupts)
}

fn machine() -> Result<Ready<Kvm>, Failure> {
    let bytes = Specimen::direct(&GUEST.concat()).bytes();
    let image = Image::parse(&bytes).map_err(|error| Failure::Boot(error.into()))?;
    let plan = Plan {
        memory: 4 << 20,
        command_line: "",
        way: Way::Direct {
            ring: native_ring(trapline_kvm::ring0()),
        },
    };
    let mut ready = assemble::<Kvm>(&image, &plan, false)?;
    let general = ready.vcpu.state(RegSet::GENERAL)?.general;
    let mut general = general.unwrap_or_default();
    (general.r8, general.r9, general.r10) = (BATCHES, WRITES, RESULTS);
    ready.vcpu.set_state(&VcpuState::from(general))?;
    Ok(ready)
}

/// Enters the guest once for each write, and looks only at the last exit.
fn run_blindly(ready: &mut Ready<Kvm>) -> Result<Vec<u64>, Failure> {
    ready
        .vcpu
        .run_blindly(BATCHES * WRITES)
        .map_err(Failure::system("run the guest"))?;
    match ready.vcpu.run(Entry::Resume)? {
        Exit::Write { .. } => Ok(results(&ready.memory)),
        other => Err(astray(&other.to_string())),
    }
}

fn astray(what: &str) -> Failure {
    Failure::Usage(format!("the guest went astray: {what}"))
}

/// What the batches took, without the first ones, sorted.
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

fn print(name: &str, results: &[u64]) {
    let each = |ticks: u64| ticks as f64 / WRITES as f64;
    println!("port-out/{name}/min\t{:.3}", each(results[0]));
    println!(
        "port-out/{name}/median\t{:.3}",
        each(results[results.len() / 2])
    );
}
