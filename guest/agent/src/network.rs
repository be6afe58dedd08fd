//! Exchanges of workload `net` over sockets.

use crate::datagrams::Datagrams;
use crate::interface::CARD;
use crate::packet_socket::PacketSocket;
use crate::peer::send;
use crate::{drivers, interface};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use trapline_abi::net::{ping, Exchange, Pattern, BYTES, GUEST, PEER, PORT, RECEIVE, RIGHT, SEND};
use trapline_abi::packet::Frames;
use trapline_abi::Job;
use trapline_workloads::packets::Sender;
use trapline_workloads::Reason;

/// The second network card of a guest.
const SECOND_CARD: &str = "eth1";

/// Bytes of the buffer for a stream.
const BUFFER: usize = 64 << 10;

const WRONG_ANSWER: Reason = "the answer of the peer is not that to the request";
const WRONG_CONTENT: Reason = "the bytes received are not those that the peer sends";

/// Sockets connected to the peer.
pub struct Network {
    stream: TcpStream,
    datagrams: Sender<Datagrams>,
    pattern: Pattern,
    buffer: Vec<u8>,
    pings: u64,
    /// A file with the content of a stream, made at its first use.
    file: Option<File>,
    /// The peer, if this process has started it.
    peer: Option<Child>,
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(peer) = &mut self.peer {
            // It is killed with this process, too.
            let _has_ended = peer.kill().and_then(|()| peer.wait());
        }
    }
}

impl Network {
    /// Connects to the peer behind the network card, or starts one at the loopback device.
    ///
    /// # Errors
    /// The card or the peer is missing.
    pub fn open(job: &Job) -> Result<Self, Reason> {
        let opened = match job.card {
            true => Self::over_card(),
            false => Self::over_loopback(),
        };
        // At most one message a job.
        opened.map_err(|error| &*format!("no network: {error}").leak())
    }

    fn over_card() -> io::Result<Self> {
        drivers::prepare().map_err(io::Error::other)?;
        interface::disable_ipv6();
        interface::configure(CARD, Ipv4Addr::from(GUEST))?;
        interface::wait_for_link(CARD)?;
        Self::connect(Ipv4Addr::from(PEER), [PORT; 2], None)
    }

    fn over_loopback() -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("trapline.peer").stdin(Stdio::null());
        let mut peer = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(output) = peer.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let mut ports = line.split_ascii_whitespace().map(str::parse);
        match (ports.next(), ports.next()) {
            (Some(Ok(tcp)), Some(Ok(udp))) => {
                Self::connect(Ipv4Addr::LOCALHOST, [tcp, udp], Some(peer))
            }
            _ => Err(io::Error::other("the peer cannot be started")),
        }
    }

    /// Connects to the ports for TCP and UDP.
    fn connect(address: Ipv4Addr, [tcp, udp]: [u16; 2], peer: Option<Child>) -> io::Result<Self> {
        let stream = TcpStream::connect((address, tcp))?;
        stream.set_nodelay(true)?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(SocketAddr::from((address, udp)))?;
        Ok(Self {
            stream,
            datagrams: Sender::unopened(Datagrams::new(socket)?),
            pattern: Pattern::new(),
            buffer: vec![0; BUFFER],
            pings: 0,
            file: None,
            peer,
        })
    }

    /// Performs an exchange.
    ///
    /// # Errors
    /// The network fails, or the peer received or sent wrong content.
    pub fn exchange(&mut self, exchange: Exchange) -> Result<(), Reason> {
        self.pings += 1;
        let byte = ping(self.pings);
        let exchanged = match exchange {
            Exchange::TcpPing => self.request(byte).map(|answer| check(answer == !byte)),
            Exchange::UdpPing => self.datagram(byte).map(|answer| check(answer == !byte)),
            Exchange::TcpSend => self.send().map(|answer| check(answer == RIGHT)),
            Exchange::TcpReceive => self.receive(),
            Exchange::SendFile => self.send_file().map(|answer| check(answer == RIGHT)),
            Exchange::Datagrams(length) => return self.datagrams.send(Frames::Burst(length)),
        };
        exchanged.unwrap_or(Err("the network fails"))
    }

    /// Sends a request and returns the answer.
    fn request(&mut self, request: u8) -> io::Result<u8> {
        self.stream.write_all(&[request])?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<u8> {
        let mut answer = [0];
        self.stream.read_exact(&mut answer)?;
        Ok(answer[0])
    }

    fn datagram(&mut self, byte: u8) -> io::Result<u8> {
        let socket = &self.datagrams.link().socket;
        socket.send(&[byte])?;
        let mut answer = [byte];
        socket.recv(&mut answer)?;
        Ok(answer[0])
    }

    fn send(&mut self) -> io::Result<u8> {
        self.stream.write_all(&[SEND])?;
        send(&mut self.stream, &self.pattern)?;
        self.answer()
    }

    fn send_file(&mut self) -> io::Result<u8> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(cached_file(&self.pattern)?),
        };
        self.stream.write_all(&[SEND])?;
        send_from(file, &self.stream)?;
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

