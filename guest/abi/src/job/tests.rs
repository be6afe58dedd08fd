//! Jobs as text and back.

use super::*;
use std::string::ToString;

/// Words that a job leaves out if they have their default.
const DEFAULTS: &str =
    "budget-ticks end period large-regions disk requests file-mib cpus wake zeroing isolation transport build nonce";

#[test]
fn a_job_is_equal_after_formatting_and_parsing() {
    let job = Job {
        run: operations_named("basic").unwrap()
            | Op::PortOut
            | Op::OwnTimer
            | Op::Touch9
            | Op::Read4k1
            | Op::OpenFile
            | Op::IpcWake,
        cpus: 2,
        wake: WakePolicy::Poll(50_000),
        zeroing: Zeroing::IdleNonTemporal,
        isolation: Isolation::Kpti,
        transport: Transport::Pci,
        disk: Disk::from_name("vda"),
        disk_mib: 64,
        requests: 77,
        file_mib: 3,
        card: true,
        receiver: true,
        batches: 7,
        budget_ticks: 80_000_000,
        aligned: true,
        large_regions: 3,
        expiries: 2048,
        period: 250_000,
        wait_mode: WaitMode::Flood,
        ring: 3,
        console: Console::Frames,
        ports: true,
        shutdown: Shutdown::Reset,
        build: 2,
        nonce: u64::MAX,
        fault: Some(Fault::Garble),
        ..Job::EMPTY
    };
    let words = job.to_string();
    assert!(
        words.starts_with(
            "trapline.run=basic,exits/port-out,irq/own-timer,populate/touch-9,block/read-4k-1,files/open,ipc/wake "
        ),
        "{words}"
    );
    assert_eq!(Job::parse(words.split(' ')), Ok(job));
    assert!(words.contains(" trapline.end=reset "), "{words}");
    for word in DEFAULTS.split(' ') {
        let word = std::format!("trapline.{word}=");
        assert!(!Job::EMPTY.to_string().contains(&word));
    }
    assert!(!job.is_xen_domain());
    for end in ["xen", "xen-machine"] {
        let word = std::format!("trapline.end={end}");
        let parsed = Job::parse([word.as_str()]).unwrap();
        assert!(parsed.is_xen_domain(), "{end}");
        assert!(parsed.to_string().ends_with(&word), "{parsed}");
    }
    assert_eq!(
        Job::parse(Job::EMPTY.to_string().split(' ')),
        Ok(Job::EMPTY)
    );
}

#[test]
fn every_policy_of_waiting_is_sent_with_the_workloads_of_several_cpus() {
    use WakePolicy::{Halt, HaltPoll, IdlePoll, Mwait, Poll};
    for wake in [Halt, Poll(7), Mwait, HaltPoll, IdlePoll] {
        for op in [Op::IpcItem, Op::SmpPairs] {
            let job = Job {
                run: op.into(),
                wake,
                ..Job::EMPTY
            };
            assert_eq!(Job::parse(job.to_string().split(' ')), Ok(job));
        }
    }
    let smp = Job {
        run: Op::SmpPairs.into(),
        ..Job::EMPTY
    };
    assert!(!smp.to_string().contains("trapline.wake"));
}

#[test]
fn words_without_prefix_are_ignored_and_invalid_ones_rejected() {
    assert_eq!(Job::parse(["console=ttyS0", "quiet"]), Ok(Job::EMPTY));
    for word in [
        "trapline.rum=basic",
        "trapline.ring=1",
        "trapline.end=never",
        "trapline.period=0",
        "trapline.between=sleep",
        "trapline.disk=../vda",
        "trapline.disk-mib=0",
        "trapline.file-mib=0",
        "trapline.file-mib=1025",
        "trapline.cpus=65",
        "trapline.wake=poll:",
        "trapline.wake=nap",
        "trapline.zeroing=later",
        "trapline.isolation=full",
        "trapline.transport=isa",
        "trapline.run=exits/port-oot",
    ] {
        assert_eq!(Job::parse([word]), Err(InvalidWord(word)));
    }
}
