//! Traffic between two endpoints, by one thread.

use super::any_endpoint::AnyEndpoint;
use super::endpoint::Endpoint;
use super::stream::Stream;
use super::{Peer, PeerError, Setup};
use std::path::Path;
use std::time::{Duration, Instant};

pub use super::stream::{fill, Direction, Flow, Frames, Load, SHORTEST};

/// Time in which a switch that runs has read all frames.
const PATIENCE: Duration = Duration::from_secs(10);

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The sum of all directions.
    pub flow: Flow,
    /// Time in which frames were sent, in seconds.
    pub seconds: f64,
    /// From the time at which a frame was due until it arrived, in nanoseconds: one in 64 frames, sorted. With the maximum load
    /// a frame is due at once, and this means nothing.
    pub latencies: Vec<u64>,
    /// Longest time in which no frame arrived.
    pub longest_pause: Duration,
}

impl Outcome {
    /// Returns a percentile of the latency, in nanoseconds; `None` without frames.
    pub fn latency(&self, percent: f64) -> Option<u64> {
        let last = self.latencies.len().checked_sub(1)?;
        let index = (last as f64 * percent / 100.0).round() as usize;
        self.latencies.get(index).copied()
    }
}

/// Traffic between two endpoints.
pub struct Traffic<E = AnyEndpoint> {
    endpoints: [E; 2],
    streams: Vec<Stream>,
}

impl Traffic<Peer> {
    /// Connects to two ports of a switch, with frames both ways or one way, as many as arrive.
    ///
    /// # Errors
    /// The switch is not there, or refuses.
    pub fn connect(
        [first, second]: [&Path; 2],
        setup: Setup,
        size: usize,
        both: bool,
        station: u8,
    ) -> Result<Self, PeerError> {
        let frames = Frames {
            size,
            direction: if both {
                Direction::Both
            } else {
                Direction::One
            },
            load: Load::Maximum,
            window: setup.size,
            pairs: setup.pairs,
            station,
        };
        let peers = [Peer::connect(first, setup)?, Peer::connect(second, setup)?];
        Ok(Self::new(peers, frames))
    }
}

impl<E: Endpoint> Traffic<E> {
    /// Lets a switch between the endpoints learn their addresses.
    pub fn new(mut endpoints: [E; 2], frames: Frames) -> Self {
        let stations = [frames.station, frames.station.wrapping_add(1)];
        for (endpoint, own) in endpoints.iter_mut().zip(stations) {
            // The address of the bridge group: learnt, not forwarded.
            endpoint.send(0, 1, |frame| {
                fill(&mut frame[..SHORTEST], 0, own, 0);
                frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0]);
                SHORTEST
            });
        }
        let deadline = Instant::now() + Duration::from_secs(1);
        while endpoints.iter_mut().any(|it| it.unsent() > 0) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let [one, two] = stations;
        let mut streams = vec![Stream::new([one, two], &frames)];
        let is_both = frames.direction == Direction::Both;
        streams.extend(is_both.then(|| Stream::new([two, one], &frames)));
        Self { endpoints, streams }
    }

    /// Calls `step` with each stream, its sender and its receiver.
    #[inline(always)]
    fn each(&mut self, mut step: impl FnMut(&mut Stream, &mut E, &mut E)) {
        let [first, second] = &mut self.endpoints;
        if let Some(stream) = self.streams.first_mut() {
            step(stream, first, second);
        }
        if let Some(stream) = self.streams.get_mut(1) {
            step(stream, second, first);
        }
    }

    /// Sends and receives for a time.
    pub fn run(&mut self, time: Duration) -> Outcome {
        self.run_beside(time, || ())
    }

    /// The same, and calls `beside` between two batches.
    pub fn run_beside(&mut self, time: Duration, mut beside: impl FnMut()) -> Outcome {
        let started = Instant::now();
        self.each(|stream, _, _| stream.begin(started));
        let (mut received, mut since, mut longest_pause) = (0, started, Duration::ZERO);
        loop {
            for _ in 0..256 {
                self.each(|stream, sender, receiver| {
                    stream.send(sender);
                    stream.receive(receiver);
                });
                beside();
            }
            let now = Instant::now();
            longest_pause = longest_pause.max(now.duration_since(since));
            let count = self.streams.iter().map(|it| it.flow.received).sum();
            if count != std::mem::replace(&mut received, count) {
                since = now;
            }
            if now.duration_since(started) >= time {
                break;
            }
            self.each(|stream, _, _| stream.give_up(now));
        }
        let seconds = started.elapsed().as_secs_f64();
        self.settle();
        let mut outcome = Outcome {
            seconds,
            longest_pause,
            ..Outcome::default()
        };
        self.each(|stream, sender, _| {
            stream.end(sender);
            outcome.flow.add(&stream.flow);
            outcome.latencies.append(&mut stream.latencies);
        });
        outcome.latencies.sort_unstable();
        outcome
    }

    /// Receives what is on its way.
    fn settle(&mut self) {
        let start = Instant::now();
        let mut read = start;
        let settled = self.streams.iter().map(Stream::settling_time).max();
        let settled = settled.unwrap_or_default();
        while self.streams.iter().any(|stream| !stream.is_settled()) && read.elapsed() < settled {
            self.each(|stream, _, receiver| stream.receive(receiver));
            let is_unread = self.endpoints.iter_mut().any(|it| it.unsent() > 0);
            if is_unread && start.elapsed() < PATIENCE {
                read = Instant::now();
            }
        }
    }

    /// Returns the notifications that both endpoints have sent, and those that came.
    pub fn notifications(&self) -> [u64; 2] {
        let both = self.endpoints.each_ref().map(E::notifications);
        [0, 1].map(|index| both.iter().map(|it| it[index]).sum())
    }
}
