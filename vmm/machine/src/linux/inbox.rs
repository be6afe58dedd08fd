//! What was typed and not yet heard.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How much is kept for a guest that does not listen; the rest waits outside.
const MOST: usize = 4096;

/// Bytes on their way to the guest's console.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Mutex<VecDeque<u8>>,
}

impl Inbox {
    /// How many more fit.
    pub fn room(&self) -> usize {
        MOST - self.lock().len()
    }

    /// Takes bytes, as many as fit.
    pub fn put(&self, bytes: &[u8]) {
        let mut kept = self.lock();
        let room = MOST - kept.len();
        kept.extend(&bytes[..bytes.len().min(room)]);
    }

    /// The next one, and whether there is room again where there was none.
    pub fn get(&self) -> Option<(u8, bool)> {
        let mut kept = self.lock();
        let was_full = kept.len() == MOST;
        kept.pop_front().map(|byte| (byte, was_full))
    }

    /// The next ones, as many as there are and fit.
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
    fn what_does_not_fit_waits_and_room_is_told() {
        let inbox = Inbox::default();
        assert_eq!(inbox.get(), None);
        inbox.put(&[7; MOST + 1]);
        assert_eq!(inbox.room(), 0);
        assert_eq!(inbox.get(), Some((7, true)));
        assert_eq!(inbox.get(), Some((7, false)));
        let mut bytes = [0; MOST];
        assert_eq!(inbox.get_all(&mut bytes), MOST - 2);
        assert_eq!(inbox.room(), MOST);
    }
}
