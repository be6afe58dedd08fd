//! Guests that panic, hang, reset their CPU, flood their console, or write noise to it. The image does
//! so on request, and the cause is reported in every environment.

use std::time::Duration;
use trapline_abi::job::{Fault, Isolation};
use trapline_abi::Op;
use trapline_environments::{all, boot, Booted, Environment, Limits, Settings};
use trapline_model::{EnvironmentId, Observation, Outcome, PlannedBoot};
use trapline_tests::boots::planned;
use trapline_tests::{settings, skip};

/// Environments that boot within a second.
const QUICK: [EnvironmentId; 5] = [
    EnvironmentId::KVM,
    EnvironmentId::QEMU_KVM,
    EnvironmentId::QEMU_TCG,
    EnvironmentId::SIM,
    EnvironmentId::SIM_NOVA,
];

/// The same, and QEMU as custom VMM.
const WITH_CUSTOM: [EnvironmentId; 6] = [
    EnvironmentId::KVM,
    EnvironmentId::QEMU_KVM,
    EnvironmentId::QEMU_TCG,
    EnvironmentId::CUSTOM,
    EnvironmentId::SIM,
    EnvironmentId::SIM_NOVA,
];

const CUSTOM_QEMU: &str = "qemu-system-x86_64 -M microvm -nodefaults -display none -no-reboot \
    -m {memory} -smp {cpus} -serial stdio -kernel {image} -append {cmdline}";

/// Returns a boot that injects `fault` before its operation.
fn faulty(id: EnvironmentId, fault: Fault) -> PlannedBoot {
    let mut boot = planned(id, Op::Getpid);
    boot.job.fault = Some(fault);
    boot
}

fn environment(id: EnvironmentId) -> Option<Box<dyn Environment>> {
    let settings = Settings {
        vmm: Some(CUSTOM_QEMU.parse().expect("valid command")),
        ..settings()
    };
    let mut known = all(&settings).into_iter();
    let environment = known.find(|environment| environment.id() == id);
    let environment = environment.expect("a known environment");
    let guest = faulty(id, Fault::Hang).guest;
    match environment.check(&guest) {
        Ok(()) => Some(environment),
        Err(unavailable) => {
            skip(
                &format!("misbehaving guests in {id}"),
                &unavailable.to_string(),
            );
            None
        }
    }
}

/// Boots a guest with `fault`, if the environment is available.
fn boot_with_fault(id: EnvironmentId, fault: Fault, patience: u64) -> Option<Booted> {
    boot_faulty(&faulty(id, fault), patience)
}

fn boot_faulty(planned: &PlannedBoot, patience: u64) -> Option<Booted> {
    let id = planned.config.environment;
    let environment = environment(id)?;
    let image = settings().parts.image().expect("image is built");
    let watch = Limits::timeout(Duration::from_secs(patience));
    let booted = boot(environment.as_ref(), &image, planned, &watch, &mut |_| ());
    Some(booted.unwrap_or_else(|error| panic!("{id}: {error}")))
}

/// Checks the reported cause, and that no operation was measured.
#[track_caller]
fn assert_reported(id: EnvironmentId, fault: Fault, patience: u64, words: &[&str]) {
    let Some(booted) = boot_with_fault(id, fault, patience) else {
        return;
    };
    let trouble = booted
        .error
        .unwrap_or_else(|| panic!("{id}: no trouble with {fault:?}"));
    let reason = trouble.to_string();
    let fits = words.iter().any(|words| reason.contains(words));
    assert!(fits, "{id}: {reason}");
    for operation in &booted.observation.operations {
        assert!(
            matches!(operation.outcome, Outcome::Failed(_)),
            "{id}: {operation:?}"
        );
    }
}

#[test]
fn panic_message_is_reported() {
    for id in WITH_CUSTOM {
        assert_reported(
            id,
            Fault::Panic,
            30,
            &["guest panicked: this guest was asked to panic"],
        );
    }
}

#[test]
fn hanging_guest_is_killed_at_its_deadline() {
    for id in WITH_CUSTOM {
        assert_reported(id, Fault::Hang, 2, &["timed out after 2 s and was killed"]);
    }
}

/// Guests of QEMU with KVM may be unable to halt: at ring 3 this requires trapline-vmm.
#[test]
fn sleeping_guest_is_killed_at_its_deadline() {
    let words = ["timed out after 2 s and was killed"];
    for id in [
        EnvironmentId::KVM,
        EnvironmentId::QEMU_TCG,
        EnvironmentId::SIM,
    ] {
        assert_reported(id, Fault::Sleep, 2, &words);
    }
}

/// On NOVA the VMM has the timer of the guest, and reports a halt that nothing can end.
#[test]
fn sleeping_guest_on_nova_is_reported() {
    let words = ["guest halted without a wake-up source"];
    assert_reported(EnvironmentId::SIM_NOVA, Fault::Sleep, 30, &words);
}

/// The clock of an idle simulated machine advances at once, so its init enforces the deadline.
#[test]
fn lingering_program_in_the_simulated_machine_is_ended() {
    let words = ["600 s of the simulated clock and was killed"];
    assert_reported(EnvironmentId::SIM_KVM, Fault::Sleep, 300, &words);
    assert_reported(EnvironmentId::SIM_XEN_PVH, Fault::Sleep, 600, &words);
}

