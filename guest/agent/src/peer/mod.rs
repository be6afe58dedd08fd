//! The peer of workload `net`: answers the requests of [`trapline_abi::net`].
//!
//! `trapline-agent trapline.peer` serves at the loopback device and prints its ports for TCP and UDP;
//! `trapline-agent trapline.peer=tap PROGRAM ARGUMENT...` serves behind a tap for `trapline-vmm` ([`tap`]), and
//! `trapline-agent trapline.peer=check` reports whether that is possible. With `trapline.peer=switch SWITCH COUNT WORD...`
//! before the program the peer is another guest on a switch ([`neighbour`]): the command of that guest has COUNT words.
//! `trapline.peer=bridge COUNT WORD...` connects it by taps and a bridge, `vhost-net` in its place lets the kernel move the frames
//! between them and the guests. `trapline.peer=tap,switch` gives the program two cards. `trapline.peer=vsock` serves at a socket of
//! the program's vsock device ([`socket`]).
//!
//! A peer has one connection at a time and buffers of fixed size, whatever its client sends. It is killed with the
//! process that started it, and after an hour.

mod card;
mod neighbour;
mod socket;
mod tap;
mod words;

pub use card::serve as serve_card;
use words::Cards;
pub use words::{parse, Place};

use crate::sys::zero_or_error;
use crate::{datagrams, interface, vsock};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::Command;
use trapline_abi::net::{Connection, Pattern, BYTES};
use trapline_abi::packet::SMALL;
use trapline_workloads::packets::Receiver;

/// Maximum lifetime of a peer, in seconds.
const LIFETIME: libc::c_uint = 3600;

/// Bytes of a buffer.
const BUFFER: usize = 64 << 10;

/// Starts the peers and executes the program with cards for them.
///
/// # Errors
/// A peer or the program cannot be started.
fn execute(cards: &Cards<'_>) -> Result<(), String> {
    let tap = cards.has_tap.then(tap::start).transpose()?;
    let neighbour = cards.neighbour.as_ref().map(neighbour::start).transpose()?;
    let vsock = cards.has_vsock.then(socket::start).transpose()?;
    let Some((program, arguments)) = cards.program.split_first() else {
        return Ok(());
    };
    let mut command = Command::new(program);
    for card in tap.iter().chain(&neighbour) {
        command.args(["--net", card]);
    }
    if let Some(vsock) = &vsock {
        command.args(["--vsock", vsock]);
    }
    let error = command.args(arguments).exec();
    Err(format!("{program}: {error}"))
}

/// Runs the peer, or the program with a peer. Returns its result, the peer only if it fails.
///
/// # Errors
/// A message.
pub fn run(place: &Place<'_>) -> Result<(), String> {
    match place {
        Place::Loopback => serve_loopback().map_err(|error| format!("peer: {error}")),
        Place::Cards(cards) => execute(cards),
        Place::Check => tap::check(),
    }
}

fn serve_loopback() -> io::Result<()> {
    limit_lifetime()?;
    // Only the user of a new machine is allowed to, where it is necessary.
    let _is_enabled = interface::enable("lo");
    let server = Server::bind(Ipv4Addr::LOCALHOST, 0)?;
    let (tcp, udp) = (
        server.listener.local_addr()?,
        server.datagrams.local_addr()?,
    );
    // Without its loopback there is no vsock, and no connection to port 0.
    let vsock = vsock::listen(libc::VMADDR_CID_LOCAL, libc::VMADDR_PORT_ANY).ok();
    let port = vsock.as_ref().map_or(Ok(0), vsock::port)?;
    println!("{} {} {port}", tcp.port(), udp.port());
    if let Some(socket) = vsock {
        std::thread::Builder::new().spawn(move || answer_all(|| vsock::accept(&socket)))?;
    }
    server.serve()
}

/// Lets the kernel kill this process with its parent, and after its lifetime. If the parent has ended before, the
/// first message to it fails.
fn limit_lifetime() -> io::Result<()> {
    // SAFETY: takes a number; the default action of the signal ends the process.
    unsafe { libc::alarm(LIFETIME) };
    // SAFETY: takes numbers.
    zero_or_error(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }.into())
}

/// Bound sockets.
struct Server {
    listener: TcpListener,
    datagrams: UdpSocket,
}

