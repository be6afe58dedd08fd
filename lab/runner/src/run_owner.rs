//! The process that adds to a run. It is stored with the run, so that another process that finds the run unfinished can
//! check whether its owner still runs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use trapline_model::Host;
use trapline_store::{Owner, RunInfo, MERGED};

/// State of the owner of an unfinished run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It runs on this host.
    Running,
    /// It runs on another host, as its heartbeat says.
    RunningElsewhere,
    /// It has ended, and was of this host.
    Ended,
    /// It has ended, and was of another host.
    EndedElsewhere,
}

/// Returns this process as an owner.
pub fn current(host: &Host) -> Owner {
    let pid = std::process::id();
    Owner {
        boot: boot_id(),
        pid,
        start: start_time(pid).unwrap_or_default(),
        namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino()),
        host: host.label().to_owned(),
    }
}

/// Returns the state of the owner of an unfinished run, as seen by the process `current`. Where processes cannot be found, a
/// heartbeat says that it runs.
pub(crate) fn state(run: &RunInfo, current: &Owner) -> State {
    if run.owner.as_deref() == Some(MERGED) {
        return State::EndedElsewhere;
    }
    // Formats 1 to 3 have no owner.
    let owner = run.owner.as_deref();
    let Some(owner) = owner.and_then(|text| text.parse::<Owner>().ok()) else {
        return State::Ended;
    };
    let runs = if owner.is_visible_to(current) {
        start_time(owner.pid) == Some(owner.start)
    } else {
        run.has_heartbeat()
    };
    // A host that was restarted has another boot id and the same name.
    let is_here = owner.host.is_empty() || owner.host == current.host;
    match (runs, is_here) {
        (true, _) if owner.is_of_same_kernel(current) => State::Running,
        (true, _) => State::RunningElsewhere,
        (false, true) => State::Ended,
        (false, false) => State::EndedElsewhere,
    }
}

/// Returns whether another process adds to a run.
pub fn is_running_elsewhere(run: &RunInfo) -> bool {
    let current = current(&Host::default());
    let owner = run.owner.as_deref().and_then(|text| text.parse().ok());
    let is_this = owner.is_some_and(|owner: Owner| {
        owner.is_visible_to(&current) && (owner.pid, owner.start) == (current.pid, current.start)
    });
    let state = state(run, &current);
    let runs = matches!(state, State::Running | State::RunningElsewhere);
    run.finished_at.is_none() && !is_this && runs
}

fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.unwrap_or_default().trim().to_owned()
}

/// Returns the start of a process that runs.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in parentheses, may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use trapline_model::time::now;

    fn run(owner: Option<&Owner>, heartbeat: Option<u64>) -> RunInfo {
        RunInfo {
            owner: owner.map(Owner::to_string),
            heartbeat,
            ..RunInfo::default()
        }
    }

    fn here() -> Owner {
        let host = Host {
            name: "here".to_owned(),
            ..Host::default()
        };
        current(&host)
    }

    #[test]
    fn a_process_of_this_host_runs_until_it_is_reaped() {
        let this = here();
        assert_eq!(state(&run(Some(&this), None), &this), State::Running);
        assert!(!is_running_elsewhere(&run(Some(&this), None)));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let owner = Owner {
            pid: child.id(),
            start: start_time(child.id()).unwrap(),
            ..this.clone()
        };
        let of_child = run(Some(&owner), Some(now()));
        assert_eq!(state(&of_child, &this), State::Running);
        assert!(is_running_elsewhere(&of_child));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(state(&of_child, &this), State::Ended);
    }

    #[test]
    fn a_process_that_cannot_be_found_runs_while_it_has_a_heartbeat() {
        let this = here();
        let container = Owner {
            namespace: 1,
            ..this.clone()
        };
        let restarted = Owner {
            boot: "earlier".to_owned(),
            ..this.clone()
        };
        let other = Owner {
            host: "there".to_owned(),
            ..restarted.clone()
        };
        let elsewhere = State::RunningElsewhere;
        for (owner, running, ended) in [
            (&container, State::Running, State::Ended),
            (&restarted, elsewhere, State::Ended),
            (&other, elsewhere, State::EndedElsewhere),
        ] {
            // One of a host whose clock is ahead runs, too.
            for heartbeat in [now(), now() - 55_000, now() + 20_000] {
                let alive = run(Some(owner), Some(heartbeat));
                assert_eq!(state(&alive, &this), running, "{owner}");
                assert!(is_running_elsewhere(&alive), "{owner}");
            }
            for heartbeat in [Some(now() - 65_000), None] {
                assert_eq!(state(&run(Some(owner), heartbeat), &this), ended, "{owner}");
            }
        }
        assert_eq!(state(&run(None, None), &this), State::Ended);
        let merged = RunInfo {
            owner: Some(MERGED.to_owned()),
            ..RunInfo::default()
        };
        assert_eq!(state(&merged, &this), State::EndedElsewhere);
        let ahead = run(Some(&other), Some(now() + 100_000));
        assert_eq!(state(&ahead, &this), State::EndedElsewhere);
    }
}
