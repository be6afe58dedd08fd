//! Memory of guests that vanishes, is in many parts, or no memory.

use crate::common::{next, send, wait_until, Switch, PACKED, SPLIT};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use trapline_skip::skip;
use trapline_switch::driver::traffic::Traffic;
use trapline_switch::driver::{memory_file, Peer, Setup};

/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;

/// Truncates the memory of a port, and checks that this port stops alone.
fn truncate(switch: &Switch, hostile: Peer) {
    let mut a = switch.peer("a", SPLIT);
    let mut b = switch.peer("b", SPLIT);
    hostile.file.set_len(0).unwrap();
    for _ in 0..3 {
        // To all ports.
        send(&mut a, 9, 1, 60);
        assert_eq!(next(&mut b).len(), 60);
    }
    wait_until(|| switch.counters("c")["faults"] == 1);
    let fault = switch.counters("c")["last_fault"].clone();
    assert_eq!(fault, "the file of the guest's memory was truncated");
    // Its own drivers would fault, too.
    std::mem::forget(hostile);
}

#[test]
fn truncated_memory_stops_its_port_alone() {
    let switch = Switch::start(&["a", "b", "c"], &[]);
    let hostile = switch.peer("c", SPLIT);
    truncate(&switch, hostile);
}

/// Huge pages of the host, reserved while this exists.
struct HugePages {
    file: File,
    before: String,
}

impl HugePages {
    fn reserve(count: u64) -> io::Result<Self> {
        let mut options = File::options();
        let mut file = options
            .read(true)
            .write(true)
            .open("/proc/sys/vm/nr_hugepages")?;
        let mut before = String::new();
        file.read_to_string(&mut before)?;
        let pages = Self { file, before };
        let wanted: u64 = pages.before.trim().parse().map_err(io::Error::other)?;
        pages.set(&(wanted + count).to_string())?;
        Ok(pages)
    }

    fn set(&self, count: &str) -> io::Result<()> {
        (&self.file).rewind()?;
        (&self.file).write_all(count.as_bytes())
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        self.set(&self.before).unwrap();
    }
}

/// Creates a memfd of huge pages.
fn huge_file(size: u64) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
    // SAFETY: the name is a C string; the descriptor has no other owner.
    let file = unsafe {
        match libc::memfd_create(c"huge".as_ptr(), flags) {
            ..0 => return Err(io::Error::last_os_error()),
            fd => File::from_raw_fd(fd),
        }
    };
    file.set_len(size.next_multiple_of(HUGE))?;
    Ok(file)
}

#[test]
fn truncated_huge_pages_stop_their_port_alone() {
    fn missing(error: impl std::fmt::Display) {
        let why = format!("no pages of 2 MiB can be reserved: {error}");
        skip("a port with memory of huge pages", &why);
    }
    let switch = Switch::start(&["a", "b", "c"], &[]);
    let pages = match HugePages::reserve(4) {
        Ok(pages) => pages,
        Err(error) => return missing(error),
    };
    let socket = UnixStream::connect(switch.path("c")).unwrap();
    let hostile = match Peer::in_file(socket, SPLIT, huge_file) {
        Ok(hostile) => hostile,
        Err(error) => return missing(error),
    };
    wait_until(|| switch.started("c") == 1);
    truncate(&switch, hostile);
    drop(pages);
}

/// A VMM may truncate each region of each of its connections.
#[test]
fn memory_that_vanishes_again_and_again_harms_nobody_else() {
    let switch = Switch::start(&["a", "b", "c"], &[]);
    let paths = [switch.path("a"), switch.path("b")];
    let paths = paths.each_ref().map(|path| path.as_path());
    let mut traffic = Traffic::connect(paths, SPLIT, 60, false, 1).unwrap();
    for round in 1..=20 {
        let setup = Setup {
            regions: 32,
            ..SPLIT
        };
        let hostile = switch.peer("c", setup);
        hostile.file.set_len(0).unwrap();
        // An idle switch looks at no memory.
        wait_until(|| {
            let flow = traffic.run(Duration::from_millis(2)).flow;
            assert!(flow.received > 0, "{flow:?}");
            assert_eq!(flow.damaged, 0, "{flow:?}");
            switch.counters("c")["faults"] == round
        });
        drop(hostile);
    }
}

#[test]
fn frames_cross_the_borders_of_regions() {
    let switch = Switch::start(&["a", "b"], &[]);
    for setup in [SPLIT, PACKED] {
        for regions in [2, 9, 32] {
            let paths = [switch.path("a"), switch.path("b")];
            let paths = paths.each_ref().map(|path| path.as_path());
            let setup = Setup { regions, ..setup };
            let mut traffic = Traffic::connect(paths, setup, 1514, true, 1).unwrap();
            let mut received = 0;
            // Each buffer is used at least once in each direction.
            wait_until(|| {
                let flow = traffic.run(Duration::from_millis(50)).flow;
                assert_eq!((flow.lost, flow.damaged), (0, 0), "{setup:?} {flow:?}");
                received += flow.received;
                received > 4 * 256
            });
        }
    }
}

#[test]
fn files_that_are_no_memory_are_refused() {
    let switch = Switch::start(&["a", "b", "c"], &[]);
    let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let on_disk = |size: u64| -> io::Result<File> {
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(place.path().join("memory"))?;
        file.set_len(size)?;
        Ok(file)
    };
    let socket = UnixStream::connect(switch.path("c")).unwrap();
    assert!(Peer::in_file(socket, SPLIT, on_disk).is_err());
    drop(switch.peer("c", SPLIT));
    let too_many = Setup {
        regions: 33,
        ..SPLIT
    };
    assert!(Peer::connect(&switch.path("c"), too_many).is_err());
    let socket = UnixStream::connect(switch.path("c")).unwrap();
    let sparse = |size| memory_file(size + (1 << 50));
    drop(Peer::in_file(socket, SPLIT, sparse).unwrap());
}
