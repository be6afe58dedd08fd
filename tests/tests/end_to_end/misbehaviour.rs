//! Guests that panic, hang, reset their CPU, flood their console, or write noise to it. The image does
//! so on request, and the cause is reported in every environment.

use std::time::Duration;
use trapline_abi::job::{Fault, Isolation};
use trapline_abi::{Counter, Op};
use trapline_environments::{Booted, Settings};
use trapline_model::layers::{Guest, Hypervisor, Level, Machine, Vmm};
use trapline_model::{EnvironmentId, Feature, Observation, Outcome, PlannedBoot};
use trapline_tests::boots::{observe, planned, ready};
use trapline_tests::settings;

const CUSTOM_QEMU: &str = "qemu-system-x86_64 -M microvm -nodefaults -display none -no-reboot \
    -m {memory} -smp {cpus} -serial stdio -kernel {image} -append {cmdline}";

/// Longest time for a guest that ends by itself, in seconds. Only a failing test waits for it.
const PATIENCE: u64 = 600;

/// First time limit of a guest that does not end by itself, in seconds.
const SHORT: u64 = 2;

/// Returns the environments of the image that boot within a second: nothing of Linux or Xen boots first, and Bochs is slow.
fn quick() -> impl Iterator<Item = EnvironmentId> {
    EnvironmentId::BUILT_IN.into_iter().filter(|id| {
        let stack = id.stack();
        let is_slow = stack.machine == Machine::SimVmx || stack.begins_with_xen();
        stack.guest == Guest::Image && !is_slow && !stack.has_machine_linux()
    })
}

/// Returns those whose kernel runs programs, and those of the simulated machine that are measured by default.
fn with_programs() -> impl Iterator<Item = EnvironmentId> {
    let default = EnvironmentId::BUILT_IN.into_iter().filter(|id| {
        let stack = id.stack();
        stack.guest == Guest::Image && stack.has_machine_linux() && id.has(Feature::Default)
    });
    quick().filter(|id| works_at_ring_3(*id)).chain(default)
}

/// Returns whether a guest can halt and run programs even if KVM emulates ring 0: at ring 3 both require trapline-vmm.
fn works_at_ring_3(id: EnvironmentId) -> bool {
    let level = id.stack().innermost();
    level.is_none_or(|it| it.hypervisor != Hypervisor::Kvm || it.vmm == Some(Vmm::Trapline))
}

/// Returns a boot that injects `fault` before its operation.
fn faulty(id: EnvironmentId, fault: Fault) -> PlannedBoot {
    let mut boot = planned(id, Op::Getpid);
    boot.job.fault = Some(fault);
    boot
}

/// Boots a guest with a time limit in seconds, if its environment is available.
fn boot_faulty(planned: &PlannedBoot, seconds: u64) -> Option<Booted> {
    let id = planned.config.environment;
    let settings = Settings {
        vmm: Some(CUSTOM_QEMU.parse().expect("valid command")),
        ..settings()
    };
    let environment = ready(id, &settings)?;
    let patience = Duration::from_secs(seconds);
    let booted = observe(environment.as_ref(), &settings, planned, patience);
    Some(booted.unwrap_or_else(|error| panic!("{id}: {error}")))
}

/// Returns whether the guest has started: whether it has reported its ring, which it does before its fault.
fn has_started(booted: &Booted) -> bool {
    let mut launches = booted.observation.launches.iter();
    launches.any(|launch| launch.counters.contains_key(&Counter::Ring))
}

/// Checks the reported cause of a guest that ends by itself.
#[track_caller]
fn assert_reported(id: EnvironmentId, fault: Fault, words: &str) {
    if let Some(booted) = boot_faulty(&faulty(id, fault), PATIENCE) {
        assert!(has_started(&booted), "{id}: {:?}", booted.error);
        assert_failed(id, &booted, &[words]);
    }
}

/// Checks that a guest that has started is killed at its deadline, or ended for another of the `causes`. On a busy machine
/// it starts within a longer time only.
#[track_caller]
fn assert_killed(id: EnvironmentId, fault: Fault, mut seconds: u64, causes: &[&str]) {
    while let Some(booted) = boot_faulty(&faulty(id, fault), seconds) {
        if has_started(&booted) {
            let deadline = format!("timed out after {seconds} s and was killed");
            return assert_failed(id, &booted, &[&[&*deadline], causes].concat());
        }
        assert!(seconds < PATIENCE, "{id}: no start: {:?}", booted.error);
        seconds *= 2;
    }
}

