//! A connected host program that has not sent its request.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Length of the longest request, `CONNECT 4294967295\n`.
const LONGEST: usize = 19;

/// Request of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerRequest {
    /// Incomplete line.
    Incomplete,
    /// Connect to this port.
    Connect(u32),
    /// Malformed, or closed.
    Malformed,
}

/// A caller.
pub struct Caller {
    stream: UnixStream,
    line: [u8; LONGEST],
    length: usize,
    connected: Instant,
}

impl AsRawFd for Caller {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl Caller {
    /// Creates a caller from a non-blocking stream.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            line: [0; LONGEST],
            length: 0,
            connected: Instant::now(),
        }
    }

    /// Returns the time since it was accepted.
    pub fn age(&self) -> Duration {
        self.connected.elapsed()
    }

    /// Returns the stream, positioned behind the request.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Reads the request line and no byte beyond it.
    pub fn read_request(&mut self) -> CallerRequest {
        while self.length < LONGEST {
            match self.stream.read(&mut self.line[self.length..=self.length]) {
                Ok(1) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return CallerRequest::Incomplete
                }
                _ => return CallerRequest::Malformed,
            }
            self.length += 1;
            if self.line[self.length - 1] == b'\n' {
                break;
            }
        }
        port_in(&self.line[..self.length]).map_or(CallerRequest::Malformed, CallerRequest::Connect)
    }
}

fn port_in(line: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let digits = text.strip_prefix("CONNECT ")?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn request_is_read_without_following_bytes() {
        let (mut far, near) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut caller = Caller::new(near);
        assert_eq!(caller.read_request(), CallerRequest::Incomplete);
        far.write_all(b"CONNECT 10").unwrap();
        assert_eq!(caller.read_request(), CallerRequest::Incomplete);
        far.write_all(b"24\nhello").unwrap();
        assert_eq!(caller.read_request(), CallerRequest::Connect(1024));
        let mut bytes = [0; 8];
        assert_eq!(caller.into_stream().read(&mut bytes).unwrap(), 5);
    }

    #[test]
    fn malformed_requests_are_rejected() {
        for words in [
            &b"\n"[..],
            b"connect 1\n",
            b"CONNECT\n",
            b"CONNECT \n",
            b"CONNECT +1\n",
            b"CONNECT 4294967296\n",
            b"CONNECT 00000000000000000000001",
            b"CONNECT \xff\n",
        ] {
            let (mut far, near) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            far.write_all(words).unwrap();
            assert_eq!(
                Caller::new(near).read_request(),
                CallerRequest::Malformed,
                "{words:?}"
            );
        }
        let (far, near) = UnixStream::pair().unwrap();
        drop(far);
        assert_eq!(Caller::new(near).read_request(), CallerRequest::Malformed);
    }
}
