//! Guests that do what guests under development do: panic, hang, reset their CPU,
//! flood their console, or write nonsense to it. A real image does it on request,
//! in every environment, and each time the lab says what happened.

use std::time::Duration;
use trapline_abi::job::Fault;
use trapline_abi::{Job, Op};
use trapline_environments::{all, boot, Booted, Environment, Limits, Settings};
use trapline_model::{expand, EnvironmentId, Outcome, PlannedBoot, Preset, Request};
use trapline_tests::{settings, skip};

/// Environments whose guests can be asked, and that take a second at most.
const QUICK: [EnvironmentId; 4] = [
    EnvironmentId::KVM,
    EnvironmentId::QEMU_KVM,
    EnvironmentId::QEMU_TCG,
    EnvironmentId::SIM,
];

/// The same, and QEMU as a VMM that nobody knows.
const WITH_FOREIGN: [EnvironmentId; 5] = [
    EnvironmentId::KVM,
    EnvironmentId::QEMU_KVM,
    EnvironmentId::QEMU_TCG,
    EnvironmentId::CUSTOM,
    EnvironmentId::SIM,
];

const FOREIGN: &str = "qemu-system-x86_64 -M microvm -nodefaults -display none -no-reboot \
    -m {memory} -smp {cpus} -serial stdio -kernel {image} -append {cmdline}";

/// A boot that measures one operation after misbehaving.
fn planned(id: EnvironmentId, fault: Fault) -> PlannedBoot {
    let plan = expand(&Request {
        configs: vec![id.into()],
        ready: vec![id.into()],
        operations: Op::Getpid.bit(),
        named: 0,
        preset: Preset::Quick,
        boots: Some(1),
        overrides: Default::default(),
        with_control: false,
        seed: 1,
        irq: Default::default(),
        block: Default::default(),
    });
    let mut boot = plan.boots.into_iter().next().expect("one boot is planned");
    boot.job = Job {
        fault: Some(fault),
        ..boot.job
    };
    boot
}

fn environment(id: EnvironmentId) -> Option<Box<dyn Environment>> {
    let settings = Settings {
        vmm: Some(FOREIGN.parse().expect("the command has all it needs")),
        ..settings()
    };
    let mut known = all(&settings).into_iter();
    let environment = known.find(|environment| environment.id() == id)?;
    let guest = planned(id, Fault::Hang).guest;
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

/// Boots a guest that misbehaves; `None` where the environment is not offered.
fn misbehave(id: EnvironmentId, fault: Fault, patience: u64) -> Option<Booted> {
    let environment = environment(id)?;
    let image = settings().parts.image().expect("the image was built");
    let watch = Limits::timeout(Duration::from_secs(patience));
    let booted = boot(
        environment.as_ref(),
        &image,
        &planned(id, fault),
        &watch,
        &mut |_| (),
    );
    Some(booted.unwrap_or_else(|error| panic!("{id}: {error}")))
}

/// The trouble that comes of it must be told, and nothing must have been measured.
#[track_caller]
fn assert_told(id: EnvironmentId, fault: Fault, patience: u64, words: &[&str]) {
    let Some(booted) = misbehave(id, fault, patience) else {
        return;
    };
    let trouble = booted
        .error
        .unwrap_or_else(|| panic!("{id}: no trouble with {fault:?}"));
    let told = trouble.to_string();
    let fits = words.iter().any(|words| told.contains(words));
    assert!(fits, "{id}: {told}");
    for operation in &booted.observation.operations {
        assert!(
            matches!(operation.outcome, Outcome::Failed(_)),
            "{id}: {operation:?}"
        );
    }
}

#[test]
fn panic_message_is_reported() {
    for id in WITH_FOREIGN {
        assert_told(
            id,
            Fault::Panic,
            30,
            &["guest panicked: this guest was asked to panic"],
        );
    }
}

#[test]
fn hanging_guest_is_killed_at_its_deadline() {
    for id in WITH_FOREIGN {
        assert_told(id, Fault::Hang, 2, &["timed out after 2 s and was killed"]);
    }
}

/// At ring 3 only our VMM lets a guest sleep, so KVM with QEMU may be unable to.
#[test]
fn sleeping_guest_is_killed_at_its_deadline() {
    let words = ["timed out after 2 s and was killed"];
    for id in [
        EnvironmentId::KVM,
        EnvironmentId::QEMU_TCG,
        EnvironmentId::SIM,
    ] {
        assert_told(id, Fault::Sleep, 2, &words);
    }
}

/// Where time passes as fast as nothing happens, the machine's own init ends the
/// guest, and the machine with it: no process of the host's hangs.
#[test]
fn lingering_program_in_the_simulated_machine_is_ended() {
    let words = ["600 s of the simulated clock and was killed"];
    assert_told(EnvironmentId::SIM_KVM, Fault::Sleep, 300, &words);
    assert_told(EnvironmentId::SIM_XEN_PVH, Fault::Sleep, 600, &words);
}

/// A guest at ring 3 cannot reset the CPU; it says so instead.
#[test]
fn triple_fault_is_reported() {
    for id in QUICK {
        assert_told(id, Fault::Triple, 30, &["triple fault"]);
    }
}

/// If a byte takes many instructions to write, the deadline comes first.
#[test]
fn console_flood_is_bounded() {
    for id in WITH_FOREIGN {
        assert_told(
            id,
            Fault::Flood,
            3,
            &["flooded its console", "timed out after"],
        );
    }
}

#[test]
fn console_noise_loses_no_record() {
    for id in WITH_FOREIGN {
        let Some(booted) = misbehave(id, Fault::Garble, 30) else {
            continue;
        };
        assert!(booted.error.is_none(), "{id}: {:?}", booted.error);
        let observation = booted.observation;
        let measured = |outcome: &Outcome| matches!(outcome, Outcome::Measured { .. });
        assert!(
            observation.operations.iter().any(|o| measured(&o.outcome)),
            "{id}"
        );
        assert!(
            !observation.problems.is_empty(),
            "{id}: nobody noticed the nonsense"
        );
    }
}

/// Two machines away: what a guest in our VMM in the simulated machine's Linux
/// says arrives all the same.
#[test]
fn failures_in_the_simulated_machine_are_reported() {
    assert_told(
        EnvironmentId::SIM_KVM,
        Fault::Panic,
        300,
        &["this guest was asked to panic"],
    );
    assert_told(
        EnvironmentId::SIM_KVM,
        Fault::Triple,
        300,
        &["triple fault"],
    );
}

/// The panic message of a domain is reported, too.
#[test]
#[ignore = "slow: make test-all"]
fn failures_in_a_xen_domain_are_reported() {
    let words = ["this guest was asked to panic"];
    assert_told(EnvironmentId::SIM_XEN_PVH, Fault::Panic, 600, &words);
}
