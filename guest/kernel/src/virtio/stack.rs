//! TCP/IP over a card, by smoltcp.
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
use trapline_abi::net::{Pattern, PREFIX};
use trapline_abi::packet;
use trapline_workloads::packets::Link;
use trapline_workloads::{ticks, Reason};

/// Bytes of the send and receive buffers of TCP: the largest window without scaling (RFC 9293, section 3.1).
const WINDOW: usize = 0xffff;
/// Datagrams in a buffer of UDP: as many as may be on their way, and an entry for the end of the buffer, where none fits.
const DATAGRAMS: usize = packet::WINDOW as usize + 1;
/// Bytes of these buffers.
const DATAGRAM_BYTES: usize = DATAGRAMS * MAX_FRAME;

const NANOSECONDS: u64 = 1000;

/// Memory of a stack, which is all zero at first.
pub struct Memory {
    sockets: [SocketStorage<'static>; 2],
    tcp: [[u8; WINDOW]; 2],
    udp: [[u8; DATAGRAM_BYTES]; 2],
    metadata: [[udp::PacketMetadata; DATAGRAMS]; 2],
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
            (&raw mut (*place).metadata).write([[udp::PacketMetadata::EMPTY; DATAGRAMS]; 2]);
            (&raw mut (*place).pattern).write(Pattern::new());
            &mut *place
        }
    }
}

/// A card with TCP/IP, a socket for each of TCP and UDP, and the content of streams.
pub struct Stack<A> {
    /// The card.
    pub card: Card<A>,
    interface: Interface,
    sockets: SocketSet<'static>,
    tcp: SocketHandle,
    udp: SocketHandle,
    /// Content of streams.
    pub pattern: &'static Pattern,
}

/// Delay of an acknowledgement that an answer makes superfluous: the default of smoltcp.
pub const ACK_DELAY: smoltcp::time::Duration = smoltcp::time::Duration::from_millis(10);

fn now() -> Instant {
    Instant::from_micros((ticks() / NANOSECONDS) as i64)
}

/// The stack refuses an operation.
pub const REFUSED: Reason = "the TCP/IP stack refuses the operation";

impl<A: Access> Stack<A> {
    /// Configures the interface with an address, and the sockets with a local port for UDP.
    ///
    /// # Errors
    /// The stack refuses.
    pub fn new(
        mut card: Card<A>,
        memory: &'static mut Memory,
        address: [u8; 4],
        port: u16,
    ) -> Result<Self, Reason> {
        let config = Config::new(EthernetAddress(card.mac).into());
        let mut interface = Interface::new(config, &mut Wire::of(&mut card), now());
        interface.update_ip_addrs(|addresses| {
            let address = IpCidr::new(Ipv4Address::from(address).into(), PREFIX);
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
        let mut udp = udp::Socket::new(
            udp::PacketBuffer::new(&mut received[..], &mut datagrams[..]),
            udp::PacketBuffer::new(&mut sent[..], &mut outgoing[..]),
        );
        udp.bind(port).map_err(|_| REFUSED)?;
        Ok(Self {
            card,
            tcp: sockets.add(tcp),
            udp: sockets.add(udp),
            interface,
            sockets,
            pattern: &memory.pattern,
        })
    }

    /// Returns the socket of TCP.
    pub fn tcp(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.tcp)
    }

    /// Returns the socket of UDP.
    pub fn udp(&mut self) -> &mut udp::Socket<'static> {
        self.sockets.get_mut(self.udp)
    }

    /// Begins a connection to `peer` from a local port.
    ///
    /// # Errors
    /// The stack refuses.
    pub fn connect(&mut self, peer: IpEndpoint, port: u16) -> Result<(), Reason> {
        let tcp = self.sockets.get_mut::<tcp::Socket<'_>>(self.tcp);
        let connected = tcp.connect(self.interface.context(), peer, port);
        connected.map_err(|_| REFUSED)
    }

    /// Handles received frames and sends others.
    ///
    /// # Errors
    /// The card fails.
    pub fn poll(&mut self) -> Result<(), Reason> {
        let mut wire = Wire::of(&mut self.card);
        self.interface.poll(now(), &mut wire, &mut self.sockets);
        self.send();
        self.card.notify();
        self.card.check()
    }

    /// Handles one received frame, which no one else has read.
    pub fn handle(&mut self, buffer: u16, length: usize) {
        let mut wire = Wire {
            card: &mut self.card,
            incoming: Incoming::One(Some((buffer, length))),
        };
        let sockets = &mut self.sockets;
        self.interface
            .poll_ingress_single(now(), &mut wire, sockets);
        // Without a buffer for an answer it is lost, as windows never let happen.
        if let Incoming::One(Some((buffer, _))) = wire.incoming {
            self.card.receiver.recycle(buffer);
        }
    }

    /// Queues the frames that the sockets have to send.
    pub fn send(&mut self) {
        let (now, sockets) = (now(), &mut self.sockets);
        let mut wire = Wire::of(&mut self.card);
        // Each call sends one segment at most, as many as the window and the queue admit.
        while self.interface.poll_egress(now, &mut wire, sockets) != PollResult::None {}
    }
}

/// A card as smoltcp drives it.
struct Wire<'a, A> {
    card: &'a mut Card<A>,
    incoming: Incoming,
}

/// Frames that smoltcp receives.
enum Incoming {
    /// All that the card receives.
    All,
    /// One, by its buffer and length, until it is taken.
    One(Option<(u16, usize)>),
}

impl<'a, A> Wire<'a, A> {
    fn of(card: &'a mut Card<A>) -> Self {
        Self {
            card,
            incoming: Incoming::All,
        }
    }
}

impl<A: Access> Device for Wire<'_, A> {
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
        } = &mut *self.card;
        // First the buffer of an answer, so that no received frame is lost.
        let buffer = transmitter.free()?;
        let (received, length) = match &mut self.incoming {
            Incoming::All => receiver.receive()?,
            Incoming::One(frame) => frame.take()?,
        };
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
        let port = &mut self.card.transmitter;
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
