//! The guest's console on standard output and input.
//!
//! Output is gathered until a line or a frame ([`trapline_abi::frame`]) is complete, the buffer is full, or the guest halts,
//! waits or ends. An image's only vCPU then writes it: a record is written before the next instruction, nothing is lost, and
//! a guest that floods the console waits until it is read, or until a stop request. With a kernel it goes to a
//! [queue](OutputQueue), for which no vCPU and no device waits.

mod frame;
mod queue;
mod writer;

pub use queue::OutputQueue;

use self::frame::Frame;
use self::queue::Speed;
use self::writer::{borrow, Closed, Writer, MAX_WRITE};
use crate::poll::is_ready;
use crate::settings::{Guest, SerialMode, VmConfig};
use crate::signals;
use crate::stop::print_error;
use crate::Failure;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use trapline_interface::Kicker;

/// Number of polls for input without wait. Each later one waits for a millisecond, so that a waiting guest
/// does not use CPU time.
const SPIN_POLLS: u32 = 1_000;

/// The console of one VM.
pub struct Console {
    output: Output,
    input: ManuallyDrop<File>,
    /// Allocated, but not touched before the first byte: its page would delay the guest's start.
    buffer: Vec<u8>,
    frame: Frame,
    serial: Serial,
    input_ended: bool,
    /// Polls for input since the last byte in either direction.
    polls: u32,
}

/// Writer of complete lines and frames.
enum Output {
    /// This thread.
    Direct {
        writer: Writer,
        /// Kicked when the reader is gone.
        kicker: Kicker,
        /// The reader is gone; later output is dropped.
        closed: bool,
        /// Bytes dropped.
        dropped: u64,
    },
    /// The queue's thread.
    Queued(OutputQueue),
}

/// Destination of COM1's output.
enum Serial {
    /// The console, in lines and frames.
    Lines,
    /// The console, byte by byte.
    Direct,
    /// A line of its own. The port is not ready while that is full; bytes sent anyway are dropped.
    Buffered(OutputQueue),
}

impl Console {
    /// Creates a console on two descriptors, which stay open. If the reader is gone, it kicks the vCPU.
    pub fn new(output: RawFd, input: RawFd, kicker: Kicker) -> Self {
        Self {
            output: Output::Direct {
                writer: Writer::new(output),
                kicker,
                closed: false,
                dropped: 0,
            },
            input: borrow(input),
            buffer: Vec::with_capacity(MAX_WRITE),
            frame: Frame::default(),
            serial: Serial::Lines,
            input_ended: false,
            polls: 0,
        }
    }

    /// Creates the console of a VM on standard output and input, with the threads of its queues.
    ///
    /// # Errors
    /// A thread cannot be created.
    pub fn open(settings: &VmConfig, kicker: Kicker) -> Result<Self, Failure> {
        let output = libc::STDOUT_FILENO;
        let queue = |name, speed| OutputQueue::start(name, speed, output, settings.sandbox);
        let mut console = Self::new(output, libc::STDIN_FILENO, kicker);
        if settings.guest == Guest::Linux {
            console.output = Output::Queued(queue("console", Speed::Reader)?);
        }
        console.serial = match settings.serial {
            SerialMode::Lines => Serial::Lines,
            SerialMode::Direct => Serial::Direct,
            SerialMode::Buffered => Serial::Buffered(queue("serial", Speed::Line)?),
        };
        Ok(console)
    }

    /// Returns true if the reader of an image's output is gone.
    pub fn is_closed(&self) -> bool {
        matches!(self.output, Output::Direct { closed: true, .. })
    }

    /// Returns the number of bytes that were dropped.
    pub fn dropped(&self) -> u64 {
        let own = match &self.output {
            Output::Direct { dropped, .. } => *dropped,
            Output::Queued(_) => 0,
        };
        own + self.queues().map(OutputQueue::dropped).sum::<u64>()
    }

    /// Returns the queues, which may have bytes when the guest has ended.
    pub fn queues(&self) -> impl Iterator<Item = &OutputQueue> {
        let output = match &self.output {
            Output::Direct { .. } => None,
            Output::Queued(queue) => Some(queue),
        };
        let serial = match &self.serial {
            Serial::Lines | Serial::Direct => None,
            Serial::Buffered(queue) => Some(queue),
        };
        output.into_iter().chain(serial)
    }

    /// Writes a byte to the buffer.
    #[inline(never)]
    pub fn put(&mut self, byte: u8) {
        self.buffer.push(byte);
        let complete = self.frame.take(byte);
        let line = byte == b'\n' && self.frame.is_outside();
        if complete || line || self.buffer.len() == MAX_WRITE {
            self.flush();
        }
    }

    /// Sends a byte to the serial line.
    #[inline(never)]
    pub fn send(&mut self, byte: u8) {
        match &self.serial {
            Serial::Lines => self.put(byte),
            Serial::Direct => self.put_all(&[byte]),
            Serial::Buffered(queue) => queue.push(&[byte]),
        }
    }

    /// Returns true if the serial line accepts a byte.
    pub fn has_room(&self) -> bool {
        match &self.serial {
            Serial::Lines | Serial::Direct => true,
            Serial::Buffered(queue) => queue.has_room(),
        }
    }

