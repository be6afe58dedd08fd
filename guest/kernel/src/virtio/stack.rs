//! TCP/IP over a card, by smoltcp, and the exchanges of workload `net`.
//!
//! The stack runs in the calling thread: it handles received frames, writes those to be sent, and waits for the next
//! one. The link loses no frames, because windows are smaller than the queues, so nothing waits for a timer: the
//! card's interrupt is the only event. A tick counts as a nanosecond, so timers expire early on fast CPUs.

use super::card::{Card, Port, MAX_FRAME};
use super::transport::Access;
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet, SocketStorage};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr, IpEndpoint, Ipv4Address};
use trapline_abi::net::{
    ping, Exchange, Pattern, BYTES, GUEST, PEER, PORT, PREFIX, RECEIVE, RIGHT, SEND,
};
use trapline_workloads::{ticks, Reason};

/// Port of the guest, for TCP and UDP.
const LOCAL_PORT: u16 = PORT + 1;

/// Bytes of the send and receive buffers of TCP: the largest window without scaling (RFC 9293, section 3.1).
const WINDOW: usize = 0xffff;
/// Bytes of those of UDP.
const DATAGRAMS: usize = 256;

const NANOSECONDS: u64 = 1000;

/// Memory of a stack, which is all zero at first.
pub struct Memory {
    sockets: [SocketStorage<'static>; 2],
    tcp: [[u8; WINDOW]; 2],
    udp: [[u8; DATAGRAMS]; 2],
    metadata: [[udp::PacketMetadata; 4]; 2],
    pattern: Pattern,
}

impl Memory {
    /// Initialises the parts of memory that are not zero.
    ///
    /// # Safety
    /// `place` is zeroed, aligned, exclusive memory for the type.
    pub unsafe fn initialise(place: *mut Self) -> &'static mut Self {
        // SAFETY: exclusive by contract; bytes are valid if zero, and the others are written here.
        unsafe {
            (&raw mut (*place).sockets).write([SocketStorage::EMPTY; 2]);
            (&raw mut (*place).metadata).write([[udp::PacketMetadata::EMPTY; 4]; 2]);
            (&raw mut (*place).pattern).write(Pattern::new());
            &mut *place
        }
    }
}

/// A card with TCP/IP, connected to the peer.
pub struct Stack<A> {
    card: Card<A>,
    interface: Interface,
    sockets: SocketSet<'static>,
    tcp: SocketHandle,
    udp: SocketHandle,
    pattern: &'static Pattern,
    pings: u64,
}

fn now() -> Instant {
    Instant::from_micros((ticks() / NANOSECONDS) as i64)
}

fn peer() -> IpEndpoint {
    IpEndpoint::new(Ipv4Address::from(PEER).into(), PORT)
}

const CLOSED: Reason = "the peer closed the connection";
const REFUSED: Reason = "the TCP/IP stack refuses the operation";
const WRONG_ANSWER: Reason = "the answer of the peer is not that to the request";
const WRONG_CONTENT: Reason = "the bytes received are not those that the peer sends";

impl<A: Access> Stack<A> {
    /// Configures the interface and connects to the peer.
    ///
    /// # Errors
    /// The card fails, or the peer refuses.
    pub fn connect(mut card: Card<A>, memory: &'static mut Memory) -> Result<Self, Reason> {
        let config = Config::new(EthernetAddress(card.mac).into());
        let mut interface = Interface::new(config, &mut Link(&mut card), now());
        interface.update_ip_addrs(|addresses| {
            let address = IpCidr::new(Ipv4Address::from(GUEST).into(), PREFIX);
            // The list is empty and has room for one.
            let _added = addresses.push(address);
        });
        let mut sockets = SocketSet::new(&mut memory.sockets[..]);
        let [receive, send] = &mut memory.tcp;
        let [received, sent] = &mut memory.metadata;
        let [datagrams, outgoing] = &mut memory.udp;
        let buffer = |bytes: &'static mut [u8; WINDOW]| tcp::SocketBuffer::new(&mut bytes[..]);
        let mut tcp = tcp::Socket::new(buffer(receive), buffer(send));
        tcp.set_nagle_enabled(false);
        let connected = tcp.connect(interface.context(), peer(), LOCAL_PORT);
        connected.map_err(|_| REFUSED)?;
        let mut udp = udp::Socket::new(
            udp::PacketBuffer::new(&mut received[..], &mut datagrams[..]),
            udp::PacketBuffer::new(&mut sent[..], &mut outgoing[..]),
        );
        udp.bind(LOCAL_PORT).map_err(|_| REFUSED)?;
        let mut stack = Self {
            card,
            tcp: sockets.add(tcp),
            udp: sockets.add(udp),
            interface,
            sockets,
            pattern: &memory.pattern,
            pings: 0,
        };
        stack.until(|stack| {
            let socket = stack.tcp();
            match socket.may_send() {
                true => Ok(Some(())),
                false if socket.is_open() => Ok(None),
                false => Err("the peer refuses the connection"),
            }
        })?;
        stack.card.quiesce()?;
        Ok(stack)
    }

