//! Identity of the process that adds to a run. It is stored with the run, so that another process
//! that finds the run unfinished can check whether its owner still runs.

use std::fs;

/// Returns the identity of this process: boot id of the kernel, PID and start time
/// (proc_pid_stat(5), field 22).
pub fn current() -> String {
    identity(std::process::id()).unwrap_or_default()
}

/// Returns whether the process with this identity still runs.
pub fn is_running(owner: &str) -> bool {
    let pid = owner.split(' ').nth(1).and_then(|word| word.parse().ok());
    pid.and_then(identity).as_deref() == Some(owner)
}

/// Returns whether another process with this identity still runs.
pub fn is_running_elsewhere(owner: &str) -> bool {
    is_running(owner) && owner != current()
}

fn identity(pid: u32) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in parentheses, may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    let start_time = fields.split_whitespace().nth(19)?;
    Some(format!("{} {pid} {start_time}", boot.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_running_until_it_is_reaped() {
        assert!(is_running(&current()) && !is_running_elsewhere(&current()));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let owner = identity(child.id()).unwrap();
        assert!(is_running(&owner) && is_running_elsewhere(&owner));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_running(&owner));
        for unknown in ["", "x", "boot 1 0", "other 1"] {
            assert!(!is_running(unknown), "{unknown}");
        }
    }
}
