//! A bounded queue of console output, which a thread of its own writes.
//!
//! A thread that queues bytes never waits for the reader: what does not fit is dropped and counted. No lock that others wait for
//! is held during a write. The thread may wait for the reader for ever; the end of the VM waits for it for a limited time only.
//!
//! Where the output is a pipe and its reader is ready, the thread that queues bytes writes them without waiting: on a single CPU the
//! thread would otherwise run during the guest's next measurement.

use super::writer::{Closed, Writer, MAX_WRITE};
use crate::clock::{monotonic_ns, sleep_until};
use crate::sandbox::Role;
use crate::threads::spawn;
use crate::Failure;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Capacity of a queue that is written as fast as it is read. Pages are not touched before they are needed.
const CAPACITY: usize = 1 << 20;

/// Capacity of a serial line.
const LINE_CAPACITY: usize = 4096;

/// Bytes per second at 115,200 baud with one start and one stop bit.
const PACE: u64 = 11_520;

/// Interval between writes to a serial line, in nanoseconds.
const GATHERING_NS: u64 = 7_000_000;

/// Bytes per interval.
const AT_ONCE: usize = (PACE * GATHERING_NS / 1_000_000_000) as usize;

/// Time that the end of a VM waits for a reader that reads nothing.
const READER_PATIENCE: Duration = Duration::from_secs(10);

/// Time that a requested stop waits for all output.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// Interval of checks for a stop request.
const INTERVAL: Duration = Duration::from_millis(50);

/// Speed at which a queue is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// That of the reader.
    Reader,
    /// At most that of a serial line.
    Line,
}

/// Sending side of a queue.
#[derive(Clone)]
pub struct OutputQueue(Arc<Shared>);

struct Shared {
    speed: Speed,
    capacity: usize,
    queue: Mutex<Queue>,
    output: Writer,
    /// The same pipe; its writes do not wait.
    pipe: Option<Writer>,
    /// Held during a write. Only the thread waits for it.
    writing: Mutex<()>,
    filled: Condvar,
    written: Condvar,
}

#[derive(Default)]
struct Queue {
    bytes: VecDeque<u8>,
    /// The thread waits for the first byte.
    idle: bool,
    /// The VM ends: the thread does not keep the pace of a line.
    ending: bool,
    /// Bytes accepted.
    accepted: u64,
    /// Bytes written, or dropped by the thread.
    finished: u64,
    /// Bytes that did not fit, or that a full disk did not take.
    dropped: u64,
}

