//! Starts several VMMs at the same moment, and sends the records of one after the other when all have ended. Each begins with
//! the first.
//!
//! The machine has one CPU, which they share. This process takes part of it only to read the TSC offset of a guest whose
//! VMM does not report it, at the first record of that guest, and to reap. Both are urgent: the kernel has the offset only
//! while the guest exists.

use super::custom_vmm::{mount_standard_filesystems, RecordScanner};
use super::guest::{start, Count, Guest, RELAY_INTERVAL};
use super::script::{Launch, VmmKind};
use crate::devices::Devices;
use crate::sys::{readable, wait_readable};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use trapline_abi::stamp;
use trapline_spawn::sched::{self, SchedPolicy};
use trapline_spawn::Ended;

/// Runs the VMMs of `launches` until all have ended, and sends their records.
pub fn run(
    launches: &[Launch<'_>],
    variables: &[(String, OsString)],
    devices: &mut Devices,
) -> io::Result<()> {
    mount_standard_filesystems()?;
    sched::set(0, SchedPolicy::Fifo(1))?;
    // The terminals hang up when they are dropped.
    let terminals: io::Result<Vec<_>> = launches
        .iter()
        .map(|_| trapline_spawn::terminal())
        .collect();
    let terminals = terminals?;
    let mut started = Vec::new();
    for (launch, (_, input)) in launches.iter().zip(&terminals) {
        started.push(OneOfSeveral::start(launch, variables, input)?);
    }
    if let Some(begin) = started.iter().map(|one| one.guest.exec()).min() {
        let all = started.iter_mut();
        all.for_each(|one| one.guest.begin_at(begin));
    }
    let seconds = launches.iter().map(|launch| launch.seconds).max();
    let deadline = Instant::now() + Duration::from_secs(seconds.unwrap_or(0).into());
    while started.iter().any(|one| one.end.is_none()) {
        attend_those_with_news(&mut started, deadline)?;
    }
    started.into_iter().try_for_each(|one| one.send(devices))
}

/// Waits for one interval until something has happened to any of them, and attends to those, or without news to all.
fn attend_those_with_news(started: &mut [OneOfSeveral<'_>], deadline: Instant) -> io::Result<()> {
    let descriptors: Vec<_> = started.iter().flat_map(OneOfSeveral::descriptors).collect();
    let mut news = readable(&descriptors, RELAY_INTERVAL)?.into_iter();
    let of_each = started.iter().map(|one| {
        let own = news.by_ref().take(one.descriptors().count());
        own.fold(false, |any, is_readable| any | is_readable)
    });
    let has_news: Vec<_> = of_each.collect();
    let has_none = !has_news.contains(&true);
    let is_late = Instant::now() >= deadline;
    for (one, has_news) in started.iter_mut().zip(has_news) {
        if has_news || has_none || is_late {
            one.attend(is_late)?;
        }
    }
    Ok(())
}

struct OneOfSeveral<'a> {
    launch: &'a Launch<'a>,
    guest: Guest,
    /// Read at the first record of the guest.
    counts: Option<Vec<Count>>,
    scanner: RecordScanner,
    /// When the last record was found.
    done: Option<Instant>,
    /// How it ended, and when, in ticks.
    end: Option<(Ended, u64)>,
}

impl<'a> OneOfSeveral<'a> {
    fn start(
        launch: &'a Launch<'a>,
        variables: &[(String, OsString)],
        input: &File,
    ) -> io::Result<Self> {
        let counts = match launch.kind {
            VmmKind::Trapline => Some(Vec::new()),
            VmmKind::OffsetFromKernel | VmmKind::Custom => None,
            _ => return Err(io::Error::other("does not start together with others")),
        };
        Ok(Self {
            launch,
            guest: start(launch, variables, input.as_fd())?,
            counts,
            scanner: RecordScanner::default(),
            done: None,
            end: None,
        })
    }

    /// Returns the descriptors that become readable when it needs attention.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let process = self.guest.started.pidfd.as_fd();
        let console = self.guest.console().as_fd();
        let runs = self.end.is_none();
        // A closed stream would always be readable.
        let has_news = runs && self.counts.is_none() && !self.scanner.closed;
        let process = runs.then_some(process).into_iter();
        process.chain(has_news.then_some(console))
    }

    /// Reads what is there only while the guest runs, and reaps the process if it has ended. Kills it if it `is_late`, or
    /// outlives its guest.
    fn attend(&mut self, is_late: bool) -> io::Result<()> {
        if self.end.is_some() {
            return Ok(());
        }
        let has_ended = wait_readable(&[self.guest.started.pidfd.as_fd()], 0)?;
        if self.counts.is_none() || self.launch.kind == VmmKind::Custom {
            self.scanner.read(self.guest.console())?;
        }
        // A VMM of the user's may print text before its guest exists.
        if self.counts.is_none() && self.scanner.has_record {
            let guest = &self.guest;
            let counts = guest.counts(self.launch, |creator| guest.has_thread(creator));
            self.counts = Some(counts);
        }
        if self.scanner.done {
            self.done.get_or_insert_with(Instant::now);
        }
        let interval = Duration::from_millis(RELAY_INTERVAL);
        let outlives = self.done.is_some_and(|done| done.elapsed() >= interval);
        if (is_late || outlives) && !has_ended {
            self.guest.started.kill_group();
        }
        if has_ended || is_late || outlives {
            let ended = self.guest.started.reap()?;
            self.end = Some((ended, stamp!(Reaped)));
        }
        Ok(())
    }

    fn send(mut self, devices: &mut Devices) -> io::Result<()> {
        let counts = self.counts.unwrap_or_default();
        self.guest.send_start(&mut false, &counts, devices);
        self.guest.relay_console(&self.scanner.buffered, devices);
        self.guest.relay_streams(devices)?;
        if let Some((ended, at)) = self.end {
            devices.send(&self.guest.reaped(&ended), at);
        }
        Ok(())
    }
}
