//! Events of the VMM: stages and counts as frames on a separate descriptor. Write errors are ignored.

use crate::clock::ticks;
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::record::{Counter, Record, Stage};

/// Capacity: all stages, or all counts, of one run.
const BUFFER: usize = 512;

/// An event descriptor with a buffer.
pub struct Events {
    file: Option<ManuallyDrop<File>>,
    buffer: [u8; BUFFER],
    used: usize,
}

impl Events {
    /// Creates a writer to `fd`, or a writer that discards events.
    pub fn new(fd: Option<RawFd>) -> Self {
        Self {
            // SAFETY: the file is never dropped, so the descriptor is not closed; an invalid descriptor gives errors,
            // see `flush`.
            file: fd.map(|fd| ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })),
            buffer: [0; BUFFER],
            used: 0,
        }
    }

    /// Returns true if events are recorded.
    pub fn wanted(&self) -> bool {
        self.file.is_some()
    }

    /// Records that `stage` was reached at `at`.
    pub fn stage(&mut self, stage: Stage, at: u64) {
        self.note(&Record::Stage { stage, at });
    }

    /// Records a count.
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

    /// Writes the buffered events.
    pub fn flush(&mut self) {
        if let Some(file) = &mut self.file {
            let _ignored = file.write_all(&self.buffer[..self.used]);
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
    fn recorded_events_are_decoded() {
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
