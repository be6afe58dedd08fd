//! Pages that the image has made durable survive SIGKILL of its VMM.
//!
//! The image runs `files/write-4k-fsync`: each sample writes and syncs 64 pages of a file with a content of its own, and is
//! reported on the console. After the kill the disk must have the content of the last reported sample, or of the next one,
//! in 64 whole pages. A disk of this host keeps what the VMM wrote, so that this proves that the data left the guest.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use trapline_abi::files::{Class, File, PAGE};
use trapline_abi::job::Console;
use trapline_abi::{Job, Op};
use trapline_tests::guest::GuestOutput;
use trapline_tests::{has_kvm, parts};

const FILE: File = File {
    class: Class::Mebibyte,
    index: 0,
};

/// Pages that a sample changes, of the 256 of the file.
const CHANGED: usize = 64;

/// Time until the first report, at most, and until a kill afterwards, in milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);
const LONGEST_RUN: u64 = 400;

/// Returns an archive with the file.
fn archive() -> Vec<u8> {
    let mut content = vec![0; FILE.class.bytes(0) as usize];
    FILE.fill(0, &mut content);
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_path(FILE.path().as_str()).expect("short path");
    header.set_size(content.len() as u64);
    header.set_cksum();
    let appended = archive.append(&header, &content[..]);
    appended.expect("memory takes it");
    archive.into_inner().expect("complete archive")
}

/// A VMM with the image, and what it has printed so far.
struct Running {
    vmm: Child,
    console: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
}

impl Running {
    fn start(backend: &str, disk: &Path) -> Self {
        let job = Job {
            run: Op::Write4kFsync.into(),
            // More than any run has.
            batches: 1_000_000,
            console: Console::Frames,
            ports: true,
            ..Job::EMPTY
        };
        let mut vmm = Command::new(parts().join("trapline-vmm"))
            .args(["--backend", backend, "--memory", "64M", "--image"])
            .arg(parts().join("trapline-image"))
            .arg("--disk")
            .arg(disk)
            .args(["--cmdline", &job.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("VMM starts");
        let mut output = vmm.stdout.take().expect("a pipe");
        let console = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&console);
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut piece) {
                let mut console = shared.lock().expect("not poisoned");
                console.extend_from_slice(&piece[..count]);
            }
        });
        Self {
            vmm,
            console,
            reader,
        }
    }

    fn output(&self) -> GuestOutput {
        GuestOutput::read(&self.console.lock().expect("not poisoned"))
    }

    /// Kills the VMM `after` its first report. Returns the number of samples that it has reported.
    fn kill(mut self, after: Duration) -> usize {
        let limit = Instant::now() + PATIENCE;
        while reported(&self.output()) == 0 {
            let exited = self.vmm.try_wait().expect("a child");
            let output = self.output();
            assert_eq!(exited, None, "the VMM exited: {output:?}");
            assert!(Instant::now() < limit, "no report: {output:?}");
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(after);
        self.vmm.kill().expect("the VMM still runs");
        let status = self.vmm.wait().expect("a child");
        let Self {
            console, reader, ..
        } = self;
        reader.join().expect("reader ends");
        let output = GuestOutput::read(&console.lock().expect("not poisoned"));
        assert!(
            status.code().is_none() && output.reasons.is_empty(),
            "the VMM ended by itself: {status}, {output:?}"
        );
        reported(&output)
    }
}

fn reported(output: &GuestOutput) -> usize {
    output.batches.get(&Op::Write4kFsync).map_or(0, Vec::len)
}

/// Returns pages with the content of the last reported sample, and of the one that the kill interrupted.
fn check(disk: &[u8], start: usize, reported: usize) -> Result<(usize, usize), String> {
    let (mut last, mut next) = (0, 0);
    let bytes = FILE.class.bytes(0) as usize;
    for (page, offset) in disk[start..start + bytes]
        .chunks(PAGE)
        .zip((0..).step_by(PAGE))
    {
        let has = |file: File| file.holds(offset, page);
        if has(FILE.version(reported as u32 - 1)) {
            last += 1;
        } else if has(FILE.version(reported as u32)) {
            next += 1;
        } else if !has(FILE) {
            return Err(format!(
                "page at {offset}: lost or torn after {reported} reports"
            ));
        }
    }
    match last + next {
        CHANGED => Ok((last, next)),
        found => Err(format!(
            "{found} pages of {CHANGED} after {reported} reports"
        )),
    }
}

/// Returns numbers from a seed: xorshift64 (Marsaglia 2003).
fn random(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed), |last| {
        let mut next = last ^ last << 13;
        next ^= next >> 7;
        Some(next ^ next << 17)
    })
}

/// Kills this number of VMMs, those of each backend in turn.
fn kill(count: usize, seed: u64) {
    let kvm = has_kvm("kills of the VMM on KVM").then_some("kvm");
    let backends: Vec<_> = kvm.into_iter().chain(["process"]).collect();
    let archive = archive();
    let mut first = [0; 64];
    FILE.fill(0, &mut first);
    let start = archive.windows(64).position(|bytes| bytes == first);
    let place = tempfile::tempdir().expect("temporary directory");
    let disk = place.path().join("disk");
    let (mut reports, mut interrupted) = (0, 0);
    for (delay, backend) in random(seed).zip(backends.iter().cycle()).take(count) {
        fs::write(&disk, &archive).expect("disk is written");
        let after = Duration::from_millis(delay % LONGEST_RUN);
        let reported = Running::start(backend, &disk).kill(after);
        let disk = fs::read(&disk).expect("disk is read");
        let found = check(&disk, start.expect("the file is there"), reported);
        let (_, next) = found.unwrap_or_else(|why| panic!("{backend}, seed {seed}: {why}"));
        reports += reported;
        interrupted += usize::from(next != 0);
    }
    eprintln!("{count} kills, {reports} reported samples, {interrupted} kills within a sample");
}

#[test]
fn synced_pages_survive_a_killed_vmm() {
    kill(4, 1);
}

#[test]
#[ignore = "slow: make test-all"]
fn synced_pages_survive_many_killed_vmms() {
    kill(40, 2);
}

#[test]
fn lost_torn_and_missing_pages_are_detected() {
    let mut disk = vec![0; FILE.class.bytes(0) as usize];
    FILE.fill(0, &mut disk);
    let write = |disk: &mut [u8], page: usize, version: u32| {
        let at = page * PAGE;
        FILE.version(version)
            .fill(at as u64, &mut disk[at..at + PAGE]);
    };
    for page in 0..CHANGED {
        write(&mut disk, page, if page < 3 { 5 } else { 4 });
    }
    assert_eq!(check(&disk, 0, 5), Ok((61, 3)));
    assert!(check(&disk, 0, 6).is_err(), "sample 5 is lost");
    let mut torn = disk.clone();
    torn[3 * PAGE - 1] ^= 1;
    assert!(check(&torn, 0, 5).is_err());
    FILE.fill(0, &mut disk[..PAGE]);
    let error = check(&disk, 0, 5).unwrap_err();
    assert!(error.starts_with("63 pages"), "{error}");
}