    fn tcp(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.tcp)
    }

    fn udp(&mut self) -> &mut udp::Socket<'static> {
        self.sockets.get_mut(self.udp)
    }

    /// Handles received frames and sends others.
    fn poll(&mut self) -> Result<(), Reason> {
        let (now, sockets) = (now(), &mut self.sockets);
        let mut link = Link(&mut self.card);
        self.interface.poll(now, &mut link, sockets);
        // Each call sends one segment at most, as many as the window and the queue admit.
        while self.interface.poll_egress(now, &mut link, sockets) != PollResult::None {}
        self.card.notify();
        self.card.check()
    }

    /// Handles frames until `step` returns a result.
    #[inline(always)]
    fn until<T>(
        &mut self,
        mut step: impl FnMut(&mut Self) -> Result<Option<T>, Reason>,
    ) -> Result<T, Reason> {
        loop {
            self.poll()?;
            if let Some(result) = step(self)? {
                return Ok(result);
            }
            self.card.wait()?;
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
            Exchange::TcpPing => self.request(byte, !byte),
            Exchange::UdpPing => self.datagram(byte),
            Exchange::TcpSend => self.send(),
            Exchange::TcpReceive => self.receive(),
        };
        exchanged.and_then(|()| self.card.quiesce())
    }

    /// Sends a request and compares the answer.
    fn request(&mut self, request: u8, answer: u8) -> Result<(), Reason> {
        self.tcp().send_slice(&[request]).map_err(|_| CLOSED)?;
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
        self.udp()
            .send_slice(&[byte], peer())
            .map_err(|_| REFUSED)?;
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
        self.tcp().send_slice(&[SEND]).map_err(|_| CLOSED)?;
        let (pattern, mut sent) = (self.pattern, 0);
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
        self.tcp().set_ack_delay(None);
        self.tcp().send_slice(&[RECEIVE]).map_err(|_| CLOSED)?;
        let (pattern, mut received) = (self.pattern, 0);
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
        self.tcp().set_ack_delay(Some(ACK_DELAY));
        self.poll()
    }
}

/// Delay of an acknowledgement that a ping makes superfluous: the default of smoltcp.
const ACK_DELAY: smoltcp::time::Duration = smoltcp::time::Duration::from_millis(10);

fn compare(received: u8, answer: u8) -> Result<(), Reason> {
    match received == answer {
        true => Ok(()),
        false => Err(WRONG_ANSWER),
    }
}

/// A card as smoltcp drives it.
struct Link<'a, A>(&'a mut Card<A>);

impl<A: Access> Device for Link<'_, A> {
    type RxToken<'a>
        = Received<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Free<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Free<'_>)> {
        let Card {
            receiver,
            transmitter,
            ..
        } = &mut *self.0;
        // First the buffer of an answer, so that no received frame is lost.
        let buffer = transmitter.free()?;
        let (received, length) = receiver.receive()?;
        Some((
            Received {
                port: receiver,
                buffer: received,
                length,
            },
            Free {
                port: transmitter,
                buffer,
            },
        ))
    }

    fn transmit(&mut self, _: Instant) -> Option<Free<'_>> {
        let port = &mut self.0.transmitter;
        let buffer = port.free()?;
        Some(Free { port, buffer })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = MAX_FRAME;
        capabilities
    }
}

/// A received frame.
struct Received<'a> {
    port: &'a mut Port,
    buffer: u16,
    length: usize,
}

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        self.port.read(self.buffer, self.length, read)
    }
}

/// A free buffer to send.
struct Free<'a> {
    port: &'a mut Port,
    buffer: u16,
}

impl TxToken for Free<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        self.port.send(self.buffer, length, fill)
    }
}
