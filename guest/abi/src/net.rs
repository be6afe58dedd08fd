//! Network of workload `net`: a peer on the other side of the link, and its requests.
//!
//! Over TCP the guest sends requests of one byte in one connection. A byte below [`SEND`] is a ping: the peer answers with its
//! complement. After [`SEND`] follow [`BYTES`] of the pattern, and the peer answers with [`RIGHT`] or [`WRONG`]. After
//! [`RECEIVE`] the peer sends [`BYTES`] of the pattern.
//!
//! The same requests go over a stream of vsock (virtio 1.2, section 5.10).
//!
//! Over UDP a datagram of one byte is a ping, too. Any other has a numbered frame as its content, which the peer checks and
//! acknowledges as [`packet`] defines.

use crate::operation::{Op, OpSet};
use crate::packet;
use crate::workload::Workload;

/// IPv4 addresses of the peer and of the guest: TEST-NET-1, which no network uses (RFC 5737, section 3).
pub const PEER: [u8; 4] = [192, 0, 2, 1];
/// See [`PEER`].
pub const GUEST: [u8; 4] = [192, 0, 2, 2];
/// Length of the prefix of their network.
pub const PREFIX: u8 = 24;
/// Port of the peer, for TCP, UDP and vsock: the first dynamic one (RFC 6335, section 6).
pub const PORT: u16 = 49152;
/// Address of the guest's card, locally administered (IEEE 802), so that its frames are the same on every tap.
pub const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 2];

/// Bytes of a stream.
pub const BYTES: usize = 256 << 10;

/// Request: the guest sends a stream.
pub const SEND: u8 = 0xfe;
/// Request: the peer sends a stream.
pub const RECEIVE: u8 = 0xff;
/// Answer: the stream had the right content.
pub const RIGHT: u8 = 1;
/// Answer: the stream had wrong content.
pub const WRONG: u8 = 0;

/// Period of the pattern: a prime, so that a segment that is lost or repeated shifts it.
const PERIOD: usize = 4093;
/// Maximum length of a part of the pattern.
pub const MAX_PART: usize = 8 << 10;

/// Content of a stream.
pub struct Pattern([u8; PERIOD + MAX_PART]);

impl Pattern {
    /// Returns the pattern.
    pub const fn new() -> Self {
        let mut bytes = [0; PERIOD + MAX_PART];
        let mut index = 0;
        while index < bytes.len() {
            // Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4).
            let hash = ((index % PERIOD) as u32).wrapping_mul(0x9e37_79b9);
            bytes[index] = (hash >> 24) as u8;
            index += 1;
        }
        Self(bytes)
    }

    /// Returns the content of a stream from position `at`, at most `length` and [`MAX_PART`] bytes, up to its
    /// end.
    pub fn part(&self, at: usize, length: usize) -> &[u8] {
        let length = length.min(MAX_PART).min(BYTES.saturating_sub(at));
        &self.0[at % PERIOD..][..length]
    }

    /// Returns true if `bytes` are the content of a stream from position `at`.
    pub fn holds(&self, mut at: usize, bytes: &[u8]) -> bool {
        bytes.chunks(MAX_PART).all(|chunk| {
            let is_right = self.part(at, chunk.len()) == chunk;
            at += chunk.len();
            is_right
        })
    }
}

impl Default for Pattern {
    fn default() -> Self {
        Self::new()
    }
}

/// Connection between guest and peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// TCP over IPv4.
    Tcp,
    /// A stream socket of vsock.
    Vsock,
}

/// Exchange between guest and peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// A ping in a connection.
    Ping(Stream),
    /// A ping over UDP.
    UdpPing,
    /// A stream from the guest.
    Send(Stream),
    /// A stream from the peer.
    Receive(Stream),
    /// A stream from the guest over TCP whose bytes are in a file.
    SendFile,
    /// [`packet::BURST`] datagrams from the guest, each with a numbered frame of this many bytes.
    Datagrams(usize),
}

impl Exchange {
    /// All exchanges with their operations.
    pub const ALL: [(Exchange, Op); 10] = [
        (Self::Ping(Stream::Tcp), Op::TcpPing),
        (Self::UdpPing, Op::UdpPing),
        (Self::Send(Stream::Tcp), Op::TcpSend),
        (Self::Receive(Stream::Tcp), Op::TcpReceive),
        (Self::SendFile, Op::SendFile),
        (Self::Datagrams(64), Op::Udp64),
        (Self::Datagrams(1472), Op::Udp1472),
        (Self::Ping(Stream::Vsock), Op::VsockPing),
        (Self::Send(Stream::Vsock), Op::VsockSend),
        (Self::Receive(Stream::Vsock), Op::VsockReceive),
    ];