impl OutputQueue {
    /// Creates a queue, and starts the thread `name`, which writes to `output`.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start(name: &str, speed: Speed, output: RawFd, sandbox: bool) -> Result<Self, Failure> {
        let capacity = match speed {
            Speed::Reader => CAPACITY,
            Speed::Line => LINE_CAPACITY,
        };
        let shared = Arc::new(Shared {
            speed,
            capacity,
            queue: Mutex::default(),
            pipe: match speed {
                Speed::Reader => Writer::without_waiting(output),
                Speed::Line => None,
            },
            output: Writer::new(output),
            writing: Mutex::default(),
            filled: Condvar::new(),
            written: Condvar::new(),
        });
        // Seccomp filters do not allow it to grow. A vCPU may put back what it could not write.
        let room = capacity + MAX_WRITE;
        shared.lock().bytes.reserve_exact(room);
        let theirs = Arc::clone(&shared);
        spawn(name, Role::ConsoleWriter, sandbox, move || {
            let Err(Closed) = theirs.write_all();
            Failure::ConsoleClosed
        })?;
        Ok(Self(shared))
    }

    /// Appends bytes, all or none of them. Writes them if the reader of a pipe is ready and no other thread writes; the rest is
    /// left to the thread.
    pub fn push(&self, bytes: &[u8]) {
        let mut queue = self.0.lock();
        if queue.bytes.len() + bytes.len() > self.0.capacity {
            queue.dropped += bytes.len() as u64;
            return;
        }
        queue.bytes.extend(bytes);
        queue.accepted += bytes.len() as u64;
        drop(queue);
        if let (Some(pipe), Ok(_guard)) = (&self.0.pipe, self.0.writing.try_lock()) {
            while self.0.write_piece(pipe) {}
        }
        self.0.wake(&mut self.0.lock());
    }

    /// Returns true if there is room for a byte.
    pub fn has_room(&self) -> bool {
        self.0.lock().bytes.len() < self.0.capacity
    }

    /// Returns the number of bytes dropped.
    pub fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }

    /// Waits until the bytes accepted so far are written, as long as the reader reads. While `stopping` returns true, waits
    /// for a short time in all.
    pub fn drain(&self, stopping: impl Fn() -> bool) {
        let mut queue = self.0.lock();
        queue.ending = true;
        self.0.wake(&mut queue);
        let (target, mut finished) = (queue.accepted, queue.finished);
        let mut progress = Instant::now();
        let mut stop = None;
        while queue.finished < target {
            let now = Instant::now();
            if queue.finished != finished {
                (progress, finished) = (now, queue.finished);
            }
            let since_stop = if stopping() {
                now - *stop.get_or_insert(now)
            } else {
                Duration::ZERO
            };
            if since_stop >= STOP_PATIENCE || now - progress >= READER_PATIENCE {
                return;
            }
            let waited = self.0.written.wait_timeout(queue, INTERVAL);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A poisoned queue is still consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread if it has to do something.
    fn wake(&self, queue: &mut Queue) {
        if !queue.bytes.is_empty() && std::mem::take(&mut queue.idle) {
            self.filled.notify_one();
        }
    }

    /// Writes a piece without waiting for the reader, and puts back what was not written. Returns true if all was written,
    /// and there may be more.
    fn write_piece(&self, pipe: &Writer) -> bool {
        let mut piece = [0; MAX_WRITE];
        let length = self.lock().take(&mut piece);
        let written = pipe.write(&piece[..length], || true);
        let mut queue = self.lock();
        // The thread meets the error again, and ends the VM.
        let rest = written.map_or(length, |rest| rest as usize);
        queue.finished += (length - rest) as u64;
        let unwritten = &piece[length - rest..length];
        unwritten
            .iter()
            .rev()
            .for_each(|byte| queue.bytes.push_front(*byte));
        length > 0 && rest == 0
    }

    /// Body of the thread: writes all bytes until the reader is gone.
    fn write_all(&self) -> Result<std::convert::Infallible, Closed> {
        let mut piece = [0; MAX_WRITE];
        loop {
            let most = self.wait();
            let _guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let length = self.lock().take(&mut piece[..most]);
            let written = self.output.write(&piece[..length], || false);
            let mut queue = self.lock();
            let dropped = match written {
                // The VM already ends, for another reason.
                Err(Closed) if queue.ending => length as u64,
                written => written?,
            };
            queue.finished += length as u64;
            queue.dropped += dropped;
            // It is a system call even without a waiter.
            if queue.ending {
                self.written.notify_all();
            }
        }
    }

    /// Waits for bytes. Returns the number to be written at once.
    fn wait(&self) -> usize {
        let nothing = |queue: &mut Queue| {
            queue.idle = queue.bytes.is_empty();
            queue.idle
        };
        let waited = self.filled.wait_while(self.lock(), nothing);
        let queue = waited.unwrap_or_else(PoisonError::into_inner);
        if self.speed == Speed::Reader || queue.ending {
            return MAX_WRITE;
        }
        drop(queue);
        sleep_until(monotonic_ns() + GATHERING_NS);
        AT_ONCE
    }
}

impl Queue {
    /// Moves bytes into `piece`, as many as there are and fit. Returns their number.
    fn take(&mut self, piece: &mut [u8]) -> usize {
        let length = self.bytes.len().min(piece.len());
        for (place, byte) in piece.iter_mut().zip(self.bytes.drain(..length)) {
            *place = byte;
        }
        if self.bytes.is_empty() {
            // Starts again at the first page.
            self.bytes.clear();
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{pipe, Read};
    use std::os::fd::AsRawFd;

    #[test]
    fn bytes_arrive_in_order() {
        for speed in [Speed::Reader, Speed::Line] {
            let (mut reader, writer) = pipe().unwrap();
            let queue = OutputQueue::start("test", speed, writer.as_raw_fd(), false).unwrap();
            let sent: Vec<u8> = (0..200).collect();
            sent.iter().for_each(|byte| queue.push(&[*byte]));
            queue.drain(|| false);
            let mut arrived = vec![0; sent.len()];
            reader.read_exact(&mut arrived).unwrap();
            assert_eq!((arrived, queue.dropped()), (sent, 0));
            std::mem::forget(writer);
        }
    }

    #[test]
    fn ready_reader_receives_bytes_without_the_thread() {
        let (mut reader, writer) = pipe().unwrap();
        let queue = OutputQueue::start("test", Speed::Reader, writer.as_raw_fd(), false).unwrap();
        // The pipe takes a part; the thread waits for the reader with the rest.
        let sent: Vec<u8> = (0..CAPACITY).map(|at| (at % 251) as u8).collect();
        for piece in sent.chunks(1000) {
            queue.push(piece);
        }
        let mut arrived = vec![0; sent.len()];
        reader.read_exact(&mut arrived).unwrap();
        assert!(arrived == sent);
        // No other thread writes now: these bytes are in the pipe before the call returns.
        queue.drain(|| false);
        queue.push(b"record");
        let mut record = [0; 6];
        reader.read_exact(&mut record).unwrap();
        assert_eq!((&record, queue.dropped()), (b"record", 0));
        std::mem::forget(writer);
    }

    /// A burst of records is larger than a pipe.
    #[test]
    fn burst_arrives_in_full_at_a_reader_that_reads_later() {
        let (mut reader, writer) = pipe().unwrap();
        let queue = OutputQueue::start("test", Speed::Reader, writer.as_raw_fd(), false).unwrap();
        let sent: Vec<u8> = (0..CAPACITY).map(|at| (at % 251) as u8).collect();
        sent.chunks(1000).for_each(|piece| queue.push(piece));
        let mut arrived = vec![0; sent.len()];
        reader.read_exact(&mut arrived).unwrap();
        assert!(arrived == sent);
        assert_eq!(queue.dropped(), 0);
        std::mem::forget(writer);
    }

    #[test]
    fn unread_output_is_dropped_and_counted() {
        for (speed, capacity) in [(Speed::Reader, CAPACITY), (Speed::Line, LINE_CAPACITY)] {
            let (reader, writer) = pipe().unwrap();
            let queue = OutputQueue::start("test", speed, writer.as_raw_fd(), false).unwrap();
            let line = [b'x'; 100];
            let mut sent = 0;
            while queue.dropped() == 0 {
                queue.push(&line);
                sent += line.len();
            }
            assert!(sent > capacity, "{sent}");
            assert!(queue.dropped().is_multiple_of(100), "lines are whole");
            let begun = Instant::now();
            queue.drain(|| true);
            assert!(begun.elapsed() >= STOP_PATIENCE || speed == Speed::Line);
            std::mem::forget((reader, writer));
        }
    }

    #[test]
    fn full_disk_is_counted_and_does_not_fill_the_queue() {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let full = full.unwrap();
        let queue = OutputQueue::start("test", Speed::Reader, full.as_raw_fd(), false).unwrap();
        for _ in 0..4 {
            queue.push(&[b'x'; CAPACITY / 2]);
            queue.drain(|| false);
        }
        assert_eq!(queue.dropped(), 2 * CAPACITY as u64);
        std::mem::forget(full);
    }

    /// Before that, a closed reader ends the process.
    #[test]
    fn closed_reader_does_not_change_the_end_of_a_vm() {
        let (reader, writer) = pipe().unwrap();
        let queue = OutputQueue::start("test", Speed::Reader, writer.as_raw_fd(), false).unwrap();
        queue.drain(|| false);
        drop(reader);
        queue.push(b"late");
        queue.drain(|| false);
        assert_eq!(queue.dropped(), 4);
        std::mem::forget(writer);
    }

    #[test]
    fn line_is_paced() {
        let (mut reader, writer) = pipe().unwrap();
        let queue = OutputQueue::start("test", Speed::Line, writer.as_raw_fd(), false).unwrap();
        let begun = monotonic_ns();
        queue.push(&[b'x'; 5 * AT_ONCE]);
        reader.read_exact(&mut [0; 5 * AT_ONCE]).unwrap();
        assert!(monotonic_ns() - begun >= 4 * GATHERING_NS);
        std::mem::forget(writer);
    }
}
