//! The peer of workload `net`: answers the requests of [`trapline_abi::net`].
//!
//! `trapline-agent trapline.peer` serves at the loopback device and prints its ports for TCP and UDP;
//! `trapline-agent trapline.peer=tap PROGRAM ARGUMENT...` serves behind a tap for `trapline-vmm` ([`tap`]), and
//! `trapline-agent trapline.peer=check` reports whether that is possible. With `trapline.peer=switch SWITCH COUNT WORD...`
//! before the program the peer is another guest on a switch ([`neighbour`]): the command of that guest has COUNT words.
//! `trapline.peer=bridge COUNT WORD...` connects it by taps and a bridge, `vhost-net` in its place lets the kernel move the frames
//! between them and the guests. `trapline.peer=tap,switch` gives the program two cards.
//!
//! A peer has one connection at a time and buffers of fixed size, whatever its client sends. It is killed with the
//! process that started it, and after an hour.

mod card;
mod neighbour;
mod tap;

pub use card::serve as serve_card;

use crate::sys::zero_or_error;
use crate::{datagrams, interface};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::Command;
use trapline_abi::net::{Connection, Pattern, BYTES};
use trapline_abi::packet::SMALL;
use trapline_workloads::packets::Receiver;

/// Word of the command line.
const WORD: &str = "trapline.peer";

/// Kind of a peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// At the loopback device.
    Loopback,
    /// Behind network cards of a program.
    Cards(Cards<'a>),
    /// None: checks that there can be a tap.
    Check,
}

/// A program with the other sides of its network cards.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cards<'a> {
    /// A tap.
    has_tap: bool,
    /// Another guest.
    neighbour: Option<Neighbour<'a>>,
    /// Program and arguments.
    program: &'a [String],
}

/// Another guest on the other side of a network card.
#[derive(Debug, PartialEq, Eq)]
pub struct Neighbour<'a> {
    /// What is between both.
    way: Way<'a>,
    /// Command of the other guest.
    guest: &'a [String],
}

/// What is between two guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way<'a> {
    /// `trapline-switch`, by its path.
    Switch(&'a str),
    /// A bridge of Linux.
    Bridge {
        /// The kernel moves the frames between taps and guests, not the VMMs.
        by_kernel: bool,
    },
}

/// Maximum lifetime of a peer, in seconds.
const LIFETIME: libc::c_uint = 3600;

/// Bytes of a buffer.
const BUFFER: usize = 64 << 10;

/// Parses a command line, if it is that of a peer.
pub fn parse(words: &[String]) -> Option<Result<Place<'_>, String>> {
    let (first, program) = words.split_first()?;
    let place = first.strip_prefix(WORD)?;
    let parsed = match (place, program) {
        ("", []) => Some(Place::Loopback),
        ("=check", []) => Some(Place::Check),
        _ => place
            .strip_prefix('=')
            .and_then(|kinds| cards(kinds, program))
            .map(Place::Cards),
    };
    Some(parsed.ok_or_else(|| {
        format!(
            "invalid peer: '{first}'\nhelp: use {WORD}, {WORD}=tap PROGRAM ARGUMENT..., or \
             {WORD}=switch SWITCH COUNT WORD... PROGRAM ARGUMENT..., or \
             {WORD}=bridge COUNT WORD... PROGRAM ARGUMENT..., or the same with vhost-net"
        )
    }))
}

/// Parses the kinds of cards, and the words behind them.
fn cards<'a>(kinds: &str, mut words: &'a [String]) -> Option<Cards<'a>> {
    let mut cards = Cards::default();
    for kind in kinds.split(',') {
        match kind {
            "tap" if !cards.has_tap => cards.has_tap = true,
            _ if cards.neighbour.is_none() => {
                let (neighbour, rest) = neighbour(kind, words)?;
                cards.neighbour = Some(neighbour);
                words = rest;
            }
            _ => return None,
        }
    }
    cards.program = words;
    words.first().map(|_| cards)
}

