//! What this VMM says of itself: stages and counts, as frames on a descriptor of
//! their own. Whoever passed the descriptor may be gone; that changes nothing for
//! the guest.

use crate::clock::ticks;
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::record::{Counter, Record, Stage};

/// Room for all the stages, or all the counts, of one machine.
const BUFFER: usize = 512;

/// The descriptor, and frames that are not yet written to it.
pub struct Events {
    file: Option<ManuallyDrop<File>>,
    buffer: [u8; BUFFER],
    used: usize,
}

impl Events {
    /// Events on `fd`, or nowhere.
    pub fn new(fd: Option<RawFd>) -> Self {
        Self {
            // SAFETY: the file is never dropped, so it closes nothing that is not
            // its own; a descriptor that is not open gives errors, see `flush`.
            file: fd.map(|fd| ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })),
            buffer: [0; BUFFER],
            used: 0,
        }
    }

    /// Whether anybody listens.
    pub fn wanted(&self) -> bool {
        self.file.is_some()
    }

    /// Notes that `stage` was reached at `at`.
    pub fn stage(&mut self, stage: Stage, at: u64) {
        self.note(&Record::Stage { stage, at });
    }

    /// Notes a count.
    pub fn count(&mut self, counter: Counter, value: u64) {
        self.note(&Record::Count { counter, value });
    }

    fn note(&mut self, record: &Record<'_>) {
        if !self.wanted() {
            return;
        }
        let mut frame = [0; MAX_FRAME];
        let Ok(length) = encode(record, ticks(), &mut frame) else {
            return;
        };
        if self.used + length > BUFFER {
            self.flush();
        }
        if let Some(room) = self.buffer.get_mut(self.used..self.used + length) {
            room.copy_from_slice(&frame[..length]);
            self.used += length;
        }
    }

    /// Writes what was noted.
    pub fn flush(&mut self) {
        if let Some(file) = &mut self.file {
            let _nobody_may_listen = file.write_all(&self.buffer[..self.used]);
        }
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{pipe, Read};
    use std::os::fd::AsRawFd;
    use trapline_abi::{Decoder, Item};

    #[test]
    fn what_is_noted_is_read() {
        let (mut reader, writer) = pipe().unwrap();
        let mut events = Events::new(Some(writer.as_raw_fd()));
        events.stage(Stage::VmmMain, 5);
        for counter in Counter::ALL {
            for value in [u64::MAX, 0, u64::MAX] {
                events.count(counter, value);
            }
        }
        events.flush();
        drop(writer);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        let mut records = 0;
        Decoder::new().feed(&bytes, &mut |item| match item {
            Item::Record(..) => records += 1,
            other => panic!("{other:?}"),
        });
        assert_eq!(records, 1 + 3 * Counter::ALL.len());
    }
}
