//! Stored runs that several tests read: the first test that needs one measures it.

use rusqlite::Connection;
use serde_json::Value;
use std::sync::OnceLock;
use trapline_tests::run::{CommandOutput, Place};

/// A run and its store.
pub struct StoredRun {
    /// Directory with the store. The run is its first; tests may add others.
    pub place: Place,
    /// Status and output of the command.
    pub result: CommandOutput,
    /// Standard output.
    pub json: Value,
}

impl StoredRun {
    /// Measures `words`. Environments on an exact clock are booted twice.
    fn new(words: &[&str]) -> Self {
        let place = Place::reproducing();
        let store = place.store();
        let store = store.to_str().expect("path is UTF-8");
        let fixed = ["run", "--format", "json", "--store", store];
        let result = place.run(&[&fixed[..], words].concat());
        let json = result.json();
        note_skips(&json);
        Self {
            place,
            result,
            json,
        }
    }
}

/// Records unavailable environments as skipped.
fn note_skips(json: &Value) {
    let environments = json["environments"]
        .as_object()
        .expect("object of environments");
    for (name, environment) in environments {
        if let Some(reason) = environment["skip"].as_str() {
            trapline_tests::skip(&format!("environment {name}"), reason);
        }
    }
}

/// Returns the run of a default plan: all environments of this host.
pub fn default_run() -> &'static StoredRun {
    static RUN: OnceLock<StoredRun> = OnceLock::new();
    RUN.get_or_init(|| StoredRun::new(&["--boots", "2"]))
}

/// Environment of [`linux_guest`].
pub const LINUX_GUEST: &str = "sim/kvm/linux";

/// Returns a run of a Linux guest on the simulated machine: a system call, and exchanges over TCP, UDP and vsock.
pub fn linux_guest() -> &'static StoredRun {
    static RUN: OnceLock<StoredRun> = OnceLock::new();
    RUN.get_or_init(|| {
        let operations = "basic/getpid,net/tcp-ping,net/udp-ping,net/tcp-send,net/tcp-receive,\
                          net/vsock-ping,net/vsock-send,net/vsock-receive";
        StoredRun::new(&["--env", LINUX_GUEST, "--workload", operations])
    })
}

/// Returns the console hash of each boot of an environment.
fn streams(place: &Place, environment: &str) -> Vec<String> {
    let store = Connection::open(place.store()).expect("store exists");
    let of_one = "SELECT facts ->> 'stream-sha256' FROM boots WHERE environment = ?";
    let mut query = store.prepare(of_one).expect("table of boots");
    let rows = query.query_map([environment], |row| row.get(0));
    let streams: Result<_, _> = rows.expect("query succeeds").collect();
    streams.expect("fact of each boot")
}

/// Checks that both boots of an environment wrote the same bytes.
#[track_caller]
pub fn assert_reproducible(place: &Place, environment: &str) {
    let streams = streams(place, environment);
    assert!(
        streams.len() == 2 && streams[0] == streams[1],
        "{streams:?}"
    );
}
