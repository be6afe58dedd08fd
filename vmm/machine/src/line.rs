//! The guest's serial line, and who writes what is sent over it.
//!
//! Either the thread that runs the vCPU writes it - the guest stands still meanwhile,
//! and its interrupts wait - or a thread of its own does, at the pace of a real line.
//! Then the port is not ready while the buffer is full, as a real one; a guest that
//! sends all the same loses what it sends, and nobody waits.

use crate::clock::{monotonic_ns, sleep_until};
use crate::sandbox::Role;
use crate::threads::spawn;
use crate::Failure;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Who writes, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serial {
    /// The vCPU's thread, when a line or a frame is complete.
    #[default]
    Lines,
    /// The vCPU's thread, each byte.
    Direct,
    /// A thread of its own.
    Buffered,
}

impl Serial {
    /// The one called `name` on a command line, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "lines" => Some(Self::Lines),
            "direct" => Some(Self::Direct),
            "buffered" => Some(Self::Buffered),
            _ => None,
        }
    }
}

/// How it ends.
pub enum Line {
    /// At the console, which gathers what belongs together.
    Lines,
    /// At the console, which writes each byte.
    Direct,
    /// At a thread.
    Buffered(Outbox),
}

impl Line {
    /// As asked for, with a thread that writes to `output` if there has to be one. It
    /// is confined if `sandbox` is set.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn open(serial: Serial, output: BorrowedFd<'_>, sandbox: bool) -> Result<Self, Failure> {
        Ok(match serial {
            Serial::Lines => Self::Lines,
            Serial::Direct => Self::Direct,
            Serial::Buffered => {
                let copied = output.try_clone_to_owned();
                let output = File::from(copied.map_err(Failure::system("copy the console"))?);
                Self::Buffered(Outbox::start(output, sandbox)?)
            }
        })
    }
}

/// Bytes that wait to be written, at most.
const ROOM: usize = 4096;

/// Bytes a second over a line of 115,200 baud, with a start and a stop bit each.
const PACE: u64 = 11_520;

/// How long bytes are gathered, in nanoseconds.
const GATHERING_NS: u64 = 7_000_000;

/// What the line carries while they are.
const AT_ONCE: usize = (PACE * GATHERING_NS / 1_000_000_000) as usize;

/// The guest's end of a line that a thread empties.
pub struct Outbox(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Held by who writes, from taking bytes until they are written.
    writing: Mutex<()>,
    waiting: Mutex<Waiting>,
    filled: Condvar,
}

#[derive(Default)]
struct Waiting {
    bytes: VecDeque<u8>,
    /// The thread waits for the first byte.
    idle: bool,
}

impl Outbox {
    /// Starts the thread, which writes to `output`. It is confined if `sandbox` is set.
    ///
    /// # Errors
    /// No thread can be started.
    fn start(output: impl Write + Send + 'static, sandbox: bool) -> Result<Self, Failure> {
        let shared = Arc::new(Shared::default());
        shared.waiting().bytes.reserve_exact(ROOM);
        let theirs = Arc::clone(&shared);
        spawn("serial", Role::SerialLine, sandbox, move || {
            theirs.carry(output);
        })?;
        Ok(Self(shared))
    }

    /// Sends a byte, if there is room for it.
    pub fn put(&self, byte: u8) {
        let mut waiting = self.0.waiting();
        if waiting.bytes.len() < ROOM {
            waiting.bytes.push_back(byte);
        }
        if std::mem::take(&mut waiting.idle) {
            self.0.filled.notify_one();
        }
    }

    /// Whether there is room for another.
    pub fn has_room(&self) -> bool {
        self.0.waiting().bytes.len() < ROOM
    }

    /// What has not been written yet, when all before it has been. Nothing of it will be
    /// written by the thread.
    pub fn take_rest(&self) -> Vec<u8> {
        let _nobody_else = self.0.writing();
        self.0.waiting().bytes.drain(..).collect()
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Whoever panicked left a queue that is whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's life. Without a reader there is nothing to do any more.
    fn carry(&self, mut output: impl Write) {
        let mut at_once = [0; AT_ONCE];
        loop {
            self.wait_for_first();
            sleep_until(monotonic_ns() + GATHERING_NS);
            let _until_written = self.writing();
            let length = self.take(&mut at_once);
            if output.write_all(&at_once[..length]).is_err() {
                return;
            }
        }
    }

    fn wait_for_first(&self) {
        let empty = |waiting: &mut Waiting| {
            waiting.idle = waiting.bytes.is_empty();
            waiting.idle
        };
        drop(self.filled.wait_while(self.waiting(), empty));
    }

    fn take(&self, into: &mut [u8]) -> usize {
        let mut waiting = self.waiting();
        let length = waiting.bytes.len().min(into.len());
        for (place, byte) in into.iter_mut().zip(waiting.bytes.drain(..length)) {
            *place = byte;
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{pipe, Read};

    #[test]
    fn what_is_sent_arrives_in_order() {
        let (mut reader, writer) = pipe().unwrap();
        let outbox = Outbox::start(writer, false).unwrap();
        let sent: Vec<u8> = (0..200).collect();
        sent.iter().for_each(|byte| outbox.put(*byte));
        let mut arrived = vec![0; sent.len()];
        reader.read_exact(&mut arrived).unwrap();
        assert_eq!(arrived, sent);
        assert_eq!(outbox.take_rest(), []);
    }

    #[test]
    fn a_full_line_says_so_and_nobody_waits() {
        // Far less is carried than is sent.
        let (reader, writer) = pipe().unwrap();
        let outbox = Outbox::start(writer, false).unwrap();
        let mut sent = 0;
        while outbox.has_room() {
            outbox.put(b'x');
            sent += 1;
        }
        assert!(sent >= ROOM);
        (0..ROOM).for_each(|_| outbox.put(b'y'));
        let rest = outbox.take_rest();
        assert!(rest.len() <= ROOM && !rest.is_empty());
        assert!(outbox.has_room());
        drop(reader);
    }

    #[test]
    fn the_pace_is_that_of_a_line() {
        let (mut reader, writer) = pipe().unwrap();
        let outbox = Outbox::start(writer, false).unwrap();
        let begun = monotonic_ns();
        let bytes = [b'x'; 5 * AT_ONCE];
        bytes.iter().for_each(|byte| outbox.put(*byte));
        reader.read_exact(&mut [0; 5 * AT_ONCE]).unwrap();
        assert!(monotonic_ns() - begun >= 4 * GATHERING_NS);
    }
}
