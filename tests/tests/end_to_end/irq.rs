//! `trapline irq`: timers, interrupts, verdicts and stored tables.

use trapline_tests::has_qemu;
use trapline_tests::measurements::cells;
use trapline_tests::run::{assert_fits_80_columns, CommandOutput, Place};

mod host;
mod simulated;

fn irq(place: &Place, words: &str) -> CommandOutput {
    place.run_storing("irq", words)
}

#[test]
fn invalid_options_are_rejected() {
    let place = Place::new();
    for (words, message) in [
        ("--period 1us", "from 100us to 1s"),
        ("--threshold 2000insn", "an instruction is 1 ns"),
        ("--require 99", "99.99%"),
        ("--samples 0", "--samples"),
        (
            "--idle poll --load console-direct",
            "--idle is not supported by console loads",
        ),
        ("--load disk", "there is no load 'disk'"),
        ("--load cpu,cpu:2", "named twice"),
        ("--sched deadline:11ms/10ms", "from 1024ns to its period"),
        ("--sched credit3", "or credit or credit2 of Xen"),
        (
            "--sched deadline:3ms/10ms --pin shared",
            "not supported by pinned threads",
        ),
        ("--vcpus-per-cpu 2 --pin free", "must be pinned to one CPU"),
        (
            "--env sim,sim/xen-pvh --sched fifo",
            "--sched fifo:10 is not supported by sim, sim/xen-pvh",
        ),
        ("--env kvm --sched credit", "choose from sim/xen-pvh"),
        ("--env sim/kmv", "did you mean 'sim/kvm'?"),
    ] {
        let result = irq(&place, words);
        assert_eq!(
            (result.status, result.stdout.as_str()),
            (Some(2), ""),
            "{words}"
        );
        assert!(result.stderr.starts_with("error: "), "{}", result.stderr);
        let whole = result.stderr.replace("\n  help", "");
        assert!(whole.contains(message), "{words}: {}", result.stderr);
    }
}

#[test]
fn scheduling_options_belong_to_irq() {
    let place = Place::new();
    for (command, words) in [
        ("run", "use 'trapline irq'"),
        ("list", "unknown argument '--sched'"),
    ] {
        let result = place.run(&[command, "--sched", "fifo"]);
        assert_eq!(result.status, Some(2), "{result:?}");
        assert!(result.stderr.contains(words), "{result:?}");
    }
}

#[test]
fn help_fits_80_columns_and_lists_exit_statuses() {
    let help = Place::new().run(&["irq", "--help"]);
    assert_eq!(help.status, Some(0), "{}", help.stderr);
    assert_fits_80_columns(&help.stdout);
    for status in ["4    with --require", "5    with --require"] {
        assert!(help.stdout.contains(status), "{}", help.stdout);
    }
}

#[test]
fn unmeasurable_environment_has_no_verdict() {
    let place = Place::new();
    let words = "--env custom --samples 10 --period 1ms --require 1%";
    let result = irq(&place, words);
    assert_eq!(result.status, Some(4), "{result:?}");
    assert!(result.stdout.contains("Not measured"), "{}", result.stdout);
}

/// The default selection does not depend on other workloads.
#[test]
fn default_run_excludes_irq_and_populate() {
    let place = Place::new();
    let json = place.measure(&["--env", "custom"]);
    let cells = cells(&json);
    assert!(!cells.is_empty());
    assert!(
        cells
            .iter()
            .all(|cell| cell["workload"] != "irq" && cell["workload"] != "populate"),
        "{cells:?}"
    );
    let asked = place.measure(&["--env", "custom", "--workload", "irq"]);
    let cells = self::cells(&asked);
    assert!(
        cells.iter().all(|cell| cell["workload"] == "irq"),
        "{cells:?}"
    );
}

#[test]
fn unsupported_conditions_are_skipped_with_a_reason() {
    if !has_qemu("conditions that cannot be had") {
        return;
    }
    let place = Place::new();
    for (words, reason) in [
        ("--env sim --load cpu", "has no other programs"),
        (
            "--env sim,host --sched fifo",
            "--sched fifo:10 is not supported by sim",
        ),
        (
            "--env sim --idle halt-in-guest",
            "--idle halt-in-guest is not supported by sim",
        ),
        (
            "--env sim/linux --vcpus-per-cpu 2",
            "--vcpus-per-cpu is not supported by sim/linux",
        ),
        ("--env sim/linux --pin exclusive", "has one CPU"),
        ("--env sim/linux --load exits", "measure sim/kvm"),
    ] {
        let result = irq(&place, &format!("{words} --samples 10 --period 1ms"));
        // Nothing is measured, unless the host may use the real-time scheduler.
        let is_measured = result.status == Some(0) && words.contains("host");
        assert!(is_measured || result.status == Some(4), "{result:?}");
        let text: Vec<&str> = result.stdout.split_whitespace().collect();
        assert!(
            text.join(" ").contains(reason),
            "{words}: {}",
            result.stdout
        );
    }
}
