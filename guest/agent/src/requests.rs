//! Requests to the peer of workload `net` over a stream, see [`trapline_abi::net`].

use crate::peer::send;
use std::io::{self, Read, Write};
use trapline_abi::net::{ping, Exchange, Pattern, BYTES, RECEIVE, RIGHT, SEND};
use trapline_workloads::Reason;

/// Bytes of the buffer for a stream.
const BUFFER: usize = 64 << 10;

const WRONG_ANSWER: Reason = "the answer of the peer is not that to the request";
const WRONG_CONTENT: Reason = "the bytes received are not those that the peer sends";
const UNKNOWN: Reason = "this exchange needs another connection";

/// A connection to the peer.
pub struct Requests<S> {
    /// The stream.
    pub stream: S,
    /// Content of its streams of bytes.
    pub pattern: Pattern,
    buffer: Vec<u8>,
    pings: u64,
}

impl<S: Read + Write> Requests<S> {
    /// Returns the requests over a stream.
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            pattern: Pattern::new(),
            buffer: vec![0; BUFFER],
            pings: 0,
        }
    }

    /// Performs an exchange of this stream.
    ///
    /// # Errors
    /// The stream fails, or the peer received or sent wrong content.
    pub fn exchange(&mut self, exchange: Exchange) -> Result<(), Reason> {
        let byte = self.next_ping();
        let exchanged = match exchange {
            Exchange::Ping(_) => self.request(byte).map(|answer| check(answer == !byte)),
            Exchange::Send(_) => self.send().map(|answer| check(answer == RIGHT)),
            Exchange::Receive(_) => self.receive(),
            _ => return Err(UNKNOWN),
        };
        exchanged.unwrap_or(Err("the network fails"))
    }

    /// Returns the byte of the next ping.
    pub fn next_ping(&mut self) -> u8 {
        self.pings += 1;
        ping(self.pings)
    }

    /// Sends a request and returns the answer.
    fn request(&mut self, request: u8) -> io::Result<u8> {
        self.stream.write_all(&[request])?;
        self.answer()
    }

    /// Returns the answer to a request.
    ///
    /// # Errors
    /// The stream fails.
    pub fn answer(&mut self) -> io::Result<u8> {
        let mut answer = [0];
        self.stream.read_exact(&mut answer)?;
        Ok(answer[0])
    }

    fn send(&mut self) -> io::Result<u8> {
        self.stream.write_all(&[SEND])?;
        send(&mut self.stream, &self.pattern)?;
        self.answer()
    }

    fn receive(&mut self) -> io::Result<Result<(), Reason>> {
        self.stream.write_all(&[RECEIVE])?;
        let mut received = 0;
        while received < BYTES {
            let count = match self.stream.read(&mut self.buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => count,
            };
            if !self.pattern.holds(received, &self.buffer[..count]) {
                return Ok(Err(WRONG_CONTENT));
            }
            received += count;
        }
        Ok(Ok(()))
    }
}

/// Checks an answer.
///
/// # Errors
/// It is wrong.
pub fn check(is_right: bool) -> Result<(), Reason> {
    is_right.then_some(()).ok_or(WRONG_ANSWER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::answer_all;
    use std::os::unix::net::UnixStream;
    use trapline_abi::net::Stream;

    #[test]
    fn requests_are_answered_over_a_stream_socket() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut accepted = Some(theirs);
        let accept = move || accepted.take().ok_or(io::ErrorKind::NotConnected.into());
        std::thread::spawn(move || answer_all(accept));
        let mut requests = Requests::over(ours);
        for (exchange, _) in Exchange::ALL {
            let expected = match exchange.is_over_vsock() {
                true => Ok(()),
                false if exchange == Exchange::UdpPing => Err(UNKNOWN),
                false => continue,
            };
            assert_eq!(requests.exchange(exchange), expected, "{exchange:?}");
        }
    }

    #[test]
    fn wrong_answers_and_bytes_are_reported() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[0; BYTES / 8]).unwrap();
        let mut requests = Requests::over(ours);
        let ping = requests.exchange(Exchange::Ping(Stream::Vsock));
        assert_eq!(ping, Err(WRONG_ANSWER));
        let received = requests.exchange(Exchange::Receive(Stream::Vsock));
        assert_eq!(received, Err(WRONG_CONTENT));
    }
}
