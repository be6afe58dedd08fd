//! Boots of image and agent in every environment of this host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trapline_abi::{Counter, Op, OpSet, Stage, Workload};
use trapline_environments::sim::STREAM_HASH;
use trapline_model::{EnvironmentId, Observation, Outcome};
use trapline_tests::boots::{failure, observe, planned, ready, settings};
use trapline_tests::parts;

/// Long enough for any guest of these tests on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Boots `id`, if it is ready, and checks the invariants of its observation.
fn whole(id: EnvironmentId) -> Option<Observation> {
    let settings = settings(&parts());
    let environment = ready(id, &settings)?;
    let exits = Workload::Exits.set_on(id.stack().machine.instruction_set());
    let wanted = Workload::Basic.set() | exits | Workload::Boot.set();
    let plan = planned(id, wanted);
    let booted = observe(environment.as_ref(), &settings, &plan, PATIENCE).unwrap();
    if let Some(trouble) = booted.error {
        panic!("{id}: {trouble}");
    }
    let observation = booted.observation;
    let reported = observation.operations.iter().filter_map(|it| it.op.guest());
    assert_eq!(reported.collect::<OpSet>(), wanted, "{id}");
    for operation in &observation.operations {
        let reason = failure(&operation.outcome);
        assert_eq!(reason, None, "{id} {:?}", operation.op);
    }
    assert_eq!(observation.problems, Vec::<String>::new(), "{id}");
    // Operations that are measured apart have launches of their own.
    let apart = (plan.job.run & OpSet::APART).len();
    let launches = 1 + apart + plan.boot_launches as usize;
    assert_eq!(observation.launches.len(), launches, "{id}");
    Some(observation)
}

fn measured(observation: &Observation, op: Op) -> bool {
    let of_op = |found: &&trapline_model::OperationResult| found.op == op;
    let found = observation.operations.iter().find(of_op);
    found.is_some_and(|found| matches!(found.outcome, Outcome::Measured { .. }))
}

/// Returns the memory of the VMM beyond the guest's, in bytes.
fn own_memory(observation: &Observation) -> u64 {
    observation.launches[0].counters[&Counter::OwnMemory]
}

fn in_order(observation: &Observation, stages: &[Stage]) {
    // Before those that measure a start is one for operations, and one for each that is measured apart.
    for launch in &observation.launches[1 + OpSet::APART.len()..] {
        let times = stages.iter().map(|stage| launch.timeline[stage]);
        let times: Vec<u64> = times.collect();
        assert!(times.is_sorted(), "{stages:?} at {times:?}");
    }
}

#[test]
fn host_boots() {
    let Some(observation) = whole(EnvironmentId::HOST) else {
        return;
    };
    assert!(measured(&observation, Op::Getpid) && measured(&observation, Op::BootMain));
    assert!(!measured(&observation, Op::PortOut) && !measured(&observation, Op::BootEntry));
    use Stage::{Exec, FirstSample, GuestExit, GuestMain, Reaped};
    in_order(
        &observation,
        &[Exec, GuestMain, FirstSample, GuestExit, Reaped],
    );
}

#[test]
fn kvm_boots() {
    let Some(observation) = whole(EnvironmentId::KVM) else {
        return;
    };
    assert!(measured(&observation, Op::PortOut) && measured(&observation, Op::BootCreated));
    let own = own_memory(&observation);
    assert!((100 << 10..16 << 20).contains(&own), "{own}");
    use Stage::{Exec, FirstSample, GuestEntry, GuestMain, Reaped, VmCreated};
    let stages = [Exec, VmCreated, GuestEntry, GuestMain, FirstSample, Reaped];
    in_order(&observation, &stages);
}

#[test]
fn qemu_kvm_boots() {
    let Some(observation) = whole(EnvironmentId::QEMU_KVM) else {
        return;
    };
    assert!(measured(&observation, Op::PortOut) && !measured(&observation, Op::BootCreated));
    assert!(own_memory(&observation) > 4 << 20, "QEMU is not that small");
}

#[test]
fn qemu_tcg_boots() {
    if let Some(observation) = whole(EnvironmentId::QEMU_TCG) {
        assert!(measured(&observation, Op::MmioWrite));
    }
}

#[test]
fn sim_boots() {
    if let Some(observation) = whole(EnvironmentId::SIM) {
        assert!(measured(&observation, Op::MmioWrite) && !measured(&observation, Op::BootMain));
        assert!(
            !measured(&observation, Op::XenHypercall) && !measured(&observation, Op::EventChannel)
        );
    }
}

#[test]
fn sim_linux_boots() {
    let Some(observation) = whole(EnvironmentId::SIM_LINUX) else {
        return;
    };
    // A timer with the resolution of a tick would be late by millions of instructions.
    let late = least(&observation, Op::TimerWake);
    assert!(late < 100_000.0, "{late}");
}

