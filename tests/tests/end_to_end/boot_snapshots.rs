//! Snapshots of simulated machines: restored machines have the figures of booted ones; unusable
//! snapshots are replaced.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trapline_abi::Workload;
use trapline_environments::sim::kernel::{self, Maker};
use trapline_environments::sim::{START, STREAM_HASH};
use trapline_environments::{Cache, Environment, Settings, Start};
use trapline_model::{EnvironmentId, Observation};
use trapline_tests::boots::{failure, observe, planned, ready, settings};
use trapline_tests::{parts, write_program};

const PATIENCE: Duration = Duration::from_secs(180);

/// Returns settings with a new cache that has the user's kernels, if the machine is available.
fn own_cache(directory: &Path) -> Option<Settings> {
    let settings = settings(&parts());
    ready(EnvironmentId::SIM_KVM, &settings)?;
    // Downloads the kernel into the user's cache if necessary.
    kernel::chosen(&settings, Maker::Amd).expect("a kernel is available");
    let kernels = settings.cache.directory.join("kernels");
    if settings.kernel.is_none() {
        std::os::unix::fs::symlink(kernels, directory.join("kernels")).unwrap();
    }
    Some(Settings {
        cache: Cache {
            directory: directory.to_owned(),
            ..settings.cache
        },
        ..settings
    })
}

fn environment(settings: &Settings) -> Box<dyn Environment> {
    let mut all = trapline_environments::all(settings).into_iter();
    all.find(|found| found.id() == EnvironmentId::SIM_KVM)
        .unwrap()
}

fn boot(settings: &Settings) -> Observation {
    let operations = Workload::Exits.set() | Workload::Boot.set();
    let plan = planned(EnvironmentId::SIM_KVM, operations);
    let environment = environment(settings);
    let booted = observe(environment.as_ref(), settings, &plan, PATIENCE).unwrap();
    assert!(booted.error.is_none(), "{:?}", booted.error);
    for operation in &booted.observation.operations {
        assert_eq!(failure(&operation.outcome), None, "{:?}", operation.op);
    }
    booted.observation
}

fn start(observation: &Observation) -> &str {
    &observation.facts[START]
}

fn snapshots(settings: &Settings) -> Vec<PathBuf> {
    let entries = fs::read_dir(settings.cache.directory.join("snapshots")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[track_caller]
fn assert_alike(one: &Observation, other: &Observation) {
    assert_eq!(one.facts[STREAM_HASH], other.facts[STREAM_HASH]);
    assert_eq!(one.operations, other.operations);
    assert_eq!(one.launches, other.launches);
}

#[test]
#[ignore = "slow: make test-all"]
fn restored_machine_prints_the_same_bytes_as_a_booted_one() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut settings) = own_cache(directory.path()) else {
        return;
    };
    let fresh = Settings {
        start: Start::Boot,
        ..settings.clone()
    };
    let never_kept = boot(&fresh);
    assert!(!directory.path().join("snapshots").exists());
    let kept = boot(&settings);
    let restored = boot(&settings);
    let starts = [&never_kept, &kept, &restored].map(start);
    assert_eq!(starts, ["booted", "booted", "restored"]);
    assert_alike(&never_kept, &kept);
    assert_alike(&kept, &restored);

    // A damaged snapshot is replaced.
    let snapshot = &snapshots(&settings)[..];
    let [snapshot] = snapshot else {
        panic!("one machine, one snapshot: {snapshot:?}");
    };
    let whole = fs::read(snapshot).unwrap();
    fs::write(snapshot, &whole[..whole.len() / 2]).unwrap();
    let again = boot(&settings);
    assert_eq!(start(&again), "booted");
    assert_alike(&restored, &again);
    assert_eq!(start(&boot(&settings)), "restored");

    // So is one that QEMU rejects.
    fs::write(snapshot, sealed(b"QEVM, but of another QEMU")).unwrap();
    let refused = boot(&settings);
    assert_eq!(start(&refused), "booted");
    assert_alike(&restored, &refused);
    assert_eq!(start(&boot(&settings)), "restored");

    // Another QEMU has its own.
    let wrapper = directory.path().join("qemu");
    write_program(&wrapper, "#!/bin/sh\nexec qemu-system-x86_64 \"$@\"\n");
    settings.qemu = Some(wrapper);
    assert_eq!(start(&boot(&settings)), "booted");
    assert_eq!(snapshots(&settings).len(), 2);
}

/// Returns a snapshot file with a valid checksum.
fn sealed(state: &[u8]) -> Vec<u8> {
    let length = (state.len() as u64).to_le_bytes();
    let checksum = crc32fast::hash(state).to_le_bytes();
    [state, b"trapline", &length, &checksum].concat()
}

#[test]
fn concurrent_users_of_a_machine_boot_it_once() {
    let directory = tempfile::tempdir().unwrap();
    let Some(settings) = own_cache(directory.path()) else {
        return;
    };
    let observations = std::thread::scope(|scope| {
        let both = [0, 1].map(|_| scope.spawn(|| boot(&settings)));
        both.map(|one| one.join().unwrap())
    });
    let mut starts: Vec<_> = observations.iter().map(start).collect();
    starts.sort_unstable();
    assert_eq!(starts, ["booted", "restored"]);
    assert_alike(&observations[0], &observations[1]);
}
