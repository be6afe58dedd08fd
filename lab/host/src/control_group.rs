//! Limits that a container or a service manager sets for this process: those of its control groups (Linux,
//! admin-guide/cgroup-v1 and admin-guide/cgroup-v2.rst), and a filter of system calls.

use std::fs;
use std::path::{Path, PathBuf};

/// Limits of this process, and what they have cost so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limited {
    /// CPU time, in CPUs.
    pub cpus: Option<f64>,
    /// Periods, of 100 ms by default, in which all of its CPU time was used up before their end.
    pub stopped: u64,
    /// CPUs that it may use, if not all.
    pub cpu_list: Option<String>,
    /// Memory in bytes, if less than the host has.
    pub memory: Option<u64>,
    /// Processes that were killed for lack of memory.
    pub killed: u64,
    /// A filter decides about its system calls (seccomp).
    pub has_filter: bool,
}

impl Limited {
    /// Reads the limits of this process.
    pub fn now() -> Self {
        let status = read("/proc/self/status");
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        let groups = groups(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        let total = field_of(&read("/proc/meminfo"), "MemTotal:").map(|kib| kib * 1024);
        let online = read("/sys/devices/system/cpu/online");
        let cpu_list = field("Cpus_allowed_list:").map(|list| list.trim().to_owned());
        Self {
            memory: least(&groups, memory).filter(|bytes| total.is_none_or(|all| *bytes < all)),
            cpus: least(&groups, quota),
            stopped: most(&groups, stopped),
            killed: most(&groups, killed),
            cpu_list: cpu_list.filter(|list| *list != online.trim()),
            has_filter: field("Seccomp:").is_some_and(|mode| mode.trim() == "2"),
        }
    }

    /// Returns the limits in words; `None` if there are none. A filter of system calls changes no figure.
    pub fn describe(&self) -> Option<String> {
        let cpus = self.cpus.map(|cpus| {
            let cpus = (cpus * 100.0).round() / 100.0;
            format!(
                "the time of {cpus} CPU{}",
                if cpus == 1.0 { "" } else { "s" }
            )
        });
        let list = self.cpu_list.as_ref();
        let list = list.map(|list| format!("CPUs {list}"));
        let memory = self
            .memory
            .map(|bytes| format!("{} MiB of memory", bytes >> 20));
        let all: Vec<String> = [cpus, list, memory].into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the number behind a name at the start of a line.
fn field_of(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

fn number(path: PathBuf) -> Option<f64> {
    read(path).trim().parse().ok()
}

/// Returns the CPU time that a group gets, in CPUs.
fn quota(group: &Path) -> Option<f64> {
    let second = read(group.join("cpu.max"));
    let (quota, period) = match second.trim().split_once(' ') {
        Some((quota, period)) => (quota.parse().ok(), period.parse().ok()),
        None => (
            number(group.join("cpu.cfs_quota_us")),
            number(group.join("cpu.cfs_period_us")),
        ),
    };
    let (quota, period): (f64, f64) = (quota?, period?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Returns the memory that a group gets, in bytes.
fn memory(group: &Path) -> Option<u64> {
    let [second, first] =
        ["memory.max", "memory.limit_in_bytes"].map(|file| read(group.join(file)));
    second.trim().parse().or_else(|_| first.trim().parse()).ok()
}

/// Returns the number of periods in which a group had used up its CPU time.
fn stopped(group: &Path) -> Option<u64> {
    field_of(&read(group.join("cpu.stat")), "nr_throttled")
}

/// Returns the number of a group's processes that were killed for lack of memory.
fn killed(group: &Path) -> Option<u64> {
    let [second, first] = ["memory.events", "memory.oom_control"]
        .map(|file| field_of(&read(group.join(file)), "oom_kill "));
    second.or(first)
}

/// Returns the least limit of all groups: that of an outer one holds, too.
fn least<T: PartialOrd>(groups: &[PathBuf], limit: impl Fn(&Path) -> Option<T>) -> Option<T> {
    let limits = groups.iter().filter_map(|group| limit(group));
    limits.reduce(|a, b| if b < a { b } else { a })
}

fn most(groups: &[PathBuf], count: impl Fn(&Path) -> Option<u64>) -> u64 {
    let counts = groups.iter().filter_map(|group| count(group));
    counts.max().unwrap_or(0)
}

/// Returns the directories of a process's groups and of all groups around them, as far as they are visible.
fn groups(of_process: &str, mounts: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in of_process.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let Some((root, mounted)) = mounts.lines().find_map(|line| mount(line, controllers)) else {
            continue;
        };
        let inner = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        let inner = inner.ancestors().map(|inner| mounted.join(inner));
        all.extend(inner);
    }
    all
}

/// Returns root and directory of a mount in a line of mountinfo, if it is that of these controllers. The second version has one
/// mount for all, which has no names of controllers.
fn mount<'a>(line: &'a str, controllers: &str) -> Option<(&'a Path, &'a Path)> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (root, mounted) = (place.next()?, place.next()?);
    let mut kind = kind.split(' ');
    let (kind, options) = (kind.next()?, kind.nth(1)?);
    let is_it = match controllers {
        "" => kind == "cgroup2",
        names => {
            kind == "cgroup"
                && names
                    .split(',')
                    .all(|it| options.split(',').any(|o| o == it))
        }
    };
    is_it.then(|| (Path::new(root), Path::new(mounted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates files with these contents, and returns their directory.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        directory
    }

    #[test]
    fn limits_of_both_versions_are_those_of_the_narrowest_group() {
        let second = tree(&[
            ("a/cpu.max", "150000 100000\n"),
            ("a/b/cpu.max", "max 100000\n"),
            ("a/b/memory.max", "1048576\n"),
            ("a/memory.max", "max\n"),
            ("a/cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 7\n"),
            ("a/b/memory.events", "low 0\noom 4\noom_kill 3\n"),
        ]);
        let first = tree(&[
            ("a/b/cpu.cfs_quota_us", "50000\n"),
            ("a/b/cpu.cfs_period_us", "100000\n"),
            ("cpu.cfs_quota_us", "-1\n"),
            ("a/memory.limit_in_bytes", "2097152\n"),
            (
                "a/b/memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            ),
        ]);
        for (root, kind, controllers, cpus, bytes, kills) in [
            (&second, "cgroup2 none rw", "", 1.5, 1 << 20, 3),
            (
                &first,
                "cgroup none rw,cpu,memory",
                "cpu,memory",
                0.5,
                2 << 20,
                2,
            ),
        ] {
            let at = root.path().display();
            // In a container the mount begins at its own group.
            for (visible, of_process) in [("/", "/a/b"), ("/docker/1", "/docker/1/a/b")] {
                let mounts =
                    format!("1 2 0:1 / / rw - ext4 x rw\n3 2 0:2 {visible} {at} rw - {kind}\n");
                let groups = groups(&format!("1:{controllers}:{of_process}\n"), &mounts);
                assert_eq!(groups.len(), 3, "{groups:?}");
                assert_eq!(least(&groups, quota), Some(cpus));
                assert_eq!(least(&groups, memory), Some(bytes));
                assert_eq!(most(&groups, killed), kills);
            }
        }
        assert_eq!(most(&[second.path().join("a")], stopped), 7);
    }

    #[test]
    fn group_outside_of_its_mount_is_the_mount_itself() {
        let mounts = "3 2 0:2 /docker/1 /sys/fs/cgroup rw - cgroup2 none rw\n";
        let found = groups("0::/../other\n", mounts);
        assert_eq!(found, [PathBuf::from("/sys/fs/cgroup/")]);
        assert!(groups("0::/a\nbad\n", "").is_empty());
    }

    #[test]
    fn limits_are_said_in_words() {
        assert_eq!(Limited::default().describe(), None);
        let limited = Limited {
            cpus: Some(1.5),
            cpu_list: Some("0-1".to_owned()),
            memory: Some(512 << 20),
            has_filter: true,
            ..Limited::default()
        };
        assert_eq!(
            limited.describe().unwrap(),
            "the time of 1.5 CPUs, CPUs 0-1, 512 MiB of memory"
        );
        let one = Limited {
            cpus: Some(1.0),
            ..Limited::default()
        };
        assert_eq!(one.describe().unwrap(), "the time of 1 CPU");
    }

    /// A real group, if this process may make one.
    #[test]
    fn group_of_this_process_is_read() {
        let directory = format!("/sys/fs/cgroup/cpu/trapline-test-{}", std::process::id());
        let directory = Path::new(&directory);
        let file = |name| directory.join(name);
        if fs::create_dir(directory).is_err()
            || fs::write(file("cpu.cfs_quota_us"), "70000").is_err()
        {
            let _absent = fs::remove_dir(directory);
            return trapline_skip::skip(
                "limits of a control group of version 1",
                "no control group of version 1 can be made",
            );
        }
        let outer = fs::read_to_string("/proc/self/cgroup").unwrap();
        let outer = outer
            .lines()
            .find_map(|line| line.split_once(":cpu:"))
            .unwrap()
            .1;
        // The thread alone: others of this process test something else.
        let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
        fs::write(file("tasks"), &thread).unwrap();
        let groups = groups(
            &read("/proc/thread-self/cgroup"),
            &read("/proc/self/mountinfo"),
        );
        let limit = least(&groups, quota);
        let back = Path::new("/sys/fs/cgroup/cpu").join(outer.trim_start_matches('/'));
        fs::write(back.join("tasks"), &thread).unwrap();
        fs::remove_dir(directory).unwrap();
        assert_eq!(limit, Some(0.7));
    }
}
