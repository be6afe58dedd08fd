//! Guests that do what guests under development do: panic, hang, reset their CPU,
//! flood their console, or write nonsense to it. A real image does it on request,
//! in every environment, and each time the lab says what happened.

use std::time::Duration;
use trapline_abi::job::Fault;
use trapline_abi::{Job, Op};
use trapline_environments::{
    all, boot, Availability, Booted, Environment, Requirements, Settings, Watch,
};
use trapline_model::{expand, EnvironmentId, Outcome, PlannedBoot, Preset, Request};
use trapline_tests::{settings, skip};

/// Environments whose guests can be asked, and that take a second at most.
const QUICK: [EnvironmentId; 4] = [
    EnvironmentId::Kvm,
    EnvironmentId::QemuKvm,
    EnvironmentId::QemuTcg,
    EnvironmentId::Sim,
];

/// The same, and QEMU as a VMM that nobody knows.
const WITH_FOREIGN: [EnvironmentId; 5] = [
    EnvironmentId::Kvm,
    EnvironmentId::QemuKvm,
    EnvironmentId::QemuTcg,
    EnvironmentId::Custom,
    EnvironmentId::Sim,
];

const FOREIGN: &str = "qemu-system-x86_64 -M microvm -nodefaults -display none -no-reboot \
    -m {memory} -smp {cpus} -serial stdio -kernel {image} -append {cmdline}";

/// A boot that measures one operation after misbehaving.
fn planned(id: EnvironmentId, fault: Fault) -> PlannedBoot {
    let plan = expand(&Request {
        contenders: vec![id.into()],
        ready: vec![id.into()],
        operations: Op::Getpid.bit(),
        named: 0,
        preset: Preset::Quick,
        boots: Some(1),
        cpus: 1,
        scheduling: trapline_model::Scheduling::USUAL,
        twin: false,
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
    let machine = planned(id, Fault::Hang).machine;
    match environment.supports(&Requirements { machine }) {
        Availability::Ready => Some(environment),
        Availability::Missing(reason) => {
            skip(&format!("misbehaving guests in {id}"), &reason);
            None
        }
    }
}

/// Boots a guest that misbehaves; `None` where the environment is not offered.
fn misbehave(id: EnvironmentId, fault: Fault, patience: u64) -> Option<Booted> {
    let environment = environment(id)?;
    let image = settings().parts.image().expect("the image was built");
    let watch = Watch::of(Duration::from_secs(patience));
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
        .trouble
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
fn last_words_of_a_panic_are_told() {
    for id in WITH_FOREIGN {
        assert_told(
            id,
            Fault::Panic,
            30,
            &["the guest panicked: this guest was asked to panic"],
        );
    }
}

#[test]
fn a_guest_that_hangs_is_killed_at_its_deadline() {
    for id in WITH_FOREIGN {
        assert_told(
            id,
            Fault::Hang,
            2,
            &["had not ended after 2 s and was killed"],
        );
    }
}

/// At ring 3 only our VMM lets a guest sleep, so KVM with QEMU may be unable to.
#[test]
fn a_guest_that_sleeps_for_ever_is_killed_at_its_deadline() {
    use EnvironmentId::{Kvm, QemuTcg, Sim};
    let words = ["had not ended after 2 s and was killed"];
    for id in [Kvm, QemuTcg, Sim] {
        assert_told(id, Fault::Sleep, 2, &words);
    }
}

/// Where time passes as fast as nothing happens, the machine's own init ends the
/// guest, and the machine with it: no process of the host's hangs.
#[test]
fn what_lingers_inside_the_simulated_machine_is_ended_there() {
    let words = ["600 s of the machine's clock and was killed"];
    assert_told(EnvironmentId::SimKvm, Fault::Sleep, 300, &words);
    assert_told(EnvironmentId::SimXenPvh, Fault::Sleep, 600, &words);
}

/// A guest at ring 3 cannot reset the CPU; it says so instead.
#[test]
fn a_triple_fault_is_told() {
    for id in QUICK {
        assert_told(id, Fault::Triple, 30, &["triple fault"]);
    }
}

/// Where a byte takes many instructions to be written, its deadline comes first.
#[test]
fn a_flood_is_dammed() {
    for id in WITH_FOREIGN {
        assert_told(
            id,
            Fault::Flood,
            3,
            &["flooded its console", "had not ended after"],
        );
    }
}

#[test]
fn nonsense_on_the_console_hides_no_record() {
    for id in WITH_FOREIGN {
        let Some(booted) = misbehave(id, Fault::Garble, 30) else {
            continue;
        };
        assert!(booted.trouble.is_none(), "{id}: {:?}", booted.trouble);
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
fn trouble_inside_the_simulated_machine_is_told() {
    assert_told(
        EnvironmentId::SimKvm,
        Fault::Panic,
        300,
        &["this guest was asked to panic"],
    );
    assert_told(EnvironmentId::SimKvm, Fault::Triple, 300, &["triple fault"]);
}

/// What a domain says of its own end arrives, too.
#[test]
fn trouble_in_a_domain_of_xen_is_told() {
    let words = ["this guest was asked to panic"];
    assert_told(EnvironmentId::SimXenPvh, Fault::Panic, 600, &words);
}