    /// Writes the output of an image that has ended, and reports what was dropped.
    pub fn finish(&mut self) {
        self.flush();
        self.queues().for_each(|queue| queue.drain(is_stopping));
        self.report_dropped();
    }

    /// Reports on standard error if output was dropped.
    pub fn report_dropped(&self) {
        let dropped = self.dropped();
        if dropped > 0 {
            print_error(&format_args!("{dropped} bytes of console output dropped"));
        }
    }

    /// Writes several bytes and flushes.
    pub fn put_all(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.put(*byte));
        self.flush();
    }

    /// Writes the buffer.
    #[inline(always)]
    pub fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.write_out();
        }
    }

    #[inline(never)]
    fn write_out(&mut self) {
        self.polls = 0;
        match &mut self.output {
            Output::Queued(queue) => queue.push(&self.buffer),
            Output::Direct { closed: true, .. } => {}
            Output::Direct {
                writer,
                kicker,
                closed,
                dropped,
            } => match writer.write(&self.buffer, is_stopping) {
                Ok(count) => *dropped += count,
                Err(Closed) => {
                    *closed = true;
                    kicker.mark();
                }
            },
        }
        self.buffer.clear();
    }

    /// Returns the next byte of input, if any.
    #[inline(never)]
    pub fn get(&mut self) -> Option<u8> {
        self.flush();
        let wait = i32::from(self.polls >= SPIN_POLLS);
        if self.input_ended || !is_ready(self.input.as_raw_fd(), libc::POLLIN, wait) {
            self.polls = self.polls.saturating_add(1);
            return None;
        }
        self.polls = 0;
        let mut byte = [0];
        match self.input.read(&mut byte) {
            Ok(1) => Some(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            _ => {
                self.input_ended = true;
                None
            }
        }
    }
}

fn is_stopping() -> bool {
    signals::stop_signal().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{pipe, Write};
    use std::os::fd::IntoRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Arc;
    use trapline_abi::frame::{encode, MAX_FRAME, SYNC};
    use trapline_abi::Record;
    use trapline_interface::Kick;

    #[derive(Clone, Default)]
    struct Flag(Arc<AtomicBool>);

    impl Kick for Flag {
        fn mark(&self) {
            self.0.store(true, Ordering::SeqCst);
        }

        fn interrupt(&self) {}
    }

    /// A descriptor of /dev/null.
    fn nothing() -> RawFd {
        let file = File::options().read(true).write(true).open("/dev/null");
        file.unwrap().into_raw_fd()
    }

    fn kicker() -> Kicker {
        Kicker::new(Flag::default())
    }

    #[test]
    fn complete_lines_and_frames_are_written() {
        let (mut reader, writer) = pipe().unwrap();
        let mut console = Console::new(writer.as_raw_fd(), nothing(), kicker());
        let mut read = |wanted: &[u8]| {
            let mut bytes = vec![0; wanted.len()];
            reader.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, wanted);
        };
        b"half".iter().for_each(|&byte| console.put(byte));
        assert_eq!(console.buffer.len(), 4);
        console.put(b'\n');
        assert_eq!(console.buffer.len(), 0);
        read(b"half\n");
        // A newline in the body must not split the frame.
        let mut frame = [0; MAX_FRAME];
        let record = Record::Panic { message: "a\nb" };
        let length = encode(&record, 7, &mut frame).unwrap();
        for &byte in &frame[..length - 1] {
            console.put(byte);
        }
        assert_eq!(console.buffer.len(), length - 1);
        console.put(frame[length - 1]);
        assert_eq!(console.buffer.len(), 0);
        read(&frame[..length]);
    }

    #[test]
    fn malformed_frame_does_not_block_output() {
        let (mut reader, writer) = pipe().unwrap();
        let mut console = Console::new(writer.as_raw_fd(), nothing(), kicker());
        let endless = [SYNC[0], SYNC[1], 4, 0xff, 0xff, b'\n'];
        endless.iter().for_each(|&byte| console.put(byte));
        let mut bytes = [0; 6];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, endless);
        for _ in 0..MAX_WRITE {
            console.put(SYNC[0]);
        }
        assert_eq!(console.buffer.len(), 0);
    }

    #[test]
    fn closed_console_kicks_the_vcpu() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let flag = Flag::default();
        let mut console = Console::new(writer.as_raw_fd(), nothing(), Kicker::new(flag.clone()));
        console.put(b'\n');
        assert!(console.is_closed());
        assert!(flag.0.load(Ordering::SeqCst));
        for _ in 0..3 * MAX_WRITE {
            console.put(b'x');
        }
    }

    #[test]
    fn input_arrives_and_ends() {
        let (reader, mut writer) = pipe().unwrap();
        let mut console = Console::new(nothing(), reader.as_raw_fd(), kicker());
        assert_eq!(console.get(), None);
        writer.write_all(b"g").unwrap();
        assert_eq!(console.get(), Some(b'g'));
        assert_eq!(console.get(), None);
        drop(writer);
        assert_eq!(console.get(), None);
        assert!(console.input_ended);
    }
}