/// Returns a file of a file system in memory with the content of a stream, which is in the page cache as long as the file is open.
fn cached_file(pattern: &Pattern) -> io::Result<File> {
    // SAFETY: the name is a C string.
    let mut file =
        match unsafe { libc::memfd_create(c"trapline-stream".as_ptr(), libc::MFD_CLOEXEC) } {
            ..0 => return Err(io::Error::last_os_error()),
            // SAFETY: a new descriptor.
            fd => unsafe { File::from_raw_fd(fd) },
        };
    let mut written = 0;
    while written < BYTES {
        written += file.write(pattern.part(written, usize::MAX))?;
    }
    Ok(file)
}

/// Sends a stream from a file.
fn send_from(file: &File, stream: &TcpStream) -> io::Result<()> {
    let mut sent: libc::off_t = 0;
    while (sent as usize) < BYTES {
        let (to, from, rest) = (stream.as_raw_fd(), file.as_raw_fd(), BYTES - sent as usize);
        // SAFETY: open descriptors, and a position that the kernel advances.
        match unsafe { libc::sendfile(to, from, &raw mut sent, rest) } {
            ..0 => return Err(io::Error::last_os_error()),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Opens the card to another guest: the second one, if there are two.
///
/// # Errors
/// There is none, or it cannot be used.
pub fn open_link() -> Result<Sender<PacketSocket>, Reason> {
    let open = || {
        drivers::prepare().map_err(io::Error::other)?;
        interface::disable_ipv6();
        let card = match Path::new("/sys/class/net").join(SECOND_CARD).exists() {
            true => SECOND_CARD,
            false => CARD,
        };
        interface::enable(card)?;
        interface::wait_for_link(card)?;
        PacketSocket::open(card)
    };
    let opened: io::Result<_> = open();
    // At most one message a job.
    let card = opened.map_err(|error| &*format!("no card to another guest: {error}").leak());
    Sender::new(card?)
}

fn check(is_right: bool) -> Result<(), Reason> {
    is_right.then_some(()).ok_or(WRONG_ANSWER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_file_is_sent_as_the_stream_that_it_contains() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let pattern = Pattern::new();
        let file = cached_file(&pattern).unwrap();
        let sender = std::thread::spawn(move || {
            send_from(&file, &stream).unwrap();
            // Half of the stream is missing.
            file.set_len(BYTES as u64 / 2).unwrap();
            send_from(&file, &stream).unwrap_err().kind()
        });
        let mut received = vec![0; BYTES];
        peer.read_exact(&mut received).unwrap();
        assert!(pattern.holds(0, &received));
        received.truncate(0);
        peer.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), BYTES / 2);
        assert_eq!(sender.join().unwrap(), io::ErrorKind::UnexpectedEof);
    }
}
