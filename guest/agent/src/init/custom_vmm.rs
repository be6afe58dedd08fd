//! Runs a custom VMM, which does not support Trapline.
//!
//! It may require a terminal, print text before its guest starts, never start its guest, or continue
//! after its guest has ended. So its output is searched for records of the guest: at the first one
//! the TSC offset and the memory of the VMM are read from the kernel, and after the last one the VMM is killed. In between this
//! process sleeps as for other guests. The time of a VMM behind a wrapper is that of its own exec.

use super::exec_trace;
use super::guest::{start, Guest, RELAY_INTERVAL};
use super::script::{Launch, VmmKind};
use crate::devices::Devices;
use crate::sys::{mount, wait_readable};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};
use trapline_abi::frame::MAX_RELAY;
use trapline_abi::job::FIRST_RECORD_SECONDS;
use trapline_abi::{stamp, Decoder, Item, Record};

/// Maximum buffered output before the first record, in bytes; more is relayed at once.
const MAX_BUFFERED: usize = 64 << 10;

/// Runs a VMM with these environment variables until its guest ends, and sends its records.
pub fn run(
    launch: &Launch<'_>,
    variables: &[(String, OsString)],
    devices: &mut Devices,
) -> io::Result<()> {
    mount_standard_filesystems()?;
    let has_wrapper = launch.kind == VmmKind::CustomBehindWrapper;
    if has_wrapper {
        let started = exec_trace::start();
        started.map_err(|error| {
            io::Error::other(format!(
                "this kernel cannot trace the exec of a VMM: {error}"
            ))
        })?;
    }
    // The terminal hangs up when this is dropped.
    let (_terminal, input) = trapline_spawn::terminal()?;
    let mut vmm = CustomVmm {
        guest: start(launch, variables, input.as_fd())?,
        is_start_sent: false,
        has_wrapper,
        scanner: RecordScanner::default(),
    };
    let has_started = vmm.wait_for_first_record(devices)?;
    let counts = has_started.then(|| vmm.guest.counts(launch, |_| true));
    if has_wrapper {
        let exec = exec_trace::vmm_exec();
        exec.into_iter().for_each(|exec| vmm.guest.begin_at(exec));
    }
    vmm.relay(devices)?;
    if let Some(counts) = counts {
        vmm.guest.send_counts(&counts, devices);
        vmm.wait_for_end(launch.seconds, devices)?;
    }
    vmm.guest.started.kill_group();
    let ended = vmm.guest.started.reap()?;
    let at = stamp!(Reaped);
    vmm.relay(devices)?;
    devices.send(&vmm.guest.reaped(&ended), at);
    Ok(())
}

/// Mounts devpts and /dev/shm, once.
pub fn mount_standard_filesystems() -> io::Result<()> {
    for (kind, at) in [("devpts", "/dev/pts"), ("tmpfs", "/dev/shm")] {
        if !Path::new(at).exists() {
            mount(kind, at)?;
        }
    }
    Ok(())
}

struct CustomVmm {
    guest: Guest,
    is_start_sent: bool,
    /// The start of the launch is known at the first record only.
    has_wrapper: bool,
    scanner: RecordScanner,
}

impl CustomVmm {
    /// Waits for the first record. Returns false if the VMM exited or there was none in time.
    fn wait_for_first_record(&mut self, devices: &mut Devices) -> io::Result<bool> {
        let deadline = Instant::now() + Duration::from_secs(FIRST_RECORD_SECONDS);
        while !self.scanner.has_record && Instant::now() < deadline {
            let (ended, console) = (self.guest.started.pidfd.as_fd(), self.guest.console());
            let mut descriptors = vec![ended];
            // A closed stream would always be readable.
            descriptors.extend((!self.scanner.closed).then(|| console.as_fd()));
            let news = wait_readable(&descriptors, RELAY_INTERVAL)?;
            let is_over = wait_readable(&descriptors[..1], 0)?;
            self.scanner.read(console)?;
            let is_idle = !news && !self.has_wrapper;
            if is_idle || self.scanner.buffered.len() > MAX_BUFFERED {
                self.relay(devices)?;
            }
            if is_over {
                break;
            }
        }
        self.scanner.finish();
        Ok(self.scanner.has_record)
    }

