//! Diverts a part of a process's standard output, such as a debugger's trace, to a writer.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Diverts output from one delimiter to another, with both.
#[derive(Clone)]
pub struct Diversion {
    /// Delimiter at the begin of diverted output.
    pub begin: &'static [u8],
    /// Delimiter at its end.
    pub end: &'static [u8],
    /// Destination.
    pub to: Arc<Mutex<dyn Write + Send>>,
}

impl fmt::Debug for Diversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diversion").finish_non_exhaustive()
    }
}

/// A diversion at work on one stream.
pub struct Filter {
    diversion: Diversion,
    diverting: bool,
    /// Possible start of the next delimiter.
    held: Vec<u8>,
}

impl Filter {
    /// Starts outside diverted output.
    pub fn new(diversion: Diversion) -> Self {
        Self {
            diversion,
            diverting: false,
            held: Vec::new(),
        }
    }

    /// Returns the part of the next bytes that is not diverted. A possible start of a delimiter is
    /// held back until more bytes arrive.
    ///
    /// # Errors
    /// The destination cannot be written.
    pub fn filter(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = std::mem::take(&mut self.held);
        all.extend(bytes);
        let mut rest = all.as_slice();
        let mut kept = Vec::new();
        loop {
            let delimiter = if self.diverting {
                self.diversion.end
            } else {
                self.diversion.begin
            };
            let found = rest
                .windows(delimiter.len())
                .position(|bytes| bytes == delimiter);
            let until = found.unwrap_or_else(|| rest.len() - partial_match(rest, delimiter));
            if self.diverting {
                self.write(&rest[..until])?
            } else {
                kept.extend(&rest[..until])
            }
            rest = &rest[until..];
            if found.is_none() {
                self.held = rest.to_vec();
                return Ok(kept);
            }
            self.write(delimiter)?;
            rest = &rest[delimiter.len()..];
            self.diverting = !self.diverting;
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut to = self
            .diversion
            .to
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        to.write_all(bytes)
    }
}

/// Returns the length of the longest suffix of `bytes` that is a proper prefix of `delimiter`.
fn partial_match(bytes: &[u8], delimiter: &[u8]) -> usize {
    let longest = bytes.len().min(delimiter.len() - 1);
    let mut lengths = (1..=longest).rev();
    lengths
        .find(|length| bytes.ends_with(&delimiter[..*length]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_diverted_wherever_reads_split_delimiters() {
        let output =
            b"Tracing\nTracing on\n(0).[1]\nTracing \nTracing off\nguestTracing on\n(0).[2]\n";
        for size in 1..output.len() {
            let diverted = Arc::new(Mutex::new(Vec::new()));
            let mut filter = Filter::new(Diversion {
                begin: b"Tracing on\n",
                end: b"Tracing off\n",
                to: diverted.clone(),
            });
            let mut kept = Vec::new();
            for bytes in output.chunks(size) {
                kept.extend(filter.filter(bytes).unwrap());
            }
            assert_eq!(kept, b"Tracing\nguest");
            let expected = b"Tracing on\n(0).[1]\nTracing \nTracing off\nTracing on\n(0).[2]\n";
            assert_eq!(*diverted.lock().unwrap(), expected);
        }
    }
}
