//! Runs the conformance suite on /dev/kvm and prints the exit traces.
//!
//! Exit status: 0 pass, 1 failure, 77 no /dev/kvm; standard error names the reason.

use std::process::ExitCode;
use trapline_interface::conformance::{self, Failure};
use trapline_interface::{Hypervisor, Missing};
use trapline_kvm::Kvm;

const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    match run() {
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

fn run() -> Result<Result<(), Failure>, Missing> {
    let caps = Kvm::probe()?;
    println!("{caps:?}");
    Ok(conformance::run(&Kvm::open()?, &caps).map(|report| print!("{report}")))
}
