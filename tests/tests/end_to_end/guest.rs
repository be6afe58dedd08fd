//! The image and the agent themselves, without the lab between: the same work
//! everywhere, proved by checksums, and the same digits twice.

use std::process::Command;
use trapline_abi::platform::{EXIT_STATUS_DONE, EXIT_STATUS_PANIC};
use trapline_abi::Workload;
use trapline_tests::guest::{Machine, Said};
use trapline_tests::{has_kvm, has_qemu, parts};

/// Small, but every operation that leaves a checksum.
const JOB: &str = "trapline.run=basic,stream,exits trapline.batches=3 trapline.batch-ticks=20000 \
                   trapline.pages=512 trapline.blocks=8 trapline.doubles=20000 trapline.passes=2";

fn boot_counting(extra: &str) -> Said {
    let (status, said) = Machine::counting().boot(&format!("{JOB} {extra}"));
    assert_eq!(status, Some(EXIT_STATUS_DONE), "{said:?}");
    assert!(said.done && said.damaged == 0, "{said:?}");
    said
}

#[test]
fn rings_0_and_3_do_the_same_work() {
    if !has_qemu("checksums of rings 0 and 3") {
        return;
    }
    let (ring0, ring3) = (
        boot_counting("trapline.ring=0"),
        boot_counting("trapline.ring=3"),
    );
    assert_eq!((ring0.ring, ring3.ring), (Some(0), Some(3)));
    for workload in [Workload::Basic, Workload::Stream] {
        for op in workload.operations() {
            assert!(
                ring0.checks.contains_key(&op),
                "{op:?}: {:?}",
                ring0.reasons
            );
            assert_eq!(ring0.checks.get(&op), ring3.checks.get(&op), "{op:?}");
        }
    }
}

#[test]
fn instruction_clock_is_reproducible() {
    if !has_qemu("the same digits twice, without the lab") {
        return;
    }
    let (one, other) = (boot_counting(""), boot_counting(""));
    assert!(!one.batches.is_empty());
    assert_eq!(one, other);
}

#[test]
fn agent_and_image_do_the_same_work() {
    if !has_qemu("checksums of agent and image") {
        return;
    }
    let output = Command::new(parts().join("trapline-agent"))
        .args(JOB.split_whitespace())
        .output()
        .expect("the agent can be started");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (agent, image) = (Said::read(&output.stdout), boot_counting(""));
    for op in Workload::Basic
        .operations()
        .chain(Workload::Stream.operations())
    {
        assert!(
            agent.checks.contains_key(&op),
            "{op:?}: {:?}",
            agent.reasons
        );
        assert_eq!(agent.checks.get(&op), image.checks.get(&op), "{op:?}");
    }
    for op in Workload::Exits.operations() {
        let told = agent.checks.contains_key(&op) || agent.reasons.contains_key(&op);
        assert!(told, "the agent says nothing of {op:?}");
    }
}

#[test]
fn tcg_does_the_same_work() {
    if !has_qemu("the image in translating QEMU") {
        return;
    }
    let (status, said) = Machine::new(&["-accel", "tcg", "-cpu", "max"]).boot(JOB);
    assert_eq!(status, Some(EXIT_STATUS_DONE), "{said:?}");
    assert_eq!(said.checks, boot_counting("").checks);
}

#[test]
fn qemu_with_kvm_does_the_same_work() {
    if !has_qemu("the image in QEMU with KVM") || !has_kvm("the image in QEMU with KVM") {
        return;
    }
    let machine = Machine::new(&["-accel", "kvm", "-cpu", "host,-arch-capabilities"]);
    let (status, said) = machine.boot(&format!("{JOB} trapline.ring=3"));
    assert_eq!(status, Some(EXIT_STATUS_DONE), "{said:?}");
    let counted = boot_counting("");
    for workload in [Workload::Basic, Workload::Stream] {
        for op in workload.operations() {
            assert!(said.checks.contains_key(&op), "{op:?}: {:?}", said.reasons);
            assert_eq!(said.checks.get(&op), counted.checks.get(&op), "{op:?}");
        }
    }
}

#[test]
fn invalid_job_is_quoted_in_the_panic_message() {
    if !has_qemu("last words of the image") {
        return;
    }
    let (status, said) = Machine::counting().boot("trapline.rum=basic");
    assert_eq!(status, Some(EXIT_STATUS_PANIC), "{said:?}");
    let message = said.panic.expect("it panicked");
    assert!(message.contains("trapline.rum=basic"), "{message}");
}
