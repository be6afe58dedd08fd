//! The serial line: who writes the guest's COM1 output.
//!
//! Either the vCPU's thread writes, which stops the guest and delays its interrupts, or a separate thread
//! at the pace of a real line. In the second mode the port is not ready while the buffer is full; bytes
//! sent anyway are lost.

use crate::clock::{monotonic_ns, sleep_until};
use crate::sandbox::Role;
use crate::threads::spawn;
use crate::Failure;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Value of `--serial`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SerialMode {
    /// The vCPU's thread writes complete lines and frames.
    #[default]
    Lines,
    /// The vCPU's thread writes each byte.
    Direct,
    /// A separate thread writes.
    Buffered,
}

impl SerialMode {
    /// Parses the option's value.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "lines" => Some(Self::Lines),
            "direct" => Some(Self::Direct),
            "buffered" => Some(Self::Buffered),
            _ => None,
        }
    }
}

/// Destination of serial output.
pub enum Line {
    /// The console, which writes complete lines.
    Lines,
    /// The console, which writes each byte.
    Direct,
    /// A thread.
    Buffered(SerialSink),
}

impl Line {
    /// Opens the line and starts its thread, if any, which writes to `output`.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn open(
        serial: SerialMode,
        output: BorrowedFd<'_>,
        sandbox: bool,
    ) -> Result<Self, Failure> {
        Ok(match serial {
            SerialMode::Lines => Self::Lines,
            SerialMode::Direct => Self::Direct,
            SerialMode::Buffered => {
                let copied = output.try_clone_to_owned();
                let output = File::from(copied.map_err(Failure::system("copy the console"))?);
                Self::Buffered(SerialSink::start(output, sandbox)?)
            }
        })
    }
}

/// Capacity of the buffer.
const ROOM: usize = 4096;

/// Bytes per second at 115,200 baud with one start and one stop bit.
const PACE: u64 = 11_520;

/// Interval between writes, in nanoseconds.
const GATHERING_NS: u64 = 7_000_000;

/// Bytes per interval.
const AT_ONCE: usize = (PACE * GATHERING_NS / 1_000_000_000) as usize;

/// Sending side of a line that a thread drains.
pub struct SerialSink(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Held while bytes are taken and written.
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

impl SerialSink {
    /// Starts the thread, which writes to `output`.
    ///
    /// # Errors
    /// The thread cannot be created.
    fn start(mut output: impl Write + Send + 'static, sandbox: bool) -> Result<Self, Failure> {
        let shared = Arc::new(Shared::default());
        shared.waiting().bytes.reserve_exact(ROOM);
        let theirs = Arc::clone(&shared);
        spawn("serial", Role::SerialLine, sandbox, move || {
            theirs.carry(&mut output)
        })?;
        Ok(Self(shared))
    }

    /// Appends a byte, if there is room.
    pub fn put(&self, byte: u8) {
        let mut waiting = self.0.waiting();
        if waiting.bytes.len() < ROOM {
            waiting.bytes.push_back(byte);
        }
        if std::mem::take(&mut waiting.idle) {
            self.0.filled.notify_one();
        }
    }

    /// Returns true if there is room for a byte.
    pub fn has_room(&self) -> bool {
        self.0.waiting().bytes.len() < ROOM
    }

    /// Returns the bytes not yet taken by the thread, after its last write.
    pub fn take_rest(&self) -> Vec<u8> {
        let _nobody_else = self.0.writing();
        self.0.waiting().bytes.drain(..).collect()
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A poisoned queue is still consistent.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Body of the thread; returns when the reader is gone.
    fn carry(&self, output: &mut impl Write) -> Failure {
        let mut at_once = [0; AT_ONCE];
        loop {
            self.wait_for_first();
            sleep_until(monotonic_ns() + GATHERING_NS);
            let _until_written = self.writing();
            let length = self.take(&mut at_once);
            if output.write_all(&at_once[..length]).is_err() {
                return Failure::ConsoleClosed;
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
    fn bytes_arrive_in_order() {
        let (mut reader, writer) = pipe().unwrap();
        let outbox = SerialSink::start(writer, false).unwrap();
        let sent: Vec<u8> = (0..200).collect();
        sent.iter().for_each(|byte| outbox.put(*byte));
        let mut arrived = vec![0; sent.len()];
        reader.read_exact(&mut arrived).unwrap();
        assert_eq!(arrived, sent);
        assert!(outbox.take_rest().is_empty());
    }

    #[test]
    fn full_line_drops_bytes_without_blocking() {
        // Far less is carried than is sent.
        let (reader, writer) = pipe().unwrap();
        let outbox = SerialSink::start(writer, false).unwrap();
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
    fn output_is_paced() {
        let (mut reader, writer) = pipe().unwrap();
        let outbox = SerialSink::start(writer, false).unwrap();
        let begun = monotonic_ns();
        let bytes = [b'x'; 5 * AT_ONCE];
        bytes.iter().for_each(|byte| outbox.put(*byte));
        reader.read_exact(&mut [0; 5 * AT_ONCE]).unwrap();
        assert!(monotonic_ns() - begun >= 4 * GATHERING_NS);
    }
}
