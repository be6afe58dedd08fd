//! A guest whose driver writes invalid queues as fast as it can, and what that costs the guests on other ports.

use super::endpoint::Endpoint;
use super::split::SplitDriver;
use super::traffic::Traffic;
use super::{Peer, PeerError, Random};
use crate::net_header::NET_HEADER;
use serde::Serialize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Flags of a descriptor.
const NEXT: u16 = 1;
const INDIRECT: u16 = 4;

/// Frames that are sent between two turns of the others.
const BATCH: u16 = 32;

/// A driver resets its device so often, after the switch has stopped its port.
const REVIVE: Duration = Duration::from_millis(5);

/// Batches between two invalid queues, in the mean.
const VALID: u64 = 500;

/// Ways to make a queue invalid.
const ATTACKS: u64 = 6;

/// A guest that attacks.
pub struct Hostile {
    peer: Peer,
    /// First byte of the transmit queue, which is a split one.
    queue: NonNull<u8>,
    size: u16,
    /// Position of the next frame.
    next: u16,
    random: Random,
    /// The queue is invalid, or the switch has read no frame, since then.
    stopped: Option<Instant>,
    is_invalid: bool,
    /// Invalid queues that were written.
    pub attacks: u64,
    /// Valid frames.
    pub frames: u64,
    /// The switch has the queue.
    is_started: bool,
}

impl Hostile {
    /// Takes over the transmit queue of a peer with split queues.
    ///
    /// # Errors
    /// The switch has gone.
    pub fn new(peer: Peer) -> Result<Self, PeerError> {
        let (queue, size) = peer.transmit_queue();
        let mut hostile = Self {
            peer,
            queue,
            size,
            next: 0,
            random: Random(0x9e37_79b9_7f4a_7c15),
            stopped: None,
            is_invalid: false,
            attacks: 0,
            frames: 0,
            is_started: true,
        };
        hostile.set_started(false)?;
        Ok(hostile)
    }

    /// Gives the queue to the switch, or takes it back.
    ///
    /// # Errors
    /// The switch has gone.
    pub fn set_started(&mut self, is_started: bool) -> Result<(), PeerError> {
        self.is_started = is_started;
        self.restart()
    }

    /// Writes a batch of frames, and sometimes an invalid queue behind it.
    ///
    /// # Errors
    /// The switch has gone.
    pub fn attack(&mut self) -> Result<(), PeerError> {
        if self.is_invalid || !self.has_room() {
            let stopped = *self.stopped.get_or_insert_with(Instant::now);
            if stopped.elapsed() < REVIVE {
                return Ok(());
            }
            self.restart()?;
        }
        (self.stopped, self.is_invalid) = (None, false);
        (0..BATCH).for_each(|_| self.send_frame());
        self.frames += u64::from(BATCH);
        if self.random.number().is_multiple_of(VALID) {
            self.invalidate();
            self.attacks += 1;
            self.is_invalid = true;
        }
        Ok(())
    }

    /// Returns whether the switch has read so much that another batch is valid. Without the switch there is always room.
    fn has_room(&self) -> bool {
        let [_, used, _] = SplitDriver::layout(self.size);
        let read = self.word(used + 2).load(Ordering::Acquire);
        !self.is_started || self.next.wrapping_sub(read) <= self.size - BATCH
    }

    /// Lets the switch continue at the position of the next frame.
    fn restart(&mut self) -> Result<(), PeerError> {
        self.publish(self.next);
        self.peer.restart_transmit(self.next, self.is_started)
    }

    fn describe(&self, index: u16, address: u64, length: u32, flags: u16, next: u16) {
        let at = 16 * usize::from(index % self.size);
        // SAFETY: the descriptor is in the table of the queue.
        unsafe {
            let at = self.queue.as_ptr().add(at);
            at.cast::<u64>().write_volatile(address);
            at.add(8).cast::<u32>().write_volatile(length);
            at.add(12).cast::<u16>().write_volatile(flags);
            at.add(14).cast::<u16>().write_volatile(next);
        }
    }

