//! Console input on its way to the guest.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Capacity; further input stays in the pipe.
const CAPACITY: usize = 4096;

/// A bounded buffer of input.
#[derive(Debug, Default)]
pub struct InputBuffer {
    bytes: Mutex<VecDeque<u8>>,
}

impl InputBuffer {
    /// Returns the free space.
    pub fn room(&self) -> usize {
        CAPACITY - self.lock().len()
    }

    /// Appends bytes, as many as fit.
    pub fn put(&self, bytes: &[u8]) {
        let mut kept = self.lock();
        let room = CAPACITY - kept.len();
        kept.extend(&bytes[..bytes.len().min(room)]);
    }

    /// Returns the next byte, and whether the buffer was full.
    pub fn get(&self) -> Option<(u8, bool)> {
        let mut kept = self.lock();
        let was_full = kept.len() == CAPACITY;
        kept.pop_front().map(|byte| (byte, was_full))
    }

    /// Reads bytes; returns their number.
    pub fn get_all(&self, into: &mut [u8]) -> usize {
        let mut kept = self.lock();
        let count = kept.len().min(into.len());
        for (place, byte) in into.iter_mut().zip(kept.drain(..count)) {
            *place = byte;
        }
        count
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_buffer_rejects_bytes_and_reports_room() {
        let input_buffer = InputBuffer::default();
        assert_eq!(input_buffer.get(), None);
        input_buffer.put(&[7; CAPACITY + 1]);
        assert_eq!(input_buffer.room(), 0);
        assert_eq!(input_buffer.get(), Some((7, true)));
        assert_eq!(input_buffer.get(), Some((7, false)));
        let mut bytes = [0; CAPACITY];
        assert_eq!(input_buffer.get_all(&mut bytes), CAPACITY - 2);
        assert_eq!(input_buffer.room(), CAPACITY);
    }
}