/// Checks the reported cause, and that no operation was measured.
#[track_caller]
fn assert_failed(id: EnvironmentId, booted: &Booted, causes: &[&str]) {
    let error = booted.error.as_ref();
    let reason = error
        .unwrap_or_else(|| panic!("{id}: no error"))
        .to_string();
    let fits = causes.iter().any(|words| reason.contains(words));
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
    let words = "guest panicked: this guest was asked to panic";
    quick().for_each(|id| assert_reported(id, Fault::Panic, words));
}

#[test]
fn hanging_guest_is_killed_at_its_deadline() {
    quick().for_each(|id| assert_killed(id, Fault::Hang, SHORT, &[]));
}

#[test]
fn sleeping_guest_is_killed_at_its_deadline() {
    for id in
        quick().filter(|id| works_at_ring_3(*id) && id.stack().innermost() != Some(Level::NOVA))
    {
        assert_killed(id, Fault::Sleep, SHORT, &[]);
    }
}

/// On NOVA the VMM has the timer of the guest, and reports a halt that nothing can end.
#[test]
fn sleeping_guest_on_nova_is_reported() {
    let words = "guest halted without a wake-up source";
    assert_reported(EnvironmentId::SIM_NOVA, Fault::Sleep, words);
}

/// The clock of an idle simulated machine advances at once, so its init enforces the deadline.
#[test]
fn lingering_program_in_the_simulated_machine_is_ended() {
    let words = "600 s of the simulated clock and was killed";
    assert_reported(EnvironmentId::SIM_KVM, Fault::Sleep, words);
    assert_reported(EnvironmentId::SIM_XEN_PVH, Fault::Sleep, words);
}

/// A guest at ring 3 cannot reset the CPU and reports that. The end of a VMM of the user's does not tell a reset.
#[test]
fn triple_fault_is_reported() {
    for id in quick().filter(|id| id.stack().innermost() != Some(Level::CUSTOM)) {
        assert_reported(id, Fault::Triple, "triple fault");
    }
}

/// If a byte takes many instructions, the deadline expires first.
#[test]
fn console_flood_is_bounded() {
    quick().for_each(|id| assert_killed(id, Fault::Flood, SHORT, &["flooded its console"]));
}

#[test]
fn console_noise_loses_no_record() {
    for id in quick() {
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
    let booted = boot_faulty(&faulty(id, Fault::Garble), PATIENCE)?;
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
    for id in with_programs() {
        assert_programs_are_contained(id, Isolation::None);
    }
}

/// The same on page tables without the kernel: a program's access to memory of the kernel finds no page.
#[test]
fn misbehaving_programs_are_contained_by_an_isolated_kernel() {
    for id in with_programs().filter(|id| id.has(Feature::Isolation)) {
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
    let booted = boot_faulty(&planned, PATIENCE)?;
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
    let id = EnvironmentId::SIM_KVM;
    assert_reported(id, Fault::Panic, "this guest was asked to panic");
    assert_reported(id, Fault::Triple, "triple fault");
}

#[test]
#[ignore = "slow: make test-all"]
fn failures_in_a_xen_domain_are_reported() {
    let words = "this guest was asked to panic";
    assert_reported(EnvironmentId::SIM_XEN_PVH, Fault::Panic, words);
}

/// The toolstack reports the end of the domain, which ends the VMM.
#[test]
#[ignore = "slow: make test-all"]
fn failures_in_a_xen_domain_of_trapline_vmm_are_reported() {
    let id = EnvironmentId::SIM_XEN_TRAPLINE;
    for (fault, words) in [
        (Fault::Panic, "this guest was asked to panic"),
        (Fault::Triple, "has shut down"),
        (Fault::Sleep, "600 s of the simulated clock and was killed"),
    ] {
        assert_reported(id, fault, words);
    }
    for fault in [Fault::Hang, Fault::Flood] {
        assert_killed(id, fault, 40, &[]);
    }
}
