//! Endpoints: the places where frames are sent and received.

use super::{Peer, BATCH};
use std::io;

/// Longest frame that is received.
pub const LONGEST: usize = 2048;

/// An endpoint, with an interface in batches.
pub trait Endpoint {
    /// Sends up to `most` frames by a pair of queues, if it has several. `fill` writes a frame and returns its length. Returns the
    /// number of frames that were accepted; `fill` may have been called for more.
    fn send(&mut self, pair: usize, most: usize, fill: impl FnMut(&mut [u8]) -> usize) -> usize;

    /// Shows the frames that have arrived.
    fn receive(&mut self, visit: impl FnMut(&[u8]));

    /// Returns the number of frames that were accepted, but not taken yet.
    fn unsent(&mut self) -> usize {
        0
    }

    /// Returns the notifications that were sent, and those that came.
    fn notifications(&self) -> [u64; 2] {
        [0; 2]
    }
}

impl Endpoint for Peer {
    #[inline]
    fn send(&mut self, pair: usize, most: usize, fill: impl FnMut(&mut [u8]) -> usize) -> usize {
        self.send_by(pair, most, fill)
    }

    #[inline]
    fn receive(&mut self, visit: impl FnMut(&[u8])) {
        Self::receive(self, visit);
    }

    fn unsent(&mut self) -> usize {
        Self::unsent(self)
    }

    fn notifications(&self) -> [u64; 2] {
        Self::notifications(self)
    }
}

/// Sends frames one by one.
pub(super) fn send_each(
    most: usize,
    mut fill: impl FnMut(&mut [u8]) -> usize,
    mut write: impl FnMut(&[u8]) -> io::Result<usize>,
) -> usize {
    let mut frame = [0; LONGEST];
    let mut is_accepted = |_: &usize| {
        let length = fill(&mut frame);
        write(&frame[..length]).is_ok()
    };
    (0..most).take_while(|index| is_accepted(index)).count()
}

/// Receives a batch of frames one by one.
pub(super) fn receive_each(
    mut visit: impl FnMut(&[u8]),
    mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
) {
    let mut frame = [0; LONGEST];
    for _ in 0..BATCH {
        match read(&mut frame) {
            Ok(length) => visit(&frame[..length]),
            Err(_) => break,
        }
    }
}