/// A guest at ring 3 cannot reset the CPU and reports that.
#[test]
fn triple_fault_is_reported() {
    for id in QUICK {
        assert_reported(id, Fault::Triple, 30, &["triple fault"]);
    }
}

/// If a byte takes many instructions, the deadline expires first.
#[test]
fn console_flood_is_bounded() {
    for id in WITH_CUSTOM {
        assert_reported(
            id,
            Fault::Flood,
            3,
            &["flooded its console", "timed out after"],
        );
    }
}

#[test]
fn console_noise_loses_no_record() {
    for id in WITH_CUSTOM {
        let observation = assert_noise_is_contained(id);
        let has_problems = observation.is_none_or(|found| !found.problems.is_empty());
        assert!(has_problems, "{id}: no problem was reported");
    }
}

/// Xen keeps the port of text to itself, and the VMM serves the port of frames.
#[test]
#[ignore = "slow: make test-all"]
fn console_noise_of_a_xen_domain_loses_no_record() {
    assert_noise_is_contained(EnvironmentId::SIM_XEN_TRAPLINE);
}

/// Returns the observation of a guest that writes noise and is measured, if the environment is available.
#[track_caller]
fn assert_noise_is_contained(id: EnvironmentId) -> Option<Observation> {
    let booted = boot_with_fault(id, Fault::Garble, 60)?;
    assert!(booted.error.is_none(), "{id}: {:?}", booted.error);
    let operations = &booted.observation.operations;
    let measured = |outcome: &Outcome| matches!(outcome, Outcome::Measured { .. });
    assert!(operations.iter().any(|o| measured(&o.outcome)), "{id}");
    Some(booted.observation)
}

/// The image's kernel ends programs that fault, at ring 0 also those that access its memory or the machine, and
/// refuses invalid system calls. Then the guest measures as usual.
#[test]
fn misbehaving_programs_are_contained() {
    for id in [
        EnvironmentId::KVM,
        EnvironmentId::QEMU_TCG,
        EnvironmentId::SIM,
        EnvironmentId::SIM_KVM,
        EnvironmentId::SIM_QEMU_KVM,
        EnvironmentId::SIM_PROCESS,
        EnvironmentId::SIM_NOVA,
    ] {
        assert_programs_are_contained(id, Isolation::None);
    }
}

/// The same on page tables without the kernel: a program's access to memory of the kernel finds no page.
#[test]
fn misbehaving_programs_are_contained_by_an_isolated_kernel() {
    for id in [
        EnvironmentId::QEMU_TCG,
        EnvironmentId::SIM,
        EnvironmentId::SIM_KVM,
        EnvironmentId::SIM_QEMU_KVM,
        EnvironmentId::SIM_NOVA,
    ] {
        assert_programs_are_contained(id, Isolation::Kpti);
    }
}

/// Bochs has process-context identifiers, QEMU's TCG has none.
#[test]
fn an_isolated_kernel_uses_process_context_identifiers() {
    for (id, expected) in [(EnvironmentId::SIM, "no"), (EnvironmentId::SIM_VMX, "yes")] {
        if let Some(observation) = assert_programs_are_contained(id, Isolation::Kpti) {
            assert_eq!(observation.facts["isolation-pcid"], expected, "{id}");
        }
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn misbehaving_programs_in_a_xen_domain_are_contained() {
    for isolation in Isolation::ALL {
        assert_programs_are_contained(EnvironmentId::SIM_XEN_TRAPLINE, isolation);
    }
}

#[track_caller]
fn assert_programs_are_contained(id: EnvironmentId, isolation: Isolation) -> Option<Observation> {
    let mut planned = faulty(id, Fault::Programs);
    planned.job.isolation = isolation;
    let booted = boot_faulty(&planned, 300)?;
    assert!(booted.error.is_none(), "{id}: {:?}", booted.error);
    let observation = booted.observation;
    let all = &observation.operations;
    let is_measured = |outcome: &Outcome| matches!(outcome, Outcome::Measured { .. });
    assert!(all.iter().all(|one| is_measured(&one.outcome)), "{id}");
    assert_eq!((all.len(), &observation.problems[..]), (1, &[][..]), "{id}");
    Some(observation)
}

#[test]
fn failures_in_the_simulated_machine_are_reported() {
    assert_reported(
        EnvironmentId::SIM_KVM,
        Fault::Panic,
        300,
        &["this guest was asked to panic"],
    );
    assert_reported(
        EnvironmentId::SIM_KVM,
        Fault::Triple,
        300,
        &["triple fault"],
    );
}

#[test]
#[ignore = "slow: make test-all"]
fn failures_in_a_xen_domain_are_reported() {
    let words = ["this guest was asked to panic"];
    assert_reported(EnvironmentId::SIM_XEN_PVH, Fault::Panic, 600, &words);
}

/// The toolstack reports the end of the domain, which ends the VMM.
#[test]
#[ignore = "slow: make test-all"]
fn failures_in_a_xen_domain_of_trapline_vmm_are_reported() {
    let id = EnvironmentId::SIM_XEN_TRAPLINE;
    for (fault, patience, words) in [
        (Fault::Panic, 600, "this guest was asked to panic"),
        (Fault::Triple, 600, "has shut down"),
        (
            Fault::Sleep,
            600,
            "600 s of the simulated clock and was killed",
        ),
        (Fault::Hang, 40, "timed out after 40 s"),
        (Fault::Flood, 40, "timed out after 40 s"),
    ] {
        assert_reported(id, fault, patience, &[words]);
    }
}
