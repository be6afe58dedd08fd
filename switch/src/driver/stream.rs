//! One direction of numbered frames.

use super::endpoint::Endpoint;
use super::BATCH;
use crate::frame::HEADER;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Type of the frames: for local experiments (IEEE 802, 9.2).
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Shortest frame with a number.
pub const SHORTEST: usize = HEADER + 8;
/// The latency of one in so many frames is measured.
const SAMPLED: u64 = 64;
/// Sampled frames on their way, at most.
const MARKS: usize = 1024;
/// Most latencies that are kept.
const MOST_LATENCIES: usize = 1 << 20;
/// Time without a frame after which those on their way are lost.
const LOST_AFTER: Duration = Duration::from_millis(20);

/// Result of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that were due by the offered load, but not accepted by the sender's queue.
    pub refused: u64,
    /// Frames that arrived.
    pub received: u64,
    /// Frames that were sent, but did not arrive.
    pub lost: u64,
    /// Frames with another length or content than was sent, or a number that has already arrived.
    pub damaged: u64,
}

impl Flow {
    /// Adds another direction.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.received += other.received;
        self.lost += other.lost;
        self.damaged += other.damaged;
    }
}

/// Writes frame `number` from station `from` to station `to`.
pub fn fill(frame: &mut [u8], to: u8, from: u8, number: u64) {
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    frame[12..14].copy_from_slice(&TYPE);
    let (words, rest) = frame[HEADER..].as_chunks_mut::<8>();
    for word in words {
        *word = number.to_le_bytes();
    }
    let last = number.to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// Returns the number of a frame; `None` if it is damaged.
fn number(frame: &[u8], size: usize) -> Option<u64> {
    if frame.len() != size || frame[12..14] != TYPE {
        return None;
    }
    let (words, rest) = frame[HEADER..].as_chunks::<8>();
    let (first, others) = words.split_first()?;
    let is_whole = others.iter().all(|word| word == first) && *rest == first[..rest.len()];
    is_whole.then(|| u64::from_le_bytes(*first))
}

/// Returns the number of frames that are due after this time: the first one at once.
fn frames_due(time: Duration, rate: f64) -> u64 {
    (time.as_secs_f64() * rate) as u64 + 1
}

/// The offered load of a direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// As much as arrives: no more frames are on their way than a queue holds.
    Maximum,
    /// Frames in a second, whatever arrives.
    Rate(f64),
}

/// Senders and receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The first endpoint to the second one.
    One,
    /// Both to each other.
    Both,
    /// The first one to the forwarder: the second one receives nothing.
    Half,
}

/// The frames of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frames {
    /// Bytes from the destination address, without checksum.
    pub size: usize,
    /// Senders and receivers.
    pub direction: Direction,
    /// The offered load of each direction.
    pub load: Load,
    /// Most frames on their way, with the maximum load.
    pub window: u16,
    /// Pairs of queues of each endpoint, by which batches are sent in turn.
    pub pairs: usize,
    /// Last byte of the first endpoint's address; the second one has the next.
    pub station: u8,
}

/// Position of the pair of queues in the number of a frame, whose lower bits count the frames of that pair.
const PAIR_SHIFT: u32 = 56;

/// The frames of one pair of queues, which arrive in the order of their numbers.
struct Sequence {
    /// Number of the first frame of this run.
    first: u64,
    /// Number of the next frame to send.
    next: u64,
    /// Number after that of the last frame that arrived, or was given up.
    settled: u64,
    /// Number after that of the last frame that was given up.
    given_up: u64,
    /// Times at which sampled frames were due, in nanoseconds.
    marks: Box<[u64; MARKS]>,
}

impl Sequence {
    fn new() -> Self {
        Self {
            first: 0,
            next: 0,
            settled: 0,
            given_up: 0,
            marks: Box::new([0; MARKS]),
        }
    }

    /// Returns the number of frames on their way.
    fn on_their_way(&self) -> u64 {
        self.next - self.settled
    }
}

/// One direction.
pub(super) struct Stream {
    from: u8,
    to: u8,
    size: usize,
    load: Load,
    /// Most frames on their way, with the maximum load.
    window: u64,
    /// The receiver reads nothing.
    is_half: bool,
    pub flow: Flow,
    /// By the pair of queues.
    sequences: Vec<Sequence>,
    /// The pair that sends next.
    turn: usize,
    /// Received frames at a time.
    progress: (u64, Instant),
    started: Instant,
    /// From the time at which a frame was due until it arrived, in nanoseconds.
    pub latencies: Vec<u64>,
}

impl Stream {
    pub fn new([from, to]: [u8; 2], frames: &Frames) -> Self {
        let now = Instant::now();
        Self {
            from,
            to,
            size: frames.size.max(SHORTEST),
            load: frames.load,
            window: frames.window.into(),
            is_half: frames.direction == Direction::Half,
            flow: Flow::default(),
            sequences: (0..frames.pairs.max(1)).map(|_| Sequence::new()).collect(),
            turn: 0,
            progress: (0, now),
            started: now,
            latencies: Vec::new(),
        }
    }