    fn word(&self, offset: u64) -> &AtomicU16 {
        // SAFETY: the word is in a ring, which is aligned and lives as long as the peer.
        unsafe { AtomicU16::from_ptr(self.queue.as_ptr().add(offset as usize).cast()) }
    }

    fn publish(&self, position: u16) {
        let [available, ..] = SplitDriver::layout(self.size);
        self.word(available + 2).store(position, Ordering::Release);
    }

    fn make_available(&mut self, index: u16) {
        let [available, ..] = SplitDriver::layout(self.size);
        let slot = u64::from(self.next % self.size);
        self.word(available + 4 + 2 * slot)
            .store(index, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
        self.publish(self.next);
    }

    /// Sends a frame from an invented address to the group of bridges, which is learnt and forwarded to none; its
    /// descriptor changes at once.
    fn send_frame(&mut self) {
        const LENGTH: u32 = 60 + NET_HEADER;
        let (index, random) = (self.next % self.size, self.random.number());
        let address = self.peer.transmit_buffer(index, |frame| {
            frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0]);
            frame[6..14].copy_from_slice(&random.to_le_bytes());
            frame[6] = 2;
        });
        self.describe(index, address, LENGTH, 0, 0);
        self.make_available(index);
        // It may be read before or after that; both are valid, and so is a length that changes.
        self.describe(index, address, LENGTH + (random % 900) as u32, 0, 0);
    }

    fn invalidate(&mut self) {
        let (index, random) = (self.next % self.size, self.random.number());
        let buffer = self.peer.transmit_buffer(index, |_| ());
        match random % ATTACKS {
            // A cycle of one descriptor, and an address and a length that are not in memory.
            0 => self.describe(index, buffer, 60, NEXT, index),
            1 => self.describe(index, random, 60, 0, 0),
            2 => self.describe(index, buffer, u32::MAX, 0, 0),
            // A table that is followed by a descriptor, and a descriptor that does not exist.
            3 => self.describe(index, buffer, 16, INDIRECT | NEXT, 0),
            4 => return self.make_available(self.size + random as u16 % self.size),
            // A position beyond the end.
            _ => return self.publish(self.next.wrapping_add(self.size + 1 + random as u16 % 1000)),
        }
        self.make_available(index);
    }
}

/// Rates of two guests beside a hostile one, and beside the same writes to memory that the switch does not read.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Median rate while the switch does not have the hostile queue.
    pub alone: f64,
    /// Median rate while it has.
    pub beside: f64,
    /// Median of the ratios of each pair.
    pub ratio: f64,
    /// Frames that were damaged.
    pub damaged: u64,
    /// Invalid queues that the switch had.
    pub attacks: u64,
    /// Frames that the hostile guest has sent.
    pub frames: u64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Compares the rates of `traffic` in pairs of this time each.
///
/// # Errors
/// The switch has gone.
pub fn compare<E: Endpoint>(
    traffic: &mut Traffic<E>,
    hostile: &mut Hostile,
    time: Duration,
    pairs: usize,
) -> Result<Comparison, PeerError> {
    let mut rates: [Vec<f64>; 2] = Default::default();
    let (mut damaged, mut counts) = (0, [0; 2]);
    for pair in 0..2 * pairs {
        // A B B A: what drifts is in both.
        let is_beside = pair % 4 == 1 || pair % 4 == 2;
        hostile.set_started(is_beside)?;
        (hostile.attacks, hostile.frames) = (0, 0);
        let mut end = Ok(());
        let outcome = traffic.run_beside(time, || {
            if end.is_ok() {
                end = hostile.attack();
            }
        });
        end?;
        damaged += outcome.flow.damaged;
        rates[usize::from(is_beside)].push(outcome.flow.received as f64 / outcome.seconds);
        if is_beside {
            counts[0] += hostile.attacks;
            counts[1] += hostile.frames;
        }
    }
    let ratios = rates[1]
        .iter()
        .zip(&rates[0])
        .map(|(beside, alone)| beside / alone);
    let ratio = median(ratios.collect());
    let [alone, beside] = rates.map(median);
    let [attacks, frames] = counts;
    Ok(Comparison {
        alone,
        beside,
        ratio,
        damaged,
        attacks,
        frames,
    })
}
