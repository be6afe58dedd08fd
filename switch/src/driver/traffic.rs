//! Frames from one peer to another, numbered and checked.

use super::{Peer, PeerError, Setup};
use crate::frame::HEADER;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// Type of the frames: for local experiments (IEEE 802, 9.2).
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Shortest frame with a number.
pub const SHORTEST: usize = HEADER + 8;
/// Frames that are sent at a time.
const BATCH: usize = 64;

/// Result of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that arrived.
    pub received: u64,
    /// Numbers that were left out.
    pub lost: u64,
    /// Frames with another length or content than was sent, or a number that has already arrived.
    pub damaged: u64,
}

impl Flow {
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
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

/// One direction.
struct Stream {
    from: u8,
    to: u8,
    size: usize,
    /// Most frames on their way.
    window: u64,
    flow: Flow,
    next: u64,
}

impl Stream {
    fn send(&mut self, peer: &mut Peer) {
        let on_their_way = self.flow.sent - self.flow.received - self.flow.lost;
        let most = BATCH.min(self.window.saturating_sub(on_their_way) as usize);
        let (to, from, size) = (self.to, self.from, self.size);
        let mut number = self.flow.sent;
        peer.send(most, |frame| {
            fill(&mut frame[..size], to, from, number);
            number += 1;
            size
        });
        self.flow.sent = number;
    }

    fn receive(&mut self, peer: &mut Peer) {
        let (size, flow, next) = (self.size, &mut self.flow, &mut self.next);
        peer.receive(|frame| match number(frame, size) {
            Some(number) if number >= *next => {
                flow.lost += number - *next;
                flow.received += 1;
                *next = number + 1;
            }
            _ => flow.damaged += 1,
        });
    }
}

/// Traffic between two ports.
pub struct Traffic {
    peers: [Peer; 2],
    streams: Vec<Stream>,
}

impl Traffic {
    /// Connects two peers, which are `first_station` and the next one, and lets the switch learn their addresses. `size` counts from the destination address, without
    /// checksum.
    ///
    /// # Errors
    /// The switch is not there, or refuses.
    pub fn connect(
        paths: [&Path; 2],
        setup: Setup,
        size: usize,
        both: bool,
        first_station: u8,
    ) -> Result<Self, PeerError> {
        let stations = [first_station, first_station.wrapping_add(1)];
        let [first, second] = paths;
        let mut peers = [Peer::connect(first, setup)?, Peer::connect(second, setup)?];
        for (peer, own) in peers.iter_mut().zip(stations) {
            // The address of the bridge group: learnt, not forwarded.
            peer.send(1, |frame| {
                fill(&mut frame[..SHORTEST], 0, own, 0);
                frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0]);
                SHORTEST
            });
        }
        let deadline = Instant::now() + Duration::from_secs(1);
        while peers.iter_mut().any(|peer| peer.unsent() > 0) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let stream = |from, to| Stream {
            from,
            to,
            size: size.max(SHORTEST),
            window: setup.size.into(),
            flow: Flow::default(),
            next: 0,
        };
        let [one, two] = stations;
        let mut streams = vec![stream(one, two)];
        streams.extend(both.then(|| stream(two, one)));
        Ok(Self { peers, streams })
    }

    /// Sends and receives for a time. Returns the sum of both directions, of this time alone, and the time in seconds.
    pub fn run(&mut self, time: Duration) -> (Flow, f64) {
        for stream in &mut self.streams {
            stream.flow = Flow::default();
            stream.next = 0;
        }
        let started = Instant::now();
        let one = self.streams[0].from;
        let [first, second] = &mut self.peers;
        loop {
            for _ in 0..256 {
                for stream in &mut self.streams {
                    let (sender, receiver) = match stream.from == one {
                        true => (&mut *first, &mut *second),
                        false => (&mut *second, &mut *first),
                    };
                    stream.send(sender);
                    stream.receive(receiver);
                }
            }
            if started.elapsed() >= time {
                break;
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        self.settle();
        let mut sum = Flow::default();
        for stream in &self.streams {
            sum.add(&stream.flow);
        }
        (sum, seconds)
    }

    /// Receives what is on its way.
    fn settle(&mut self) {
        let one = self.streams[0].from;
        let [first, second] = &mut self.peers;
        let deadline = Instant::now() + Duration::from_millis(200);
        for stream in &mut self.streams {
            let receiver = if stream.from == one {
                &mut *second
            } else {
                &mut *first
            };
            while stream.flow.sent > stream.flow.received + stream.flow.lost
                && Instant::now() < deadline
            {
                stream.receive(receiver);
            }
            // The last ones have no successor that shows the loss.
            stream.flow.lost = stream.flow.sent - stream.flow.received;
        }
    }
}
