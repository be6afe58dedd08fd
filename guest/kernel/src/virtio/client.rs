//! The exchanges of workload `net` with a peer, by the image's TCP/IP.

use super::card::Card;
use super::stack::{Memory, Stack, ACK_DELAY, REFUSED};
use super::transport::Access;
use smoltcp::socket::udp;
use smoltcp::wire::{IpEndpoint, Ipv4Address};
use trapline_abi::net::{ping, Exchange, Stream, BYTES, GUEST, PEER, PORT, RECEIVE, RIGHT, SEND};
use trapline_abi::packet::Frames;
use trapline_workloads::packets::{Link, Sender};
use trapline_workloads::Reason;

/// Port of the guest, for TCP and UDP.
const LOCAL_PORT: u16 = PORT + 1;

fn peer() -> IpEndpoint {
    IpEndpoint::new(Ipv4Address::from(PEER).into(), PORT)
}

const CLOSED: Reason = "the peer closed the connection";
const UNSUPPORTED: Reason =
    "the image has no file in memory while it has a network card, and no driver for vsock";
const WRONG_ANSWER: Reason = "the answer of the peer is not that to the request";
const WRONG_CONTENT: Reason = "the bytes received are not those that the peer sends";

/// A stack that is connected to the peer.
pub struct Client<A> {
    sender: Sender<Datagrams<A>>,
    pings: u64,
}

/// Datagrams to and from the peer.
struct Datagrams<A>(Stack<A>);

impl<A: Access> Link for Datagrams<A> {
    fn buffers(&self) -> u64 {
        self.0.card.buffers()
    }

    fn receive<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let datagram = self.0.udp().recv();
        datagram.ok().map(|(content, _)| read(content))
    }

    fn send(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let content = self.0.udp().send(length, peer());
        content.map(fill).is_ok()
    }

    fn notify(&mut self) {
        self.0.send();
        self.0.card.notify();
    }

    fn check(&mut self) -> Result<(), Reason> {
        self.0.card.check()
    }

    fn wait(&mut self) -> Result<(), Reason> {
        self.0.card.wait()?;
        self.0.poll()
    }

    fn quiesce(&mut self) -> Result<(), Reason> {
        self.0.card.quiesce()
    }
}

impl<A: Access> Client<A> {
    /// Connects to the peer.
    ///
    /// # Errors
    /// The card fails, or the peer refuses.
    pub fn connect(card: Card<A>, memory: &'static mut Memory) -> Result<Self, Reason> {
        let mut stack = Stack::new(card, memory, GUEST, LOCAL_PORT)?;
        stack.connect(peer(), LOCAL_PORT)?;
        let mut client = Self {
            sender: Sender::unopened(Datagrams(stack)),
            pings: 0,
        };
        client.until(|stack| {
            let socket = stack.tcp();
            match socket.may_send() {
                true => Ok(Some(())),
                false if socket.is_open() => Ok(None),
                false => Err("the peer refuses the connection"),
            }
        })?;
        client.stack().card.quiesce()?;
        Ok(client)
    }

    #[inline(always)]
    fn stack(&mut self) -> &mut Stack<A> {
        &mut self.sender.link().0
    }

    /// Handles frames until `step` returns a result.
    #[inline(always)]
    fn until<T>(
        &mut self,
        mut step: impl FnMut(&mut Stack<A>) -> Result<Option<T>, Reason>,
    ) -> Result<T, Reason> {
        loop {
            let stack = self.stack();
            stack.poll()?;
            if let Some(result) = step(stack)? {
                return Ok(result);
            }
            stack.card.wait()?;
        }
    }

    /// Performs an exchange. Then the card causes no interrupts.
    ///
    /// # Errors
    /// The card fails, or the peer received or sent wrong content.
    pub fn exchange(&mut self, exchange: Exchange) -> Result<(), Reason> {
        self.pings += 1;
        let byte = ping(self.pings);
        let exchanged = match exchange {
            Exchange::Ping(Stream::Tcp) => self.request(byte, !byte),
            Exchange::UdpPing => self.datagram(byte),
            Exchange::Send(Stream::Tcp) => self.send(),
            Exchange::Receive(Stream::Tcp) => self.receive(),
            Exchange::Datagrams(length) => return self.sender.send(Frames::Burst(length)),
            // The lab leaves them out.
            _ => Err(UNSUPPORTED),
        };
        exchanged.and_then(|()| self.stack().card.quiesce())
    }

    /// Sends a request and compares the answer.
    fn request(&mut self, request: u8, answer: u8) -> Result<(), Reason> {
        self.stack()
            .tcp()
            .send_slice(&[request])
            .map_err(|_| CLOSED)?;
        self.answered(answer)
    }

    fn answered(&mut self, answer: u8) -> Result<(), Reason> {
        let mut received = [0];
        self.until(|stack| match stack.tcp().recv_slice(&mut received) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(())),
            Err(_) => Err(CLOSED),
        })?;
        compare(received[0], answer)
    }

    fn datagram(&mut self, byte: u8) -> Result<(), Reason> {
        let sent = self.stack().udp().send_slice(&[byte], peer());
        sent.map_err(|_| REFUSED)?;
        let mut received = [0];
        self.until(|stack| match stack.udp().recv_slice(&mut received) {
            Ok((1, from)) if from.endpoint == peer() => Ok(Some(())),
            Ok(_) => Err(WRONG_ANSWER),
            Err(udp::RecvError::Exhausted) => Ok(None),
            Err(udp::RecvError::Truncated) => Err(WRONG_ANSWER),
        })?;
        compare(received[0], !byte)
    }

    fn send(&mut self) -> Result<(), Reason> {
        self.stack().tcp().send_slice(&[SEND]).map_err(|_| CLOSED)?;
        let (pattern, mut sent) = (self.stack().pattern, 0);
        while sent < BYTES {
            let part = pattern.part(sent, usize::MAX);
            sent += self.until(|stack| match stack.tcp().send_slice(part) {
                Ok(0) => Ok(None),
                Ok(count) => Ok(Some(count)),
                Err(_) => Err(CLOSED),
            })?;
        }
        self.answered(RIGHT)
    }

    fn receive(&mut self) -> Result<(), Reason> {
        // A delayed acknowledgement would need a timer.
        self.stack().tcp().set_ack_delay(None);
        self.stack()
            .tcp()
            .send_slice(&[RECEIVE])
            .map_err(|_| CLOSED)?;
        let (pattern, mut received) = (self.stack().pattern, 0);
        while received < BYTES {
            let (count, is_right) = self.until(|stack| {
                let take = |bytes: &mut [u8]| {
                    let is_right = pattern.holds(received, bytes);
                    (bytes.len(), (bytes.len(), is_right))
                };
                match stack.tcp().recv(take) {
                    Ok((0, _)) => Ok(None),
                    Ok(taken) => Ok(Some(taken)),
                    Err(_) => Err(CLOSED),
                }
            })?;
            if !is_right {
                return Err(WRONG_CONTENT);
            }
            received += count;
        }
        self.stack().tcp().set_ack_delay(Some(ACK_DELAY));
        self.stack().poll()
    }
}

fn compare(received: u8, answer: u8) -> Result<(), Reason> {
    if received == answer {
        Ok(())
    } else {
        Err(WRONG_ANSWER)
    }
}
