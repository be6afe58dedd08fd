//! Resource usage of a VMM's process: CPU time, memory, and KVM's debugfs counters where readable.

use std::fs;
use std::path::{Path, PathBuf};
use trapline_protocol::{Usage, UsageProbe};
use trapline_spawn::memory::own_memory;

/// Directory with one entry per KVM guest.
const KVM_DEBUG: &str = "/sys/kernel/debug/kvm";

/// Samples the usage of a process.
#[derive(Debug)]
pub struct ProcessProbe {
    pid: i32,
    /// Memory besides guest RAM when the guest had started, in bytes.
    pub own_memory: Option<u64>,
    /// TSC of the guest minus TSC of the host, in ticks, if the kernel reports it.
    pub tsc_offset: Option<i64>,
    guest: Option<PathBuf>,
    searched_guest: bool,
    include_children: bool,
}

impl ProcessProbe {
    /// Returns a probe of process `pid`.
    pub fn new(pid: i32) -> Self {
        Self {
            pid,
            own_memory: None,
            tsc_offset: None,
            guest: None,
            searched_guest: false,
            include_children: false,
        }
    }

    /// Adds the CPU time of child processes from now on.
    pub fn include_children(&mut self) {
        self.include_children = true;
    }

    fn find_guest(&mut self) {
        if std::mem::replace(&mut self.searched_guest, true) {
            return;
        }
        self.guest = guest_of(self.pid);
        self.tsc_offset = self
            .guest
            .as_deref()
            .and_then(|guest| number(&guest.join("vcpu0/tsc-offset")));
    }
}

impl UsageProbe for ProcessProbe {
    fn sample(&mut self) -> Usage {
        self.find_guest();
        Usage {
            cpu_ns: if self.include_children {
                Some(family_cpu_ns(self.pid))
            } else {
                cpu_ns(self.pid)
            },
            exits: self
                .guest
                .as_deref()
                .and_then(|guest| number(&guest.join("exits"))),
        }
    }

    fn guest_started(&mut self) {
        self.own_memory = own_memory(self.pid);
    }
}

fn guest_of(pid: i32) -> Option<PathBuf> {
    let prefix = format!("{pid}-");
    let guests = fs::read_dir(KVM_DEBUG).ok()?;
    let ours = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&prefix);
    Some(guests.flatten().find(ours)?.path())
}

fn number<N: std::str::FromStr>(path: &Path) -> Option<N> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the CPU time of all threads of a process, ended ones included, in nanoseconds.
pub fn cpu_ns(pid: i32) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: `clock` is a valid pointer for the duration of the call.
    if unsafe { libc::clock_getcpuclockid(pid, &mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid pointer for the duration of the call; an ended process is an error.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return None;
    }
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the CPU time of a process and its children, in nanoseconds.
pub fn family_cpu_ns(pid: i32) -> u64 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let running = children
        .split_ascii_whitespace()
        .filter_map(|child| cpu_ns(child.parse().ok()?));
    cpu_ns(pid).unwrap_or(0) + ended_cpu_ns(pid).unwrap_or(0) + running.sum::<u64>()
}

/// Returns the CPU time of ended children, which the kernel counts in ticks of 10 ms (USER_HZ).
fn ended_cpu_ns(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    // proc_pid_stat(5): cutime and cstime are fields 16 and 17; the one after the name is field 3.
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some((ticks(16)? + ticks(17)?) * 10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns touched shared memory.
    fn shared_memory(length: usize) -> &'static [u8] {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses, which is never unmapped.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), length, protection, kind, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            std::slice::from_raw_parts(start.cast(), length)
        }
    }

    #[test]
    fn cpu_time_and_memory_of_a_process_are_sampled() {
        let pid = std::process::id() as i32;
        let mut probe = ProcessProbe::new(pid);
        let before = probe.sample().cpu_ns.unwrap();
        let held = std::hint::black_box(vec![1u8; 16 << 20]);
        assert!(probe.sample().cpu_ns.unwrap() > before);
        // The largest mapping is taken for guest memory. Shared memory is a mapping of its own.
        let shared = shared_memory(8 << 20);
        probe.guest_started();
        assert!(probe.own_memory.unwrap() >= shared.len() as u64);
        drop(held);
    }

    #[test]
    fn ended_process_has_no_usage() {
        let mut gone = std::process::Command::new("/bin/true").spawn().unwrap();
        gone.wait().unwrap();
        let mut probe = ProcessProbe::new(gone.id() as i32);
        assert!(probe.sample().cpu_ns.is_none());
        probe.guest_started();
        assert_eq!(probe.own_memory, None);
    }
}
