//! Processes that a program started, found by a variable in their environment: they may have left its process
//! group, and their parents may have ended. One that clears its environment is not found.

use rustix::process::{kill_process, Pid, Signal};
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the variable.
pub const VARIABLE: &str = "TRAPLINE_PROCESS";

/// Number of scans, in case processes start others faster than they are killed.
const MOST_SCANS: usize = 100;

/// Returns a value that no other process of this host has.
pub fn unique_value() -> String {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    format!("{}.{number}", std::process::id())
}

/// Kills all processes with this value.
pub fn kill(value: &str) {
    let entry = format!("{VARIABLE}={value}");
    for _ in 0..MOST_SCANS {
        let found = with_entry(entry.as_bytes());
        if found.is_empty() {
            return;
        }
        for pid in found {
            // It may have ended since.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Returns the running processes whose environment has `entry`; that of a zombie is empty.
fn with_entry(entry: &[u8]) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let has_entry = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|it| it == entry)
    };
    pids.filter(has_entry).filter_map(Pid::from_raw).collect()
}
