//! What /dev/kvm offers, and how fast a guest's ring 0 really runs on it: flags may
//! lie, a timed loop does not.
//!
//! Prints lines of `name`, tab, `value`. Exit status 0, or 77 where there is no
//! /dev/kvm, or 1; standard error says why.

use std::process::ExitCode;
use trapline_interface::{Entry, Exit, Hypervisor, Vcpu};
use trapline_kvm::Kvm;
use trapline_machine::setup::assemble;
use trapline_machine::Failure;
use trapline_monitor::boot::specimen::Specimen;
use trapline_monitor::boot::{Image, Plan, Way};

const SKIPPED: u8 = 77;

/// Turns of the loop: as the guest's `mov ecx` has it. A tenth of a second where
/// ring 0 is emulated, 50 us elsewhere.
const TURNS: u32 = 20_000;

/// Writes to a port what the loop took, in ticks.
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

/// Ticks that the loop takes at ring 0.
fn time_ring0() -> Result<u32, Failure> {
    let bytes = Specimen::direct(&GUEST.concat()).bytes();
    let image = Image::parse(&bytes).map_err(|error| Failure::Boot(error.into()))?;
    let plan = Plan {
        memory: 4 << 20,
        command_line: "",
        way: Way::Direct { ring: 0 },
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
