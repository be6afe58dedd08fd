//! Downloads that are killed or stopped, with an apt-get that does not end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use trapline_host::draft::{abandoned_in, WorkDirectory};
use trapline_host::testing::write_program;
use trapline_host::{package, tool, Error};

/// Environment variable with the directory to download into.
const PLACE: &str = "TRAPLINE_TEST_PLACE";

/// File to which the fake apt-get writes its process id.
const PID: &str = "pid";

/// Set by SIGTERM.
static TERMINATED: AtomicBool = AtomicBool::new(false);

extern "C" fn terminate(_: libc::c_int) {
    TERMINATED.store(true, Ordering::Relaxed);
}

/// Downloads until SIGTERM. The other tests run it in a process of its own.
#[test]
#[ignore = "part of other tests"]
fn download_until_stopped() {
    let place = PathBuf::from(std::env::var_os(PLACE).expect("the place is given"));
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::signal(libc::SIGTERM, terminate as *const () as libc::sighandler_t) };
    let stop = Arc::new(AtomicBool::new(false));
    tool::end_on(Arc::clone(&stop));
    std::thread::spawn(move || loop {
        std::thread::sleep(Duration::from_millis(10));
        stop.store(TERMINATED.load(Ordering::Relaxed), Ordering::Relaxed);
    });
    let work = WorkDirectory::create(&place).unwrap();
    let error = package::download(["package"].into_iter(), work.path()).unwrap_err();
    assert!(matches!(error, Error::Stopped), "{error}");
}

/// A process that downloads, and its directories.
struct Download {
    process: Child,
    place: tempfile::TempDir,
    _programs: tempfile::TempDir,
}

impl Download {
    /// Starts a download, and waits until apt-get runs.
    fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        let programs = tempfile::tempdir().unwrap();
        let apt_get = programs.path().join("apt-get");
        let script = format!("#!/bin/sh\necho $$ > \"${PLACE}/{PID}\"\nexec sleep 1000\n");
        write_program(&apt_get, script);
        let path = format!("{}:/usr/bin:/bin", programs.path().display());
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "download_until_stopped"])
            .env(PLACE, place.path())
            .env("PATH", path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let download = Self {
            process,
            place,
            _programs: programs,
        };
        assert!(within(60, || download.apt_get().is_some()));
        download
    }

    /// Returns the process id of apt-get.
    fn apt_get(&self) -> Option<i32> {
        let text = fs::read_to_string(self.place.path().join(PID)).ok()?;
        text.strip_suffix('\n')?.parse().ok()
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes numbers only; the process is not reaped.
        unsafe { libc::kill(self.process.id() as i32, signal) };
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until a condition holds, for at most this number of seconds.
fn within(seconds: u64, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > Duration::from_secs(seconds) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Returns whether a process runs; zombies do not.
fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, fields)| &fields[..1]);
    state.is_some_and(|state| state != "Z" && state != "X")
}

fn downloads_in(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).unwrap().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_dir()).collect()
}

#[test]
fn apt_get_dies_with_a_killed_process_and_its_download_is_removed() {
    let mut download = Download::start();
    let apt_get = download.apt_get().unwrap();
    let place = download.place.path().to_owned();
    let left = downloads_in(&place);
    assert_eq!(left.len(), 1);
    let long_ago = SystemTime::now() - Duration::from_secs(60);
    let directory = fs::File::open(&left[0]).unwrap();
    directory.set_modified(long_ago).unwrap();
    assert_eq!(abandoned_in(&place).count(), 0, "it is in use");
    download.signal(libc::SIGKILL);
    download.process.wait().unwrap();
    assert!(within(60, || !runs(apt_get)), "apt-get survived");
    let next = WorkDirectory::create(&place).unwrap();
    assert_eq!(downloads_in(&place), [next.path()]);
}

#[test]
fn stop_request_ends_apt_get_and_removes_the_download() {
    let mut download = Download::start();
    let apt_get = download.apt_get().unwrap();
    download.signal(libc::SIGTERM);
    let ended = within(60, || download.process.try_wait().unwrap().is_some());
    assert!(ended, "the stop request was not answered");
    assert!(download.process.wait().unwrap().success());
    assert!(!runs(apt_get), "apt-get survived");
    assert_eq!(downloads_in(download.place.path()), Vec::<PathBuf>::new());
}