#[test]
fn sim_qemu_kvm_boots() {
    let Some(observation) = whole(EnvironmentId::SIM_QEMU_KVM) else {
        return;
    };
    assert!(
        measured(&observation, Op::BootEntry),
        "the kernel reports the TSC offset"
    );
    let own = own_memory(&observation);
    assert!((4 << 20..64 << 20).contains(&own), "{own}");
}

#[test]
#[ignore = "slow: make test-all"]
fn sim_xen_hvm_boots() {
    let Some(observation) = whole(EnvironmentId::SIM_XEN_HVM) else {
        return;
    };
    // QEMU in another domain handles it.
    for op in [Op::PortOut, Op::PortEmulated] {
        let port = least(&observation, op);
        assert!(port > 4.0 * least(&observation, Op::Cpuid), "{op:?} {port}");
    }
    assert!(measured(&observation, Op::EventChannel));
}

#[test]
#[ignore = "slow: make test-all"]
fn sim_xen_trapline_boots() {
    let Some(one) = whole(EnvironmentId::SIM_XEN_TRAPLINE) else {
        return;
    };
    // The VMM in another domain handles them; half of what QEMU takes there.
    for op in [Op::PortOut, Op::PortIn, Op::PortEmulated] {
        let port = least(&one, op);
        assert!(port > least(&one, Op::Cpuid), "{op:?} {port}");
        assert!(port < 22_000.0, "{op:?} {port}");
    }
    assert!(measured(&one, Op::MmioRead) && measured(&one, Op::MmioWrite));
    assert!(measured(&one, Op::BootExit) && !measured(&one, Op::BootEntry));
}

fn least(observation: &Observation, op: Op) -> f64 {
    let of_op = |found: &&trapline_model::OperationResult| found.op == op;
    match &observation.operations.iter().find(of_op).unwrap().outcome {
        Outcome::Measured { samples, .. } => samples
            .iter()
            .map(|sample| (sample.end - sample.start) as f64 / sample.count as f64)
            .fold(f64::MAX, f64::min),
        other => panic!("{other:?}"),
    }
}

/// Stops the load on drop.
struct Load<'a>(&'a AtomicBool);

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Boots twice at the same time on busy cores, checks that both are identical, and returns one, if the
/// environment is ready.
fn boot_twice_on_busy_cores(id: EnvironmentId) -> Option<Observation> {
    let idle = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _load = Load(&idle);
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..cores {
            scope.spawn(|| {
                while !idle.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let runs = [0, 1].map(|_| scope.spawn(|| whole(id)));
        let [one, other] = runs.map(|run| run.join().unwrap());
        let (one, other) = (one?, other?);
        assert_eq!(one.facts.get(STREAM_HASH), other.facts.get(STREAM_HASH));
        assert_eq!(one.operations, other.operations);
        assert_eq!(one.launches, other.launches);
        Some(one)
    })
}

#[test]
fn sim_kvm_is_reproducible_on_a_loaded_host() {
    if let Some(one) = boot_twice_on_busy_cores(EnvironmentId::SIM_KVM) {
        assert!(measured(&one, Op::PortOut) && measured(&one, Op::BootEntry));
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn sim_xen_pvh_is_reproducible_on_a_loaded_host() {
    if let Some(one) = boot_twice_on_busy_cores(EnvironmentId::SIM_XEN_PVH) {
        assert!(measured(&one, Op::Hypercall) && measured(&one, Op::BootExit));
        assert!(!measured(&one, Op::PortOut) && !measured(&one, Op::BootEntry));
        assert!(measured(&one, Op::XenHypercall) && measured(&one, Op::EventChannel));
        // Xen handles it.
        let port = least(&one, Op::PortEmulated);
        assert!(port < least(&one, Op::Cpuid), "{port}");
        assert!(one.facts.contains_key(STREAM_HASH));
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn sim_xen_dom0_boots() {
    let Some(one) = whole(EnvironmentId::SIM_XEN_DOM0) else {
        return;
    };
    assert!(measured(&one, Op::XenHypercall) && measured(&one, Op::EventChannel));
    assert!(measured(&one, Op::TimerWake) && !measured(&one, Op::BootExit));
    // The initial domain has direct access to ports and TSC.
    let port = least(&one, Op::PortOut);
    assert!(port < 100.0, "{port}");
    assert!(least(&one, Op::Cpuid) > 10.0 * port, "cpuid is Xen's");
    for fact in ["machine", "xen", "xen-sha256", "xen-command-line"] {
        assert!(one.facts.contains_key(fact), "{fact}");
    }
}
