//! The guest's console on standard output and input. It also receives serial output, see [`crate::line`].
//!
//! Output is buffered and written when a line or a frame ([`trapline_abi::frame`]) is complete, when the
//! buffer is full, and before the guest halts, waits or ends. A record is thus written before the next
//! instruction, by one system call. A guest that floods the console blocks until it is read.

use crate::line::Line;
use crate::signals;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use trapline_abi::frame::{CHECKSUM, HEADER, MAX_BODY, SYNC};
use trapline_interface::Kicker;

const BUFFER: usize = 4096;

/// Number of polls for input without wait. Each later one waits for a millisecond, so that a waiting guest
/// does not use CPU time.
const SPIN_POLLS: u32 = 1_000;

/// The console of one VM.
pub struct Console {
    output: ManuallyDrop<File>,
    input: ManuallyDrop<File>,
    /// Allocated, but not touched before the first byte: its page would delay the guest's start.
    buffer: Vec<u8>,
    frame: Frame,
    line: Line,
    /// Write error; later output is dropped.
    failure: Option<ErrorKind>,
    input_ended: bool,
    /// Polls for input since the last byte in either direction.
    polls: u32,
    kicker: Kicker,
}

/// Parser state of a frame in the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Frame {
    /// Bytes seen; 0 outside a frame.
    seen: usize,
    /// Length, once the header is complete.
    length: usize,
}

impl Frame {
    /// Processes a byte; returns true if it completes a frame.
    fn take(&mut self, byte: u8) -> bool {
        self.seen = match self.seen {
            0 | 1 if byte == SYNC[0] => 1,
            1 if byte == SYNC[1] => 2,
            0 | 1 => 0,
            2 => 3,
            3 => {
                self.length = byte.into();
                4
            }
            4 => self.measure(byte),
            seen => seen + 1,
        };
        let complete = self.seen > HEADER && self.seen == self.length;
        if complete {
            self.seen = 0;
        }
        complete
    }

    fn measure(&mut self, high: u8) -> usize {
        let body = self.length | usize::from(high) << 8;
        self.length = HEADER + body + CHECKSUM;
        if body <= MAX_BODY {
            HEADER
        } else {
            0
        }
    }

    fn is_outside(&self) -> bool {
        self.seen == 0
    }
}

impl Console {
    /// Creates a console on two descriptors, which stay open. A permanent write error kicks the vCPU.
    pub fn new(output: RawFd, input: RawFd, kicker: Kicker) -> Self {
        Self {
            output: borrow(output),
            input: borrow(input),
            buffer: Vec::with_capacity(BUFFER),
            frame: Frame::default(),
            line: Line::Lines,
            failure: None,
            input_ended: false,
            polls: 0,
            kicker,
        }
    }

    /// Sets the destination of serial output.
    #[must_use]
    pub fn with_line(self, line: Line) -> Self {
        Self { line, ..self }
    }

    /// Returns the write error, if any.
    pub fn failure(&self) -> Option<ErrorKind> {
        self.failure
    }

    /// Writes a byte to the buffer.
    #[inline(never)]
    pub fn put(&mut self, byte: u8) {
        self.buffer.push(byte);
        let complete = self.frame.take(byte);
        let line = byte == b'\n' && self.frame.is_outside();
        if complete || line || self.buffer.len() == BUFFER {
            self.flush();
        }
    }

    /// Sends a byte to the serial line.
    #[inline(never)]
    pub fn send(&mut self, byte: u8) {
        match &self.line {
            Line::Lines => self.put(byte),
            Line::Direct => self.put_all(&[byte]),
            Line::Buffered(outbox) => outbox.put(byte),
        }
    }

    /// Returns true if the serial line accepts a byte.
    pub fn has_room(&self) -> bool {
        match &self.line {
            Line::Lines | Line::Direct => true,
            Line::Buffered(outbox) => outbox.has_room(),
        }
    }

    /// Writes all output of a guest that has ended.
    pub fn finish(&mut self) {
        let hurried = signals::stop_signal().is_some() || self.failure.is_some();
        if let (Line::Buffered(outbox), false) = (&self.line, hurried) {
            let rest = outbox.take_rest();
            rest.into_iter().for_each(|byte| self.put(byte));
        }
        self.flush();
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
        let mut from = 0;
        while self.failure.is_none() && from < self.buffer.len() {
            match self.output.write(&self.buffer[from..]) {
                Ok(0) => self.fail(ErrorKind::WriteZero),
                Ok(count) => from += count,
                Err(error) => self.handle_write_error(&error),
            }
        }
        self.buffer.clear();
    }

    /// Handles a write error: waits or gives up.
    fn handle_write_error(&mut self, error: &io::Error) {
        match error.kind() {
            // After a stop request, do not wait for the reader.
            ErrorKind::Interrupted if signals::stop_signal().is_some() => {
                self.fail(ErrorKind::Interrupted);
            }
            ErrorKind::Interrupted => {}
            ErrorKind::WouldBlock => {
                const WAIT: libc::c_int = 1_000;
                ready(self.output.as_raw_fd(), libc::POLLOUT, WAIT);
                if signals::stop_signal().is_some() {
                    self.fail(ErrorKind::Interrupted);
                }
            }
            kind => self.fail(kind),
        }
    }

    fn fail(&mut self, kind: ErrorKind) {
        self.failure = Some(kind);
        self.kicker.mark();
    }

    /// Returns the next byte of input, if any.
    #[inline(never)]
    pub fn get(&mut self) -> Option<u8> {
        self.flush();
        let wait = i32::from(self.polls >= SPIN_POLLS);
        if self.input_ended || !ready(self.input.as_raw_fd(), libc::POLLIN, wait) {
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

/// Returns a file that does not close its descriptor.
fn borrow(fd: RawFd) -> ManuallyDrop<File> {
    // SAFETY: the file is never dropped, so the descriptor is not closed; an invalid descriptor gives
    // errors, which are handled.
    ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })
}

/// Returns true if `fd` is ready, or has an error, after at most `wait` milliseconds.
fn ready(fd: RawFd, what: libc::c_short, wait: libc::c_int) -> bool {
    let mut request = libc::pollfd {
        fd,
        events: what,
        revents: 0,
    };
    // SAFETY: one request is passed.
    unsafe { libc::poll(&raw mut request, 1, wait) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::pipe;
    use std::os::fd::IntoRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Arc;
    use trapline_abi::frame::{encode, MAX_FRAME};
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
        for _ in 0..BUFFER {
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
        assert_eq!(console.failure(), Some(ErrorKind::BrokenPipe));
        assert!(flag.0.load(Ordering::SeqCst));
        for _ in 0..3 * BUFFER {
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
