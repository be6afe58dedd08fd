//! The other guest of workload `net`: it receives numbered frames, and is the peer of exchanges.

use super::card::Card;
use super::stack::{Memory, Stack, ACK_DELAY, REFUSED};
use super::transport::Access;
use trapline_abi::net::{Connection, PEER, PORT};
use trapline_abi::packet::SMALL;
use trapline_workloads::packets::{self, Link, Taken};
use trapline_workloads::Reason;

/// Receiver of frames and peer of exchanges of one guest.
pub struct Server<A> {
    stack: Stack<A>,
    receiver: packets::Receiver,
    /// Receiver of frames in datagrams.
    datagrams: packets::Receiver,
    connection: Connection,
}

impl<A: Access> Server<A> {
    /// Creates a server.
    ///
    /// # Errors
    /// The queues are too short, or the stack refuses.
    pub fn new(card: Card<A>, memory: &'static mut Memory) -> Result<Self, Reason> {
        packets::check_buffers(&card)?;
        let mut server = Self {
            stack: Stack::new(card, memory, PEER, PORT)?,
            receiver: packets::Receiver::default(),
            datagrams: packets::Receiver::default(),
            connection: Connection::default(),
        };
        server.stack.tcp().listen(PORT).map_err(|_| REFUSED)?;
        Ok(server)
    }

    /// Serves until the card fails.
    ///
    /// # Errors
    /// Always: the reason.
    pub fn serve(&mut self) -> Result<(), Reason> {
        loop {
            self.turn()?;
            self.stack.card.wait()?;
        }
    }

    /// Takes and answers what was received.
    ///
    /// # Errors
    /// The card fails.
    pub fn turn(&mut self) -> Result<(), Reason> {
        if self.take_frames() {
            self.answer_exchanges();
        }
        self.stack.card.notify();
        self.stack.card.check()
    }

    /// Takes the frames that were received. Returns true if there were others than numbered ones.
    #[inline(always)]
    fn take_frames(&mut self) -> bool {
        let mut has_others = false;
        while let Some((buffer, length)) = self.stack.card.receiver.receive() {
            let port = &mut self.stack.card.receiver;
            match port.peek(buffer, length, |frame| self.receiver.take(frame)) {
                Taken::Other => {
                    self.stack.handle(buffer, length);
                    has_others = true;
                }
                taken => {
                    port.recycle(buffer);
                    packets::answer(&mut self.stack.card, taken);
                }
            }
        }
        has_others
    }

    #[inline(never)]
    fn answer_exchanges(&mut self) {
        self.answer_datagrams();
        // After the end of the only connection there is nothing to answer.
        while let Some(1..) = self.answer_request() {}
        self.stack.send();
    }

    fn answer_datagrams(&mut self) {
        let mut answer = [0; SMALL];
        while let Ok((datagram, from)) = self.stack.udp().recv() {
            let length = self.datagrams.answer_datagram(datagram, &mut answer);
            if length > 0 {
                // The buffer has space for an answer to each datagram on its way.
                let _lost = self.stack.udp().send_slice(&answer[..length], from);
            }
        }
    }

    /// Takes or sends bytes of the connection. Returns how many; `None` if it has ended.
    fn answer_request(&mut self) -> Option<usize> {
        let pattern = self.stack.pattern;
        let (connection, tcp) = (&mut self.connection, self.stack.tcp());
        let outgoing = connection.outgoing(pattern);
        if !outgoing.is_empty() {
            let count = tcp.send_slice(outgoing).ok()?;
            connection.sent(count);
            return Some(count);
        }
        let take = |bytes: &mut [u8]| {
            let count = match bytes {
                [] => 0,
                bytes => connection.take(pattern, bytes),
            };
            (count, count)
        };
        let count = tcp.recv(take).ok()?;
        // A delayed acknowledgement of a stream would need a timer.
        let is_stream = matches!(connection, Connection::Receiving { .. });
        tcp.set_ack_delay((!is_stream).then_some(ACK_DELAY));
        Some(count)
    }
}
