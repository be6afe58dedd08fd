//! Requests of interrupts from any thread.

use super::{Requests, VECTORS};
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};

/// Requested vectors, a bit each.
#[derive(Default)]
pub struct RequestBits([AtomicU32; VECTORS / 32]);

impl RequestBits {
    /// Requests an interrupt. Async-signal-safe.
    pub fn request(&self, vector: u8) {
        self.0[usize::from(vector) / 32].fetch_or(1 << (vector % 32), Ordering::SeqCst);
    }
}

/// The requests of an APIC that shares them: `T` points at what has the bits.
pub struct SharedRequests<T>(pub T);

impl<T: Deref<Target: AsRef<RequestBits>>> Requests for SharedRequests<T> {
    fn request(&mut self, vector: u8) {
        self.0.as_ref().request(vector);
    }

    fn clear(&mut self, vector: u8) {
        let RequestBits(words) = self.0.as_ref();
        words[usize::from(vector) / 32].fetch_and(!(1 << (vector % 32)), Ordering::SeqCst);
    }

    fn word(&self, index: usize) -> u32 {
        let RequestBits(words) = self.0.as_ref();
        words[index].load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lines(RequestBits);

    impl AsRef<RequestBits> for Lines {
        fn as_ref(&self) -> &RequestBits {
            &self.0
        }
    }

    #[test]
    fn requests_of_others_are_those_of_the_apic() {
        let lines = Lines(RequestBits::default());
        let mut requests = SharedRequests(&lines);
        lines.0.request(0x41);
        requests.request(0x40);
        assert_eq!((requests.word(2), requests.word(1)), (0b11, 0));
        requests.clear(0x41);
        assert_eq!(requests.word(2), 1);
    }
}
