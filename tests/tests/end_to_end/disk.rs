//! Disks of a Linux guest in trapline-vmm on the simulated machine: a distribution's driver writes, flushes,
//! discards and reads with both I/O engines.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use trapline_environments::sim::{drivers, programs};
use trapline_environments::Limits;
use trapline_tests::linux::{self, Linux};
use trapline_tests::{has_qemu, parts, settings, skip};

const FEATURE: &str = "disks of a Linux guest";
const PATIENCE: Duration = Duration::from_secs(500);

/// 2 MiB, and 1 MiB that is read-only.
const LENGTHS: [usize; 2] = [2 << 20, 1 << 20];

/// Returns trapline-vmm with kernel `parameters` for its guest, and options for its disks.
fn vmm(parameters: &str, options: &[&str]) -> programs::Program {
    programs::Program {
        file: parts().join("trapline-vmm"),
        arguments: linux::arguments(parameters, options),
    }
}

/// Runs VMMs one after the other with the same disks; returns nothing if skipped.
fn run(vmms: &[programs::Program]) -> Vec<programs::Output> {
    if !has_qemu(FEATURE) {
        return Vec::new();
    }
    let settings = settings();
    let drivers = match drivers::chosen(&settings, &["virtio_mmio", "virtio_blk"]) {
        Ok(drivers) => drivers,
        Err(error) => {
            skip(FEATURE, &error.to_string());
            return Vec::new();
        }
    };
    let disks = LENGTHS.map(|length| vec![0; length]);
    let disks: [programs::Extra<'_>; 2] = [("/disk", &disks[0]), ("/other", &disks[1])];
    let linux = Linux::with(&settings, &drivers);
    let files = [linux.files(), disks].concat();
    let ran = programs::run_with(&settings, vmms, &files, &Limits::timeout(PATIENCE));
    ran.expect("simulated machine runs").0
}

/// A VMM with 32 devices, of which 30 are disks: more than the I/O APIC has pins, so that most share one.
fn as_many_as_possible() -> programs::Program {
    let mut options = vec!["--disk", "/disk"];
    for _ in 1..30 {
        options.extend(["--disk", "/other,ro"]);
    }
    vmm("trapline-disk=vda trapline-disk=vdad", &options)
}

#[test]
#[ignore = "slow: boots a Linux guest three times"]
fn distribution_kernel_uses_disks_of_both_engines() {
    let line = "trapline-disk=vda trapline-disk=vdb";
    let disks = |first, second| vmm(line, &["--disk", first, "--disk", second]);
    let outputs = run(&[
        disks("/disk,engine=uring", "/other,ro"),
        disks("/disk,engine=pool,direct", "/other,ro,engine=pool"),
        as_many_as_possible(),
    ]);
    for (output, last) in outputs.into_iter().zip(["vdb", "vdb", "vdad"]) {
        let console = String::from_utf8_lossy(&output.console);
        let errors = String::from_utf8_lossy(&output.errors);
        assert!(
            output.status.success(),
            "{}: {console}{errors}",
            output.status
        );
        for line in [
            "vda: 4096 sectors, write back, read-only 0, all that was written was read",
            &format!("{last}: 2048 sectors, write back, read-only 1"),
        ] {
            assert!(console.contains(line), "{console}{errors}");
        }
    }
}

/// Returns the number after `word` in the last complete line that has it.
fn last(console: &str, word: &str) -> Option<u64> {
    let whole = &console[..=console.rfind('\n')?];
    let mut numbers = whole.lines().rev().filter_map(|line| line.split_once(word));
    numbers.find_map(|(_, rest)| rest.split(',').next()?.trim().parse().ok())
}

#[test]
#[ignore = "slow: boots a Linux guest twice"]
fn flushed_data_survives_a_killed_vmm() {
    let killed = |disk| vmm("trapline-journal=vda", &["--seconds", "2", "--disk", disk]);
    let outputs = run(&[killed("/disk,engine=uring"), killed("/disk,engine=pool")]);
    let mut stable = 0;
    for output in outputs {
        let console = String::from_utf8_lossy(&output.console);
        assert_eq!(output.status.signal(), Some(14), "{console}");
        let found = last(&console, ": found ").expect("journal was read");
        // The record in flight may be complete.
        assert!(
            (stable..=stable + 1).contains(&found),
            "{found} of {stable}"
        );
        let unbroken = last(&console, ", unbroken ").expect("journal was read");
        assert_eq!(unbroken, found.min(63));
        stable = last(&console, ": stable ").expect("journal was written");
        assert!(stable > found + 20, "{console}");
    }
}
