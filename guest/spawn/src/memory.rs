//! Memory of a VMM beyond that of its guest.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};

/// Returns the resident memory of process `pid` and its descendants, in bytes: each without its largest writable mapping,
/// which in a VMM is guest memory. `None` if the process has ended, or has no memory.
pub fn own_memory(pid: i32) -> Option<u64> {
    let maps = File::open(format!("/proc/{pid}/smaps")).ok()?;
    let own = beside_largest(BufReader::new(maps))?;
    let children = children(pid).into_iter().filter_map(own_memory);
    Some(own + children.sum::<u64>())
}

/// Returns the children that the threads of a process have started.
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let parsed = |list: String| -> Vec<i32> {
        let words = list.split_ascii_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    lists.flat_map(parsed).collect()
}

/// Sums the resident bytes of all mappings (proc_pid_smaps(5)) but the largest writable one.
fn beside_largest(maps: impl BufRead) -> Option<u64> {
    let (mut sum, mut size) = (0, 0);
    let mut largest = (0, 0);
    for line in maps.lines() {
        let line = line.ok()?;
        if let Some(kib) = line.strip_prefix("Rss:") {
            let kib: u64 = kib.trim_end_matches("kB").trim().parse().ok()?;
            sum += kib;
            largest = largest.max((size, kib));
        } else if !line.starts_with(|c: char| c.is_ascii_uppercase()) {
            size = writable_size(&line)?;
        }
    }
    (sum != 0).then_some((sum - largest.1) * 1024)
}

/// Returns the size of the mapping whose first line this is, if it is writable, else 0.
fn writable_size(line: &str) -> Option<u64> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let parse = |hex| u64::from_str_radix(hex, 16).ok();
    let size = parse(end)?.checked_sub(parse(start)?)?;
    Some(if rest.starts_with("rw") { size } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn largest_writable_mapping_is_left_out() {
        let maps = "00400000-10500000 r-xp 00000000 00:1d 7 /bin/vmm\n\
                    Size:  1024 kB\nRss:    600 kB\nPss:    300 kB\n\
                    7f0000000000-7f0004000000 rw-p 00000000 00:00 0 \n\
                    Size: 65536 kB\nRss:   4000 kB\nVmFlags: rd wr\n\
                    7f0005000000-7f0005100000 rw-p 00000000 00:00 0 [heap]\n\
                    Rss:    400 kB\n";
        assert_eq!(beside_largest(maps.as_bytes()), Some(1000 * 1024));
        assert_eq!(beside_largest("Rss: many kB\n".as_bytes()), None);
        assert_eq!(beside_largest(&[][..]), None);
    }

    #[test]
    fn memory_of_children_is_included() {
        let script = "sleep 60 & wait";
        let mut shell = Command::new("/bin/sh");
        let shell = shell.args(["-c", script]).stdout(Stdio::null()).spawn();
        let mut shell = shell.unwrap();
        let pid = shell.id() as i32;
        let child = loop {
            if let [child] = children(pid)[..] {
                break child;
            }
            assert!(shell.try_wait().unwrap().is_none(), "the shell has ended");
        };
        // While the child starts its program it may have no memory.
        let includes_child =
            || own_memory(child).is_some_and(|of_child| own_memory(pid) > Some(of_child));
        while !includes_child() {
            assert!(shell.try_wait().unwrap().is_none(), "the shell has ended");
        }
        // SAFETY: ends the process that was started above.
        unsafe { libc::kill(child, libc::SIGKILL) };
        shell.wait().unwrap();
        assert_eq!(own_memory(pid), None);
    }
}
