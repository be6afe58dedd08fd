//! Copies of the frames that a port sends and receives, as a pcap file.
//!
//! The engine never waits: it collects copies in memory, and passes them on when the thread that writes the file has taken the
//! last ones. Copies for which there is no room are dropped and counted.

use crate::copy::{read, HEADERS};
use crate::counters::Counter;
use crate::frame::{Header, LONGEST};
use crate::net_header::NET_HEADER;
use crate::ring::Segment;
use std::io::Write;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of copies that wait, twice: in the engine, and for the thread that writes.
const ROOM: usize = 4 << 20;

/// Interval at which the thread that writes looks for copies.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// Bytes before each copy.
const RECORD: usize = 16;

/// Copies, with their number.
#[derive(Default)]
struct Copies {
    bytes: Vec<u8>,
    frames: u64,
}

impl Copies {
    fn with_room() -> Self {
        Self {
            bytes: Vec::with_capacity(ROOM),
            frames: 0,
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.frames = 0;
    }
}

/// A mirror, as all threads see it.
pub struct Mirror {
    /// The port whose frames are copied.
    pub port: usize,
    waiting: Mutex<Copies>,
    /// Copies in the file.
    pub written: Counter,
    /// Copies that were dropped because those before were not written yet.
    pub too_slow: Counter,
    /// Copies that were dropped because the file has reached its limit, or cannot be written.
    pub no_space: Counter,
}

impl Mirror {
    /// Creates a mirror of a port.
    pub fn new(port: usize) -> Self {
        Self {
            port,
            waiting: Mutex::new(Copies::with_room()),
            written: Counter::default(),
            too_slow: Counter::default(),
            no_space: Counter::default(),
        }
    }

    /// Writes copies for ever, up to `left` bytes. No other thread waits for this one.
    pub fn serve(&self, mut file: impl Write, mut left: u64) {
        let mut copies = Copies::with_room();
        loop {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *waiting, &mut copies);
            drop(waiting);
            if copies.frames == 0 {
                std::thread::sleep(INTERVAL);
                continue;
            }
            let rest = left.checked_sub(copies.bytes.len() as u64);
            match rest.filter(|_| file.write_all(&copies.bytes).is_ok()) {
                Some(rest) => {
                    left = rest;
                    self.written.add(copies.frames);
                }
                None => {
                    // What follows a part of a record could not be read.
                    left = 0;
                    self.no_space.add(copies.frames);
                }
            }
            copies.clear();
        }
    }
}

/// Returns the start of a file (pcap, draft-ietf-opsawg-pcap): times in nanoseconds, Ethernet.
pub fn file_header() -> [u8; 24] {
    let mut header = [0; 24];
    let words = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, LONGEST, 1_u32];
    let (parts, _) = header.as_chunks_mut::<4>();
    for (part, word) in parts.iter_mut().zip(words) {
        *part = word.to_le_bytes();
    }
    header
}

/// The engine's side of a mirror.
pub struct Recorder {
    copies: Copies,
    /// Time of the copies of this turn, since 1970.
    now: Option<Duration>,
}

impl Recorder {
    /// Creates it without copies.
    pub fn new() -> Self {
        Self {
            copies: Copies::with_room(),
            now: None,
        }
    }

    /// Copies a frame: this header, and the bytes of `segments` behind theirs. `length` includes the net header.
    pub fn add(&mut self, mirror: &Mirror, header: Header, segments: &[Segment], length: u32) {
        let frame = length.saturating_sub(NET_HEADER);
        let bytes = &mut self.copies.bytes;
        if bytes.len() + RECORD + frame as usize > ROOM {
            return mirror.too_slow.add(1);
        }
        let now = *self.now.get_or_insert_with(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.unwrap_or_default()
        });
        for word in [now.as_secs() as u32, now.subsec_nanos(), frame, frame] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(header.bytes());
        let start = bytes.len();
        bytes.resize(start + (length as usize).saturating_sub(HEADERS), 0);
        read(segments, HEADERS as u32, &mut bytes[start..]);
        self.copies.frames += 1;
    }

    /// Ends a turn: passes the copies on if the last ones were taken. Returns whether some are left.
    #[inline]
    pub fn end_turn(&mut self, mirror: &Mirror) -> bool {
        if self.copies.frames == 0 {
            return false;
        }
        self.now = None;
        let mut waiting = match mirror.waiting.try_lock() {
            Ok(waiting) => waiting,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return true,
        };
        if waiting.frames > 0 {
            return true;
        }
        std::mem::swap(&mut *waiting, &mut self.copies);
        false
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;
    use std::sync::mpsc::{sync_channel, SyncSender};
    use std::sync::Arc;

    /// A file that takes nothing until it may, and then reports its bytes.
    struct Blocked {
        is_open: std::sync::mpsc::Receiver<()>,
        bytes: SyncSender<Vec<u8>>,
    }

    impl Write for Blocked {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.is_open.recv().map_err(std::io::Error::other)?;
            self.bytes
                .send(bytes.to_vec())
                .map_err(std::io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn add(recorder: &mut Recorder, mirror: &Mirror, frame: &mut [u8]) {
        let (start, length) = (NonNull::from(&mut *frame).cast(), frame.len() as u32);
        let header = Header::new(&[7; 14]);
        recorder.add(mirror, header, &[Segment { start, length }], length);
    }

    #[test]
    fn copies_that_are_not_written_in_time_are_dropped_and_counted() {
        let mirror = Arc::new(Mirror::new(0));
        let (open, is_open) = sync_channel(64);
        let (bytes, written) = sync_channel(64);
        let limit = 2 * ROOM as u64;
        let writer = Arc::clone(&mirror);
        std::thread::spawn(move || writer.serve(Blocked { is_open, bytes }, limit));
        let mut recorder = Recorder::new();
        let mut frame = [9; 1000 + NET_HEADER as usize];
        let count = 20_000;
        for _ in 0..count {
            add(&mut recorder, &mirror, &mut frame);
            recorder.end_turn(&mirror);
        }
        let kept = count - mirror.too_slow.get();
        // Three times the room: written, waiting, and in the engine.
        assert!(kept as usize * 1016 <= 3 * ROOM && kept > 4000, "{kept}");
        for _ in 0..3 {
            open.send(()).unwrap();
        }
        let mut all = written.recv().unwrap();
        while recorder.end_turn(&mirror) {
            std::thread::yield_now();
        }
        all.extend(written.recv().unwrap());
        assert_eq!(all.len() % 1016, 0);
        let record = &all[..1016];
        assert_eq!(record[8..16], [0xe8, 3, 0, 0, 0xe8, 3, 0, 0]);
        assert_eq!(
            (&record[16..30], &record[30..]),
            (&[7; 14][..], &[9; 986][..])
        );
        // The rest is above the limit, or the last that fits.
        while mirror.written.get() + mirror.no_space.get() < kept {
            std::thread::sleep(INTERVAL);
        }
        assert!(mirror.written.get() * 1016 <= limit);
    }
}
