//! Notifications of guests, none of which waits.
//!
//! The event that interrupts a guest is a file of its VMM. A write to a full event waits until its owner reads it, and so
//! would all ports. The kernel can signal the end of an asynchronous request by an event, which never waits: a full event
//! stays full (io_submit(2), `IOCB_FLAG_RESFD`). A notification is such a request that ends at once: an empty read of an
//! empty file.

use crate::driver::memory_file;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use vmm_sys_util::aio::{IoContext, IoControlBlock, IoEvent, IOCB_CMD_PREAD, IOCB_FLAG_RESFD};

/// Requests whose ends the kernel keeps until they are collected.
const KEPT: usize = 64;

/// Sends notifications.
pub struct Notifier {
    context: IoContext,
    empty: File,
}

impl Notifier {
    /// Creates a notifier.
    ///
    /// # Errors
    /// The kernel refuses asynchronous requests: `fs.aio-max-nr` are in use.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            context: IoContext::new(KEPT as u32)?,
            empty: memory_file(0)?,
        })
    }

    /// Adds one to an event, unless it is full.
    ///
    /// # Errors
    /// The file is no event.
    #[inline]
    pub fn notify(&self, event: &File) -> io::Result<()> {
        self.read(event, 0..0)
    }

    /// Returns whether a file is an event. Its value does not change.
    pub fn is_event(&self, file: &File) -> bool {
        // The kernel looks at the event before the addresses, none of which is one of this process.
        let outside = u64::MAX - 1..u64::MAX;
        let result = self.read(file, outside);
        result.is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT))
    }

    /// Submits a read of the empty file to `target`, whose end is signalled by `event`.
    #[inline]
    fn read(&self, event: &File, target: std::ops::Range<u64>) -> io::Result<()> {
        loop {
            match self.submit(event, &target) {
                // All places are taken: by requests that have ended, and by checks of other threads, which end at once.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.collect()?,
                result => return result,
            }
        }
    }

    #[inline]
    fn submit(&self, event: &File, target: &std::ops::Range<u64>) -> io::Result<()> {
        let mut request = IoControlBlock {
            aio_lio_opcode: IOCB_CMD_PREAD as u16,
            aio_fildes: self.empty.as_raw_fd().unsigned_abs(),
            aio_buf: target.start,
            aio_nbytes: target.end - target.start,
            aio_flags: IOCB_FLAG_RESFD,
            aio_resfd: event.as_raw_fd().unsigned_abs(),
            ..IoControlBlock::default()
        };
        self.context.submit(&[&mut request]).map(drop)
    }

    /// Frees the places of requests that have ended, which are all.
    #[cold]
    fn collect(&self) -> io::Result<()> {
        let mut ended = [IoEvent::default(); KEPT];
        let mut at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        while self.context.get_events(0, &mut ended, Some(&mut at_once))? == KEPT {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::FromRawFd;

    /// An event whose reads do not wait, but whose writes do.
    fn event() -> File {
        // SAFETY: returns a descriptor without another owner.
        unsafe { File::from_raw_fd(libc::eventfd(0, 0)) }
    }

    fn value(mut event: &File) -> u64 {
        let mut value = [0; 8];
        event.read_exact(&mut value).unwrap();
        u64::from_ne_bytes(value)
    }

    #[test]
    fn every_notification_counts() {
        let (notifier, event) = (Notifier::new().unwrap(), event());
        let many = 100 * KEPT as u64;
        (0..many).for_each(|_| notifier.notify(&event).unwrap());
        assert_eq!(value(&event), many);
    }

    #[test]
    fn full_event_is_not_waited_for() {
        let (notifier, event) = (Notifier::new().unwrap(), event());
        let full = u64::MAX - 1;
        (&event).write_all(&full.to_ne_bytes()).unwrap();
        (0..3).for_each(|_| notifier.notify(&event).unwrap());
        assert!(value(&event) >= full);
    }

    #[test]
    fn only_events_are_notified_and_a_check_changes_none() {
        let notifier = Notifier::new().unwrap();
        let (pipe, _other) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        for other in [
            memory_file(8).unwrap(),
            File::open("/dev/zero").unwrap(),
            pipe,
        ] {
            assert!(!notifier.is_event(&other), "{other:?}");
            assert!(notifier.notify(&other).is_err(), "{other:?}");
        }
        let event = event();
        (0..2 * KEPT).for_each(|_| assert!(notifier.is_event(&event)));
        notifier.notify(&event).unwrap();
        assert_eq!(value(&event), 1);
    }

    #[test]
    fn event_is_known_whatever_number_of_notifications_was_sent() {
        let (notifier, other) = (Notifier::new().unwrap(), memory_file(8).unwrap());
        for sent in 0..100 * KEPT {
            let event = event();
            assert!(notifier.is_event(&event), "after {sent}");
            assert!(!notifier.is_event(&other), "after {sent}");
            notifier.notify(&event).unwrap();
        }
    }
}
