//! The guest's console: standard output, and input for who waits for it. The serial
//! line ends here, too, in one of three ways.
//!
//! Bytes are gathered and written when something is complete - a line or one of
//! [`trapline_abi::frame`]'s frames -, when the buffer is full, and before the
//! guest halts, waits or ends. So a record is on its way before the guest's next
//! instruction, at the price of one system call. A guest that floods the console
//! waits until somebody reads it; nothing here grows.

use crate::line::Line;
use crate::signals;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use trapline_abi::frame::{CHECKSUM, HEADER, MAX_BODY, SYNC};
use trapline_interface::Kicker;

const BUFFER: usize = 4096;

/// After so many vain looks for input, each one may last a millisecond: a guest
/// that waits for the word to go should not take CPU time from one that runs.
const PATIENCE: u32 = 1_000;

/// The console of one machine.
pub struct Console {
    output: ManuallyDrop<File>,
    input: ManuallyDrop<File>,
    buffer: [u8; BUFFER],
    used: usize,
    frame: Frame,
    line: Line,
    /// Output is not taken any more; what the guest says is dropped.
    failure: Option<ErrorKind>,
    input_ended: bool,
    /// Vain looks for input since the last byte in or out.
    looks: u32,
    kicker: Kicker,
}

/// How far a frame has come that may have begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Frame {
    /// Bytes seen of it; 0 outside of one.
    seen: usize,
    /// Its length, once its header was seen.
    length: usize,
}

impl Frame {
    /// Takes the next byte; true if it completes a frame.
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
    /// A console on two descriptors, which stay open. If output fails for good,
    /// `kicker` recalls the vCPU.
    pub fn new(output: RawFd, input: RawFd, kicker: Kicker) -> Self {
        Self {
            output: borrow(output),
            input: borrow(input),
            buffer: [0; BUFFER],
            used: 0,
            frame: Frame::default(),
            line: Line::Lines,
            failure: None,
            input_ended: false,
            looks: 0,
            kicker,
        }
    }

    /// The same with a serial line that ends otherwise than by default.
    #[must_use]
    pub fn with_line(self, line: Line) -> Self {
        Self { line, ..self }
    }

    /// Why output is not taken any more, if so.
    pub fn failure(&self) -> Option<ErrorKind> {
        self.failure
    }

    /// Takes a byte of output.
    #[inline(never)]
    pub fn put(&mut self, byte: u8) {
        self.buffer[self.used] = byte;
        self.used += 1;
        let complete = self.frame.take(byte);
        let line = byte == b'\n' && self.frame.is_outside();
        if complete || line || self.used == BUFFER {
            self.flush();
        }
    }

    /// Takes a byte of the serial line.
    #[inline(never)]
    pub fn send(&mut self, byte: u8) {
        match &self.line {
            Line::Lines => self.put(byte),
            Line::Direct => self.put_all(&[byte]),
            Line::Buffered(outbox) => outbox.put(byte),
        }
    }

    /// Whether the serial line has room for a byte.
    pub fn has_room(&self) -> bool {
        match &self.line {
            Line::Lines | Line::Direct => true,
            Line::Buffered(outbox) => outbox.has_room(),
        }
    }

    /// Writes what has been taken from the guest, which has ended.
    pub fn finish(&mut self) {
        let hurried = signals::stopped().is_some() || self.failure.is_some();
        if let (Line::Buffered(outbox), false) = (&self.line, hurried) {
            let rest = outbox.take_rest();
            rest.into_iter().for_each(|byte| self.put(byte));
        }
        self.flush();
    }

    /// Takes several bytes of output and writes them.
    pub fn put_all(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.put(*byte));
        self.flush();
    }

    /// Writes what was gathered.
    #[inline(always)]
    pub fn flush(&mut self) {
        if self.used != 0 {
            self.write_out();
        }
    }

    #[inline(never)]
    fn write_out(&mut self) {
        self.looks = 0;
        let mut from = 0;
        while self.failure.is_none() && from < self.used {
            match self.output.write(&self.buffer[from..self.used]) {
                Ok(0) => self.fail(ErrorKind::WriteZero),
                Ok(count) => from += count,
                Err(error) => self.overcome(&error),
            }
        }
        self.used = 0;
    }

    /// Waits for room, or gives up.
    fn overcome(&mut self, error: &io::Error) {
        match error.kind() {
            // Whoever said stop will not wait until somebody reads.
            ErrorKind::Interrupted if signals::stopped().is_some() => {
                self.fail(ErrorKind::Interrupted);
            }
            ErrorKind::Interrupted => {}
            ErrorKind::WouldBlock => {
                const WAIT: libc::c_int = 1_000;
                ready(self.output.as_raw_fd(), libc::POLLOUT, WAIT);
                if signals::stopped().is_some() {
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

    /// The next byte of input, if one has arrived.
    #[inline(never)]
    pub fn get(&mut self) -> Option<u8> {
        self.flush();
        let wait = i32::from(self.looks >= PATIENCE);
        if self.input_ended || !ready(self.input.as_raw_fd(), libc::POLLIN, wait) {
            self.looks = self.looks.saturating_add(1);
            return None;
        }
        self.looks = 0;
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

/// A file that does not close its descriptor, which is not negative.
fn borrow(fd: RawFd) -> ManuallyDrop<File> {
    // SAFETY: the file is never dropped, so it closes nothing that is not its own;
    // a descriptor that is not open gives errors, which are handled.
    ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })
}

/// Whether `fd` is ready for `what`, or will never be, after at most `wait`
/// milliseconds.
fn ready(fd: RawFd, what: libc::c_short, wait: libc::c_int) -> bool {
    let mut request = libc::pollfd {
        fd,
        events: what,
        revents: 0,
    };
    // SAFETY: one request is passed, and one is there.
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

    /// A descriptor that takes all and gives nothing.
    fn nothing() -> RawFd {
        let file = File::options().read(true).write(true).open("/dev/null");
        file.unwrap().into_raw_fd()
    }

    fn kicker() -> Kicker {
        Kicker::new(Flag::default())
    }

    #[test]
    fn a_line_and_a_frame_are_written_when_they_are_complete() {
        let (mut reader, writer) = pipe().unwrap();
        let mut console = Console::new(writer.as_raw_fd(), nothing(), kicker());
        let mut read = |wanted: &[u8]| {
            let mut bytes = vec![0; wanted.len()];
            reader.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, wanted);
        };
        b"half".iter().for_each(|&byte| console.put(byte));
        assert_eq!(console.used, 4);
        console.put(b'\n');
        assert_eq!(console.used, 0);
        read(b"half\n");
        // The body holds a newline, which must not split the frame.
        let mut frame = [0; MAX_FRAME];
        let record = Record::Panic { message: "a\nb" };
        let length = encode(&record, 7, &mut frame).unwrap();
        for &byte in &frame[..length - 1] {
            console.put(byte);
        }
        assert_eq!(console.used, length - 1);
        console.put(frame[length - 1]);
        assert_eq!(console.used, 0);
        read(&frame[..length]);
    }

    #[test]
    fn a_frame_without_end_holds_nothing_back_for_ever() {
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
        assert_eq!(console.used, 0);
    }

    #[test]
    fn a_console_that_nobody_reads_recalls_the_guest() {
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
