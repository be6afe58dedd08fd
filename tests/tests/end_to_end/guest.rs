//! Image and agent without the lab: identical checksums in all machines, and reproducible instruction
//! counts.

use std::process::Command;
use std::sync::OnceLock;
use trapline_abi::arch::NATIVE;
use trapline_abi::platform::{EXIT_STATUS_DONE, EXIT_STATUS_PANIC};
use trapline_abi::Workload;
use trapline_tests::guest::{GuestOutput, Machine};
use trapline_tests::{has_kvm, has_qemu, parts};

/// A small job with every operation that has a checksum.
const JOB: &str = "trapline.run=basic,stream,exits trapline.batches=3 trapline.batch-ticks=20000 \
                   trapline.pages=512 trapline.blocks=8 trapline.doubles=20000 trapline.passes=2";

/// Returns the output of [`JOB`] in the simulated machine, which all tests share.
fn shared_output() -> &'static GuestOutput {
    static OUTPUT: OnceLock<GuestOutput> = OnceLock::new();
    OUTPUT.get_or_init(|| boot_counting(""))
}

fn boot_counting(extra: &str) -> GuestOutput {
    let (status, output) = Machine::counting().boot(&format!("{JOB} {extra}"));
    assert_eq!(status, Some(EXIT_STATUS_DONE), "{output:?}");
    assert!(output.done && output.damaged == 0, "{output:?}");
    output
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
    let (one, other) = (shared_output(), &boot_counting(""));
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
        .expect("agent starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (agent, image) = (GuestOutput::read(&output.stdout), shared_output());
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
    for op in Workload::Exits.set_on(NATIVE).iter() {
        let is_reported = agent.checks.contains_key(&op) || agent.reasons.contains_key(&op);
        assert!(is_reported, "the agent reported nothing on {op:?}");
    }
}

#[test]
fn tcg_does_the_same_work() {
    if !has_qemu("the image in translating QEMU") {
        return;
    }
    let (status, output) = Machine::new(&["-accel", "tcg", "-cpu", "max"]).boot(JOB);
    assert_eq!(status, Some(EXIT_STATUS_DONE), "{output:?}");
    assert_eq!(output.checks, shared_output().checks);
}

#[test]
fn qemu_with_kvm_does_the_same_work() {
    if !has_qemu("the image in QEMU with KVM") || !has_kvm("the image in QEMU with KVM") {
        return;
    }
    let machine = Machine::new(&["-accel", "kvm", "-cpu", "host,-arch-capabilities"]);
    let (status, output) = machine.boot(&format!("{JOB} trapline.ring=3"));
    assert_eq!(status, Some(EXIT_STATUS_DONE), "{output:?}");
    let counted = shared_output();
    for workload in [Workload::Basic, Workload::Stream] {
        for op in workload.operations() {
            assert!(
                output.checks.contains_key(&op),
                "{op:?}: {:?}",
                output.reasons
            );
            assert_eq!(output.checks.get(&op), counted.checks.get(&op), "{op:?}");
        }
    }
}

#[test]
fn invalid_job_is_quoted_in_the_panic_message() {
    if !has_qemu("last words of the image") {
        return;
    }
    let (status, output) = Machine::counting().boot("trapline.rum=basic");
    assert_eq!(status, Some(EXIT_STATUS_PANIC), "{output:?}");
    let message = output.panic.expect("panic message");
    assert!(message.contains("trapline.rum=basic"), "{message}");
}
