//! What can be seen of a VMM's process from outside: CPU time, memory, and what
//! KVM's debugfs says about its guest, where that may be read.

use crate::transcript::Seen;
use std::fs;
use std::path::{Path, PathBuf};

/// Where KVM tells about its guests, one directory each.
const KVM_DEBUG: &str = "/sys/kernel/debug/kvm";

/// Watches a process.
#[derive(Debug)]
pub struct ProcessWitness {
    pid: i32,
    /// The most memory beyond guest RAM that was seen, in bytes.
    pub own_memory: Option<u64>,
    /// Its guest's TSC minus the host's, in ticks, where the kernel tells.
    pub tsc_offset: Option<i64>,
    guest: Option<PathBuf>,
    looked_for_guest: bool,
    /// Whether the CPU time of its children is its own.
    children: bool,
}

impl ProcessWitness {
    /// A witness of process `pid`.
    pub fn of(pid: i32) -> Self {
        Self {
            pid,
            own_memory: None,
            tsc_offset: None,
            guest: None,
            looked_for_guest: false,
            children: false,
        }
    }

    /// From here on what its children do counts as its own doing.
    pub fn count_children(&mut self) {
        self.children = true;
    }

    /// Looks now.
    pub fn glance(&mut self) -> Seen {
        self.find_guest();
        self.own_memory = self.own_memory.max(own_memory(self.pid));
        Seen {
            cpu_ns: match self.children {
                true => Some(family_cpu_ns(self.pid)),
                false => cpu_ns(self.pid),
            },
            exits: self
                .guest
                .as_deref()
                .and_then(|guest| count(guest, "exits")),
        }
    }

    fn find_guest(&mut self) {
        if std::mem::replace(&mut self.looked_for_guest, true) {
            return;
        }
        self.guest = guest_of(self.pid);
        self.tsc_offset = self
            .guest
            .as_deref()
            .and_then(|guest| number(&guest.join("vcpu0/tsc-offset")));
    }
}

fn guest_of(pid: i32) -> Option<PathBuf> {
    let prefix = format!("{pid}-");
    let guests = fs::read_dir(KVM_DEBUG).ok()?;
    let ours = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&prefix);
    Some(guests.flatten().find(ours)?.path())
}

fn count(guest: &Path, name: &str) -> Option<u64> {
    number(&guest.join(name))
}

fn number<N: std::str::FromStr>(path: &Path) -> Option<N> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// CPU time of all threads of a process, ended ones included, in nanoseconds.
pub fn cpu_ns(pid: i32) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: writes a number to a place of ours.
    if unsafe { libc::clock_getcpuclockid(pid, &mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to a place of ours; a process that is gone is an error.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return None;
    }
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// CPU time of a process and of those that it has started.
pub fn family_cpu_ns(pid: i32) -> u64 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let running = children
        .split_ascii_whitespace()
        .filter_map(|child| cpu_ns(child.parse().ok()?));
    cpu_ns(pid).unwrap_or(0) + ended_cpu_ns(pid).unwrap_or(0) + running.sum::<u64>()
}

/// Of its ended children's time the kernel tells in ticks of a hundredth of a second.
fn ended_cpu_ns(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    // proc(5): fields 16 and 17; the first behind the name is field 3.
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some((ticks(16)? + ticks(17)?) * 10_000_000)
}

/// The peak of a process's memory without what it shares, in bytes. Guest RAM is
/// shared memory in all VMMs that we start, so this is what the VMM itself takes.
fn own_memory(pid: i32) -> Option<u64> {
    own_memory_in(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn own_memory_in(status: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    let own = kib("VmHWM:")?.saturating_sub(kib("RssShmem:")?);
    Some(own * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_to_work_and_to_hold_memory() {
        let pid = std::process::id() as i32;
        let mut witness = ProcessWitness::of(pid);
        let before = witness.glance().cpu_ns.unwrap();
        let held = std::hint::black_box(vec![1u8; 8 << 20]);
        assert!(witness.glance().cpu_ns.unwrap() > before);
        assert!(witness.own_memory.unwrap() >= 8 << 20);
        drop(held);
    }

    #[test]
    fn guest_memory_does_not_count_as_the_vmm_own() {
        let status = "VmHWM:\t   70000 kB\nRssAnon:\t 1 kB\nRssShmem:\t   65536 kB\n";
        assert_eq!(own_memory_in(status), Some((70_000 - 65_536) * 1024));
        assert_eq!(own_memory_in("State:\tZ (zombie)\n"), None);
    }

    #[test]
    fn a_process_that_is_gone_has_nothing_to_show() {
        let mut gone = std::process::Command::new("/bin/true").spawn().unwrap();
        gone.wait().unwrap();
        let mut witness = ProcessWitness::of(gone.id() as i32);
        assert!(witness.glance().cpu_ns.is_none());
        assert_eq!(witness.own_memory, None);
    }
}