impl Server {
    /// Binds both sockets to a port of `address`, or each to any.
    fn bind(address: Ipv4Addr, port: u16) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind((address, port))?,
            datagrams: UdpSocket::bind((address, port))?,
        })
    }

    /// Serves until a socket fails.
    fn serve(self) -> io::Result<()> {
        let datagrams = self.datagrams;
        std::thread::Builder::new().spawn(move || answer_datagrams(&datagrams))?;
        answer_all(|| {
            let (stream, _) = self.listener.accept()?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }
}

/// Answers the requests of one connection after the other, until none can be accepted.
///
/// # Errors
/// Why none can be.
pub fn answer_all<S: Read + Write>(mut accept: impl FnMut() -> io::Result<S>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let pattern = Pattern::new();
    loop {
        // A connection that fails ends; the next one is accepted.
        let _ended = answer(&mut accept()?, &mut buffer, &pattern);
    }
}

fn answer_datagrams(socket: &UdpSocket) {
    let (mut datagram, mut answer) = ([0; datagrams::BUFFER], [0; SMALL]);
    let mut receiver = Receiver::default();
    loop {
        // An error belongs to an earlier datagram.
        let Ok((length, from)) = socket.recv_from(&mut datagram) else {
            continue;
        };
        let length = receiver.answer_datagram(&datagram[..length], &mut answer);
        if length > 0 {
            let _lost = socket.send_to(&answer[..length], from);
        }
    }
}

/// Answers the requests of a connection until its end.
fn answer(
    stream: &mut (impl Read + Write),
    buffer: &mut [u8],
    pattern: &Pattern,
) -> io::Result<()> {
    let mut connection = Connection::default();
    loop {
        let mut rest = match stream.read(buffer)? {
            0 => return Ok(()),
            count => &buffer[..count],
        };
        loop {
            let outgoing = connection.outgoing(pattern);
            if !outgoing.is_empty() {
                let sent = stream.write(outgoing)?;
                connection.sent(sent);
            } else if !rest.is_empty() {
                rest = &rest[connection.take(pattern, rest)..];
            } else {
                break;
            }
        }
    }
}

/// Sends a stream.
pub fn send(stream: &mut impl Write, pattern: &Pattern) -> io::Result<()> {
    let mut sent = 0;
    while sent < BYTES {
        sent += stream.write(pattern.part(sent, usize::MAX))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagrams::Datagrams;
    use std::net::TcpStream;
    use trapline_abi::net::{RECEIVE, RIGHT, SEND, WRONG};
    use trapline_abi::packet::{fill, number_of, Frames, BURST, DATA, RECEIVER, SENDER};
    use trapline_workloads::packets::Sender;

    /// Starts a peer in a thread and connects to it.
    fn connect() -> (TcpStream, UdpSocket) {
        let server = Server::bind(Ipv4Addr::LOCALHOST, 0).unwrap();
        let stream = TcpStream::connect(server.listener.local_addr().unwrap()).unwrap();
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        datagrams
            .connect(server.datagrams.local_addr().unwrap())
            .unwrap();
        std::thread::spawn(|| server.serve());
        (stream, datagrams)
    }

    fn read(stream: &mut TcpStream, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn requests_are_answered_in_order_however_they_are_segmented() {
        let (mut stream, datagrams) = connect();
        let pattern = Pattern::new();
        stream.write_all(&[0, 7, SEND]).unwrap();
        send(&mut stream, &pattern).unwrap();
        stream.write_all(&[1, RECEIVE]).unwrap();
        assert_eq!(read(&mut stream, 4), [!0, !7, RIGHT, !1]);
        assert!(pattern.holds(0, &read(&mut stream, BYTES)));
        datagrams.send(&[9]).unwrap();
        let mut answer = [0; 2];
        assert_eq!(datagrams.recv(&mut answer).unwrap(), 1);
        assert_eq!(answer[0], !9);
    }

    #[test]
    fn wrong_content_is_reported() {
        let (mut stream, _) = connect();
        stream.write_all(&[SEND]).unwrap();
        stream.write_all(&vec![0; BYTES]).unwrap();
        assert_eq!(read(&mut stream, 1), [WRONG]);
    }

    #[test]
    fn numbered_datagrams_are_checked_and_acknowledged() {
        let (_, datagrams) = connect();
        let mut sender = Sender::unopened(Datagrams::new(datagrams).unwrap());
        for length in [64, 1472, 64] {
            assert_eq!(sender.send(Frames::Burst(length)), Ok(()));
        }
        // One more with the number of the first of the next ones.
        let mut datagram = [0; 64];
        let number = number_of(3 * BURST, 64);
        fill(&mut datagram, [RECEIVER, SENDER], DATA, number);
        sender.link().socket.send(&datagram).unwrap();
        let wrong = Err("the receiver got a wrong frame");
        assert_eq!(sender.send(Frames::Burst(64)), wrong);
    }

    #[test]
    fn abandoned_connections_are_replaced() {
        let (stream, _) = connect();
        let peer = stream.peer_addr().unwrap();
        drop(stream);
        let mut stream = TcpStream::connect(peer).unwrap();
        stream.write_all(&[3]).unwrap();
        assert_eq!(read(&mut stream, 1), [!3]);
    }
}