    /// Waits until the VMM exits, for at most `seconds`, or one interval after the last record.
    fn wait_for_end(&mut self, seconds: u32, devices: &mut Devices) -> io::Result<()> {
        for _ in 0..seconds {
            let is_done = self.scanner.done;
            if self.scanner.starts > 1 {
                break;
            }
            let over = wait_readable(&[self.guest.started.pidfd.as_fd()], RELAY_INTERVAL)?;
            if over || is_done {
                break;
            }
            self.relay(devices)?;
        }
        Ok(())
    }

    /// Relays the output so far.
    fn relay(&mut self, devices: &mut Devices) -> io::Result<()> {
        self.guest.send_start(&mut self.is_start_sent, &[], devices);
        loop {
            self.scanner.read(self.guest.console())?;
            let buffered = std::mem::take(&mut self.scanner.buffered);
            self.guest.relay_console(&buffered, devices);
            if buffered.len() <= MAX_BUFFERED {
                return self.guest.relay_streams(devices);
            }
        }
    }
}

/// Searches the output of a VMM for records.
#[derive(Default)]
pub struct RecordScanner {
    decoder: Decoder,
    /// Output that is not relayed yet.
    pub buffered: Vec<u8>,
    /// The stream is closed.
    pub closed: bool,
    /// A record was found.
    pub has_record: bool,
    /// The last record was found.
    pub done: bool,
    /// Number of first records: above 1 the VMM has started its guest again.
    starts: u32,
}

impl RecordScanner {
    /// Reads the available output, up to a limit.
    pub fn read(&mut self, mut from: &File) -> io::Result<()> {
        let mut piece = [0; MAX_RELAY];
        while !self.closed && self.buffered.len() <= MAX_BUFFERED {
            match from.read(&mut piece) {
                Ok(0) => self.closed = true,
                Ok(length) => self.scan(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn scan(&mut self, bytes: &[u8]) {
        self.buffered.extend(bytes);
        let Self {
            decoder,
            has_record,
            done,
            starts,
            ..
        } = self;
        decoder.feed(bytes, &mut |item| note(item, has_record, done, starts));
    }

    /// Ends the search: records may follow bytes that look like the start of one.
    fn finish(&mut self) {
        let Self {
            decoder,
            has_record,
            done,
            starts,
            ..
        } = self;
        if !*has_record {
            decoder.finish(&mut |item| note(item, has_record, done, starts));
        }
    }
}

fn note(item: Item<'_>, has_record: &mut bool, done: &mut bool, starts: &mut u32) {
    if let Item::Record(record, _) = item {
        *has_record = true;
        *starts += u32::from(matches!(record, Record::Hello { .. }));
        *done |= matches!(record, Record::Done | Record::Panic { .. });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::frame::{encode, MAX_FRAME};

    fn frame(record: &Record<'_>) -> Vec<u8> {
        let mut frame = [0; MAX_FRAME];
        let length = encode(record, 1, &mut frame).unwrap();
        frame[..length].to_vec()
    }

    #[test]
    fn records_are_found_among_text_and_nothing_is_lost() {
        let mut scanner = RecordScanner::default();
        scanner.scan(b"VMM 1.0 starting\n");
        assert!(!scanner.has_record);
        let ready = frame(&Record::Ready);
        scanner.scan(&ready[..5]);
        assert!(!scanner.has_record);
        scanner.scan(&ready[5..]);
        assert!(scanner.has_record && !scanner.done);
        scanner.scan(&frame(&Record::Done));
        assert!(scanner.done);
        let output = [b"VMM 1.0 starting\n", &ready[..], &frame(&Record::Done)].concat();
        assert_eq!(scanner.buffered, output);
    }

    #[test]
    fn a_panic_is_a_last_record() {
        let mut scanner = RecordScanner::default();
        scanner.scan(&frame(&Record::Panic { message: "why" }));
        assert!(scanner.has_record && scanner.done);
    }
}
