//! Runs the conformance suite on /dev/kvm and prints the exit traces. With the argument `kvm-user-apic` the local APIC is
//! the VMM's.
//!
//! Exit status: 0 pass, 1 failure, 77 no /dev/kvm; standard error names the reason.

use std::process::ExitCode;
use trapline_interface::conformance::{self, Failure};
use trapline_interface::{Hypervisor, Missing};
use trapline_kvm::{Kvm, KvmUserApic};

const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let result = match argument.as_deref() {
        Some("kvm-user-apic") => run::<KvmUserApic>(),
        _ => run::<Kvm>(),
    };
    match result {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            eprintln!("trapline-conformance: {failure}");
            ExitCode::FAILURE
        }
        Err(missing) => {
            eprintln!("trapline-conformance: skipped: {missing}");
            ExitCode::from(SKIPPED)
        }
    }
}

fn run<H: Hypervisor<Vm: Sync>>() -> Result<Result<(), Failure>, Missing> {
    let caps = H::probe()?;
    println!("{caps:?}");
    Ok(conformance::run(&H::open()?, &caps).map(|report| print!("{report}")))
}
