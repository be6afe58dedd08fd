//! What a debugger traces, taken out of all that its machine says: it speaks on the
//! stream on which the machine's guest speaks, but says where a trace begins and ends.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Who is told what a machine with a debugger executes between marks.
#[derive(Clone)]
pub struct Trace(Arc<Mutex<dyn Write + Send>>);

impl Trace {
    /// What is traced goes to `to`, in pieces.
    pub fn new(to: Arc<Mutex<dyn Write + Send>>) -> Self {
        Self(to)
    }

    fn hear(&self, bytes: &[u8]) -> io::Result<()> {
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(bytes)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}

/// What Bochs says when its debugger begins to trace, and when it ends.
const BEGINS: &[u8] = b"Tracing enabled for CPU0\n";
const ENDS: &[u8] = b"Tracing disabled for CPU0\n";

/// Tells what is traced from what is not.
#[derive(Debug)]
pub struct Sieve {
    trace: Trace,
    tracing: bool,
    /// What may be the beginning of [`BEGINS`] or [`ENDS`].
    held: Vec<u8>,
}

impl Sieve {
    /// Gives what is traced to `trace`.
    pub fn of(trace: Trace) -> Self {
        Self {
            trace,
            tracing: false,
            held: Vec::new(),
        }
    }

    /// What of the next piece of the stream is no trace. The last bytes of one may come
    /// with the next.
    ///
    /// # Errors
    /// Nobody takes the trace.
    pub fn sift(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = std::mem::take(&mut self.held);
        all.extend(bytes);
        let mut rest = all.as_slice();
        let mut kept = Vec::new();
        loop {
            let word = if self.tracing { ENDS } else { BEGINS };
            let found = rest.windows(word.len()).position(|bytes| bytes == word);
            let until = found.unwrap_or_else(|| rest.len() - begun(rest, word));
            match self.tracing {
                true => self.trace.hear(&rest[..until])?,
                false => kept.extend(&rest[..until]),
            }
            rest = &rest[until..];
            if found.is_none() {
                self.held = rest.to_vec();
                return Ok(kept);
            }
            rest = &rest[word.len()..];
            self.tracing = !self.tracing;
        }
    }
}

/// How many bytes at the end of `bytes` may be the beginning of `word`.
fn begun(bytes: &[u8], word: &[u8]) -> usize {
    let most = bytes.len().min(word.len() - 1);
    let lengths = (1..=most).rev();
    let mut fitting = lengths.filter(|length| bytes.ends_with(&word[..*length]));
    fitting.next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_taken_out_wherever_pieces_end() {
        let said = b"Tracing\nTracing enabled for CPU0\n(0).[1]\nTracing \nTracing disabled for \
                     CPU0\nguestTracing enabled for CPU0\n(0).[2]\n";
        for piece in 1..said.len() {
            let heard = Arc::new(Mutex::new(Vec::new()));
            let mut sieve = Sieve::of(Trace::new(heard.clone()));
            let mut kept = Vec::new();
            for bytes in said.chunks(piece) {
                kept.extend(sieve.sift(bytes).unwrap());
            }
            assert_eq!(kept, b"Tracing\nguest");
            assert_eq!(*heard.lock().unwrap(), b"(0).[1]\nTracing \n(0).[2]\n");
        }
    }
}
