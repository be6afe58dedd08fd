use super::*;
use std::os::fd::AsRawFd;

#[derive(Default)]
struct Scribe {
    console: Vec<u8>,
    errors: Vec<u8>,
    events: Vec<u8>,
    most: Option<usize>,
}

impl Ear for Scribe {
    fn console(&mut self, bytes: &[u8], _: u64, _: &mut dyn Witness) {
        self.console.extend(bytes);
    }
    fn errors(&mut self, bytes: &[u8]) {
        self.errors.extend(bytes);
    }
    fn events(&mut self, bytes: &[u8]) {
        self.events.extend(bytes);
    }
    fn consider(&mut self) -> Result<(), EnvError> {
        match self.most {
            Some(most) if self.console.len() > most => Err(EnvError::Flooded {
                words: String::new(),
            }),
            _ => Ok(()),
        }
    }
    fn last_words(&self) -> String {
        String::from_utf8_lossy(&self.console).into_owned()
    }
}

fn shell(script: &str) -> Running {
    let command = Command::new("/bin/sh").arg("-c").arg(script);
    Running::start(&command).unwrap()
}

/// Whether a process of this number is there, dead or alive.
fn exists(pid: i32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn all_that_a_process_writes_is_heard_and_its_status_known() {
    let mut running = shell("printf out; printf err >&2; printf ev >&3; exit 33");
    let mut scribe = Scribe::default();
    let watch = Watch::of(Duration::from_secs(20));
    let over = running.hear(&mut scribe, &watch).unwrap();
    let heard = (&scribe.console[..], &scribe.errors[..], &scribe.events[..]);
    assert_eq!(heard, (&b"out"[..], &b"err"[..], &b"ev"[..]));
    assert_eq!(over.status.code(), Some(33));
    assert!(running.exec() < over.end);
    assert!(!exists(running.started.pid), "it was not reaped");
}

#[test]
fn a_process_that_hangs_is_killed_and_its_last_words_told() {
    let mut running = shell("printf working; exec sleep 1000");
    let pid = running.started.pid;
    let watch = Watch::of(Duration::from_millis(300));
    let error = running.hear(&mut Scribe::default(), &watch).unwrap_err();
    assert!(error.to_string().ends_with("working"), "{error}");
    drop(running);
    assert!(!exists(pid));
}

#[test]
fn somebody_else_can_stop_it() {
    let mut running = shell("exec sleep 1000");
    let watch = Watch::of(Duration::from_secs(1000));
    watch.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let error = running.hear(&mut Scribe::default(), &watch).unwrap_err();
    assert!(matches!(error, EnvError::Stopped));
}

#[test]
fn an_ear_that_has_heard_enough_ends_the_hearing() {
    let mut running = shell("exec yes");
    let mut scribe = Scribe {
        most: Some(1 << 20),
        ..Scribe::default()
    };
    let watch = Watch::of(Duration::from_secs(60));
    let error = running.hear(&mut scribe, &watch).unwrap_err();
    assert!(matches!(error, EnvError::Flooded { .. }));
}

#[test]
fn a_process_may_close_its_streams_and_go_on() {
    let mut running = shell("exec >&- 2>&-; sleep 0.3; exit 5");
    let watch = Watch::of(Duration::from_secs(20));
    let over = running.hear(&mut Scribe::default(), &watch).unwrap();
    assert_eq!(over.status.code(), Some(5));
}

#[test]
fn a_killed_process_shows_its_signal() {
    let mut running = shell("kill -SEGV $$");
    let watch = Watch::of(Duration::from_secs(20));
    let over = running.hear(&mut Scribe::default(), &watch).unwrap();
    assert_eq!(over.status.signal(), Some(libc::SIGSEGV));
}

#[test]
fn what_is_asked_to_end_does_so_within_its_grace() {
    let mut running = shell("exec sleep 1000");
    let start = Instant::now();
    running.ask_to_end(Duration::from_secs(20));
    assert!(start.elapsed() < Duration::from_secs(15));
    assert!(running.started.pidfd.as_raw_fd() > 2);
}

#[test]
fn a_file_without_a_name_is_found_by_its_descriptor() {
    let mut file = tempfile::tempfile().unwrap();
    io::Write::write_all(&mut file, b"contents").unwrap();
    let command = Command::new("/bin/cat").file(file.into());
    let mut running = Running::start(&command).unwrap();
    let mut scribe = Scribe::default();
    let watch = Watch::of(Duration::from_secs(20));
    running.hear(&mut scribe, &watch).unwrap();
    assert_eq!(scribe.console, b"contents");
}
