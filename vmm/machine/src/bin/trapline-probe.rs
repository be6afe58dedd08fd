//! Prints the capabilities of /dev/kvm, and the measured speed of ring-0 guest code, because flags can be wrong.
//!
//! Prints lines of `name`, tab, `value`. Exit status: 0, 77 without /dev/kvm, or 1; standard error names the
//! reason.

use std::process::ExitCode;
use trapline_interface::{Entry, Exit, Hypervisor, Vcpu};
use trapline_kvm::Kvm;
use trapline_machine::setup::assemble;
use trapline_machine::Failure;
use trapline_monitor::boot::test_image::TestImage;
use trapline_monitor::boot::{EntryPoint, Image, Plan};

const SKIPPED: u8 = 77;

/// Iterations of the loop, as in the guest's `mov ecx`: 0.1 s if ring 0 is emulated, otherwise 50 us.
const TURNS: u32 = 20_000;

/// Writes the duration of the loop in ticks to a port.
#[rustfmt::skip]
const GUEST: &[&[u8]] = &[
    &[0xb9, 0x20, 0x4e, 0x00, 0x00],   // mov ecx, 20000
    &[0x0f, 0x31],                     // rdtsc
    &[0x89, 0xc6],                     // mov esi, eax
    &[0xff, 0xc9],                     // dec ecx
    &[0x75, 0xfc],                     // jnz back to the dec
    &[0x0f, 0x31],                     // rdtsc
    &[0x29, 0xf0],                     // sub eax, esi
    &[0x66, 0xba, 0x01, 0x05],         // mov dx, 0x501
    &[0xef],                           // out dx, eax
    &[0x0f, 0x0b],                     // ud2
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Missing(missing)) => {
            eprintln!("trapline-probe: skipped: {missing}");
            ExitCode::from(SKIPPED)
        }
        Err(failure) => {
            eprintln!("trapline-probe: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let caps = Kvm::probe()?;
    println!("caps\t{caps:?}");
    println!("ring0-turns\t{TURNS}");
    println!("ring0-ticks\t{}", time_ring0()?);
    Ok(())
}

/// Returns the duration of the loop at ring 0, in ticks.
fn time_ring0() -> Result<u32, Failure> {
    let bytes = TestImage::direct(&GUEST.concat()).bytes();
    let image = Image::parse(&bytes).map_err(|error| Failure::Boot(error.into()))?;
    let plan = Plan {
        memory: 4 << 20,
        command_line: "",
        way: EntryPoint::Direct { ring: 0 },
    };
    let mut ready = assemble::<Kvm>(&image, &plan, false)?;
    loop {
        match ready.vcpu.run(Entry::Resume)? {
            Exit::Started => {}
            Exit::Write { data, .. } => return Ok(data as u32),
            other => return Err(Failure::Usage(format!("the guest went astray: {other}"))),
        }
    }
}