/// Parses what connects another guest, and its command. Returns the words behind them, too.
fn neighbour<'a>(kind: &str, words: &'a [String]) -> Option<(Neighbour<'a>, &'a [String])> {
    let (way, words) = match kind {
        "switch" => {
            let (path, rest) = words.split_first()?;
            (Way::Switch(path), rest)
        }
        "bridge" => (Way::Bridge { by_kernel: false }, words),
        "vhost-net" => (Way::Bridge { by_kernel: true }, words),
        _ => return None,
    };
    let (count, rest) = words.split_first()?;
    let (guest, rest) = rest.split_at_checked(count.parse().ok()?)?;
    guest.first()?;
    Some((Neighbour { way, guest }, rest))
}

/// Starts the peers and executes the program with cards for them.
///
/// # Errors
/// A peer or the program cannot be started.
fn execute(cards: &Cards<'_>) -> Result<(), String> {
    let tap = cards.has_tap.then(tap::start).transpose()?;
    let neighbour = cards.neighbour.as_ref().map(neighbour::start).transpose()?;
    let Some((program, arguments)) = cards.program.split_first() else {
        return Ok(());
    };
    let mut command = Command::new(program);
    for card in tap.iter().chain(&neighbour) {
        command.args(["--net", card]);
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
    println!("{} {}", tcp.port(), udp.port());
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
        let mut buffer = vec![0; BUFFER];
        let pattern = Pattern::new();
        loop {
            let (mut stream, _) = self.listener.accept()?;
            stream.set_nodelay(true)?;
            // A connection that fails ends; the next one is accepted.
            let _ended = answer(&mut stream, &mut buffer, &pattern);
        }
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
fn answer(stream: &mut TcpStream, buffer: &mut [u8], pattern: &Pattern) -> io::Result<()> {
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
pub fn send(stream: &mut TcpStream, pattern: &Pattern) -> io::Result<()> {
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

    #[test]
    fn peers_are_parsed_from_the_command_line() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse(&words("trapline.peer")), Some(Ok(Place::Loopback)));
        let program = words("trapline.peer=tap vmm --x");
        let with_tap = Cards {
            has_tap: true,
            program: &program[1..],
            ..Cards::default()
        };
        assert_eq!(parse(&program), Some(Ok(Place::Cards(with_tap))));
        let both = words("trapline.peer=switch,tap /switch 2 vmm --receive vmm --x");
        let with_both = Cards {
            has_tap: true,
            neighbour: Some(Neighbour {
                way: Way::Switch("/switch"),
                guest: &both[3..5],
            }),
            program: &both[5..],
        };
        assert_eq!(parse(&both), Some(Ok(Place::Cards(with_both))));
        for (kind, by_kernel) in [("bridge", false), ("vhost-net", true)] {
            let words = words(&format!("trapline.peer={kind} 1 guest vmm --x"));
            let bridged = Cards {
                neighbour: Some(Neighbour {
                    way: Way::Bridge { by_kernel },
                    guest: &words[2..3],
                }),
                program: &words[3..],
                ..Cards::default()
            };
            assert_eq!(parse(&words), Some(Ok(Place::Cards(bridged))));
        }
        let check = words("trapline.peer=check");
        assert_eq!(parse(&check), Some(Ok(Place::Check)));
        for wrong in [
            "trapline.peer=tap",
            "trapline.peer=bridge x",
            "trapline.peer=tap,tap x",
            "trapline.peer=switch /switch 0 vmm",
            "trapline.peer=switch /switch 1 guest",
            "trapline.peer=switch /switch 3 guest vmm",
            "trapline.peer=switch /switch x guest vmm",
            "trapline.peer x",
        ] {
            assert!(parse(&words(wrong)).unwrap().is_err(), "{wrong}");
        }
        assert_eq!(parse(&words("trapline.run=net")), None);
    }
}