    /// Begins a run. Frames of earlier ones are ignored.
    pub fn begin(&mut self, started: Instant) {
        self.flow = Flow::default();
        for sequence in &mut self.sequences {
            sequence.first = sequence.next;
            sequence.settled = sequence.next;
        }
        self.started = started;
        self.progress = (0, started);
        self.latencies.clear();
    }

    fn on_their_way(&self) -> u64 {
        self.sequences.iter().map(Sequence::on_their_way).sum()
    }

    /// Sends what is due.
    #[inline]
    pub fn send(&mut self, sender: &mut impl Endpoint) {
        let (most, due) = match self.load {
            Load::Maximum => {
                let on_their_way = if self.is_half {
                    sender.unsent() as u64
                } else {
                    self.on_their_way()
                };
                (self.window.saturating_sub(on_their_way), 0.0)
            }
            Load::Rate(rate) => {
                let offered = self.flow.sent + self.flow.refused;
                let due = frames_due(self.started.elapsed(), rate);
                (due.saturating_sub(offered), offered as f64 / rate)
            }
        };
        let most = most.min(BATCH as u64);
        if most == 0 {
            return;
        }
        let (to, from, size, pair) = (self.to, self.from, self.size, self.turn);
        let sequence = &mut self.sequences[pair];
        let (mut number, marks) = (sequence.next, &mut sequence.marks);
        let sent = sender.send(pair, most as usize, |frame| {
            if number % SAMPLED == 0 {
                marks[(number / SAMPLED) as usize % MARKS] = (due * 1e9) as u64;
            }
            fill(
                &mut frame[..size],
                to,
                from,
                (pair as u64) << PAIR_SHIFT | number,
            );
            number += 1;
            size
        }) as u64;
        sequence.next += sent;
        self.turn = (pair + 1) % self.sequences.len();
        self.flow.sent += sent;
        if matches!(self.load, Load::Rate(_)) {
            self.flow.refused += most - sent;
        }
    }

    /// Checks what has arrived.
    #[inline]
    pub fn receive(&mut self, receiver: &mut impl Endpoint) {
        if self.is_half {
            return;
        }
        let source = [2, 0, 0, 0, 0, self.from];
        receiver.receive(|frame| {
            if frame.get(6..12) != Some(&source) {
                // A kernel announces its addresses.
                return;
            }
            let number = number(frame, self.size).unwrap_or(u64::MAX);
            let (pair, number) = (number >> PAIR_SHIFT, number & ((1 << PAIR_SHIFT) - 1));
            let Some(sequence) = self.sequences.get_mut(pair as usize) else {
                self.flow.damaged += 1;
                return;
            };
            if number < sequence.first {
                return;
            }
            if number < sequence.given_up {
                self.flow.received += 1;
            } else if (sequence.settled..sequence.next).contains(&number) {
                self.flow.received += 1;
                sequence.settled = number + 1;
                if number % SAMPLED == 0 && self.latencies.len() < MOST_LATENCIES {
                    let due = sequence.marks[(number / SAMPLED) as usize % MARKS];
                    let now = self.started.elapsed().as_nanos() as u64;
                    self.latencies.push(now.saturating_sub(due));
                }
            } else {
                self.flow.damaged += 1;
            }
        });
    }

    /// Gives up frames on their way of which none has arrived for some time, so that others can be sent.
    pub fn give_up(&mut self, now: Instant) {
        let (received, since) = self.progress;
        if received != self.flow.received {
            self.progress = (self.flow.received, now);
        } else if now.duration_since(since) > LOST_AFTER {
            for sequence in &mut self.sequences {
                sequence.settled = sequence.next;
                sequence.given_up = sequence.next;
            }
            self.progress = (received, now);
        }
    }

    /// Returns the time in which frames on their way arrive, at most, after a switch has read the last one. With the maximum load
    /// none is lost where there are buffers, but a switch on a busy host may have no CPU.
    pub fn settling_time(&self) -> Duration {
        match self.load {
            Load::Maximum => Duration::from_secs(5),
            Load::Rate(_) => Duration::from_millis(200),
        }
    }

    /// Returns true if nothing is on its way. Frames that were given up may still arrive: the switch may have had no CPU.
    pub fn is_settled(&self) -> bool {
        let mut sequences = self.sequences.iter();
        let are_given_up = sequences.any(|it| it.given_up > it.first);
        let has_all = self.flow.received >= self.flow.sent;
        self.is_half || self.on_their_way() == 0 && (has_all || !are_given_up)
    }

    /// Ends a run: what is still on its way is lost.
    pub fn end(&mut self, sender: &mut impl Endpoint) {
        if self.is_half {
            self.flow.received = self.flow.sent.saturating_sub(sender.unsent() as u64);
        }
        self.flow.lost = self.flow.sent.saturating_sub(self.flow.received);
        for sequence in &mut self.sequences {
            sequence.settled = sequence.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_due_at_the_beginning_of_its_interval() {
        let after = |ms| frames_due(Duration::from_millis(ms), 200.0);
        assert_eq!([0, 4, 5, 9, 10].map(after), [1, 1, 2, 2, 3]);
    }
}