    /// Returns whether it needs a connection over vsock, not a network.
    pub const fn is_over_vsock(self) -> bool {
        matches!(
            self,
            Self::Ping(Stream::Vsock) | Self::Send(Stream::Vsock) | Self::Receive(Stream::Vsock)
        )
    }
}

/// State of the peer in a connection: what it has received, and what it has to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// It waits for a request.
    #[default]
    Waiting,
    /// It receives a stream.
    Receiving {
        /// Bytes received.
        at: usize,
        /// All of them were right.
        is_right: bool,
    },
    /// It sends a byte.
    Answering([u8; 1]),
    /// It sends a stream.
    Sending {
        /// Bytes sent.
        at: usize,
    },
}

impl Connection {
    /// Takes received bytes, which are not empty. Returns how many: none if others are to be sent first.
    pub fn take(&mut self, pattern: &Pattern, bytes: &[u8]) -> usize {
        let (taken, next) = match *self {
            Self::Waiting => (1, Self::requested(bytes[0])),
            Self::Receiving { at, is_right } => {
                let part = &bytes[..bytes.len().min(BYTES - at)];
                let is_right = is_right && pattern.holds(at, part);
                (part.len(), Self::received(at + part.len(), is_right))
            }
            sending => (0, sending),
        };
        *self = next;
        taken
    }

    fn requested(request: u8) -> Self {
        match request {
            SEND => Self::Receiving {
                at: 0,
                is_right: true,
            },
            RECEIVE => Self::Sending { at: 0 },
            ping => Self::Answering([!ping]),
        }
    }

    fn received(at: usize, is_right: bool) -> Self {
        if at < BYTES {
            Self::Receiving { at, is_right }
        } else {
            Self::Answering([if is_right { RIGHT } else { WRONG }])
        }
    }

    /// Returns the next bytes to be sent, none if it waits for others.
    pub fn outgoing<'a>(&'a self, pattern: &'a Pattern) -> &'a [u8] {
        match self {
            Self::Answering(answer) => answer,
            Self::Sending { at } => pattern.part(*at, usize::MAX),
            _ => &[],
        }
    }

    /// Notes that the first `count` of them were sent.
    pub fn sent(&mut self, count: usize) {
        *self = match *self {
            Self::Sending { at } if at + count < BYTES => Self::Sending { at: at + count },
            Self::Answering(_) if count == 0 => *self,
            _ => Self::Waiting,
        };
    }
}

/// Returns the byte of ping `number`.
pub fn ping(number: u64) -> u8 {
    (number % u64::from(SEND)) as u8
}

/// Returns the operations of workload `net` that need a peer in a network.
pub fn operations() -> OpSet {
    Workload::Net.set() - packet::operations() - vsock_operations()
}

/// Returns those that need a peer over vsock.
pub fn vsock_operations() -> OpSet {
    let over_vsock = Exchange::ALL
        .into_iter()
        .filter(|(it, _)| it.is_over_vsock());
    over_vsock.map(|(_, op)| op).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn pattern_detects_changed_shifted_and_surplus_bytes() {
        let pattern = Pattern::new();
        let mut stream = Vec::new();
        while stream.len() < BYTES {
            stream.extend_from_slice(pattern.part(stream.len(), usize::MAX));
        }
        assert_eq!(stream.len(), BYTES);
        assert!(pattern.holds(0, &stream));
        for shift in [1, 64, 1448, 1460, 2920, 4096] {
            assert!(!pattern.holds(0, &stream[shift..]), "{shift}");
        }
        stream[BYTES - 1] ^= 1;
        assert!(!pattern.holds(0, &stream));
        assert!(!pattern.holds(BYTES, &[0]), "beyond the end");
    }

    #[test]
    fn exchanges_are_the_operations_of_the_workload() {
        let exchanges = Exchange::ALL.into_iter().map(|(_, op)| op);
        let ops: Vec<_> = exchanges
            .chain(packet::OPERATIONS.map(|(op, _)| op))
            .collect();
        assert_eq!(ops, Workload::Net.operations().collect::<Vec<_>>());
        assert!((0..1000).all(|number| ping(number) < SEND));
    }
}
