//! Exchanges of workload `net` over sockets.

use crate::datagrams::Datagrams;
use crate::interface::CARD;
use crate::packet_socket::PacketSocket;
use crate::requests::{check, Requests};
use crate::{drivers, interface, vsock};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use trapline_abi::net::{Exchange, Pattern, BYTES, GUEST, PEER, PORT, RIGHT, SEND};
use trapline_abi::packet::Frames;
use trapline_abi::Job;
use trapline_workloads::packets::Sender;
use trapline_workloads::Reason;

/// The second network card of a guest.
const SECOND_CARD: &str = "eth1";

/// Connections to the peer, opened on first use.
#[derive(Default)]
pub struct Connections {
    network: Option<Result<Network, Reason>>,
    vsock: Option<Result<Vsock, Reason>>,
}

impl Connections {
    /// Opens the connection for an exchange.
    ///
    /// # Errors
    /// The card, the device or the peer is missing.
    pub fn open(&mut self, job: &Job, exchange: Exchange) -> Result<(), Reason> {
        let failure = if exchange.is_over_vsock() {
            opened(&mut self.vsock, "no vsock", || Vsock::open(job))
        } else {
            opened(&mut self.network, "no network", || Network::open(job))
        };
        failure.map_or(Ok(()), Err)
    }

    /// Performs an exchange.
    ///
    /// # Errors
    /// The connection fails or is not open, or the peer received or sent wrong content.
    pub fn exchange(&mut self, exchange: Exchange) -> Result<(), Reason> {
        match (exchange.is_over_vsock(), &mut self.network, &mut self.vsock) {
            (true, _, Some(Ok(vsock))) => vsock.requests.exchange(exchange),
            (false, Some(Ok(network)), _) => network.exchange(exchange),
            _ => Err("the network is not open"),
        }
    }
}

/// Opens a connection at the first call. Returns the reason if that has failed.
fn opened<T>(
    connection: &mut Option<Result<T, Reason>>,
    what: &str,
    open: impl FnOnce() -> io::Result<T>,
) -> Option<Reason> {
    // At most one message a job.
    let named = |error| &*format!("{what}: {error}").leak();
    let opened = connection.get_or_insert_with(|| open().map_err(named));
    opened.as_ref().err().copied()
}

/// A peer that this process has started.
struct PeerProcess(Child);

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // It is killed with this process, too.
        let _has_ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl PeerProcess {
    /// Starts one. Returns its ports for TCP, UDP and vsock, too.
    fn start() -> io::Result<(Self, [u32; 3])> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("trapline.peer").stdin(Stdio::null());
        let mut peer = Self(command.stdout(Stdio::piped()).spawn()?);
        let mut line = String::new();
        if let Some(output) = peer.0.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let ports: Result<Vec<_>, _> = line.split_ascii_whitespace().map(str::parse).collect();
        match ports.ok().and_then(|ports| ports.try_into().ok()) {
            Some(ports) => Ok((peer, ports)),
            None => Err(io::Error::other("the peer cannot be started")),
        }
    }
}

/// A connection over vsock.
struct Vsock {
    requests: Requests<File>,
    _peer: Option<PeerProcess>,
}

impl Vsock {
    /// Connects to the peer on the other side of the VMM's device, or starts one and connects over the loopback transport.
    fn open(job: &Job) -> io::Result<Self> {
        let (stream, peer) = if job.card {
            drivers::prepare().map_err(io::Error::other)?;
            let stream = vsock::connect(libc::VMADDR_CID_HOST, PORT.into())?;
            (stream, None)
        } else {
            let (peer, [.., port]) = PeerProcess::start()?;
            let stream = vsock::connect(libc::VMADDR_CID_LOCAL, port).map_err(with_driver)?;
            (stream, Some(peer))
        };
        Ok(Self {
            requests: Requests::over(stream),
            _peer: peer,
        })
    }
}

/// Adds what is missing without the loopback transport.
fn with_driver(error: io::Error) -> io::Error {
    io::Error::other(format!(
        "{error}; its loopback needs the kernel's driver vsock_loopback"
    ))
}

/// Sockets of a network, connected to the peer.
struct Network {
    requests: Requests<TcpStream>,
    datagrams: Sender<Datagrams>,
    /// A file with the content of a stream, made at its first use.
    file: Option<File>,
    _peer: Option<PeerProcess>,
}

impl Network {
    /// Connects to the peer behind the network card, or starts one at the loopback device.
    fn open(job: &Job) -> io::Result<Self> {
        if !job.card {
            let (peer, [tcp, udp, _]) = PeerProcess::start()?;
            let ports = [tcp, udp].map(|port| port as u16);
            return Self::connect(Ipv4Addr::LOCALHOST, ports, Some(peer));
        }
        drivers::prepare().map_err(io::Error::other)?;
        interface::disable_ipv6();
        interface::configure(CARD, Ipv4Addr::from(GUEST))?;
        interface::wait_for_link(CARD)?;
        Self::connect(Ipv4Addr::from(PEER), [PORT; 2], None)
    }

    /// Connects to the ports for TCP and UDP.
    fn connect(
        address: Ipv4Addr,
        [tcp, udp]: [u16; 2],
        peer: Option<PeerProcess>,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect((address, tcp))?;
        stream.set_nodelay(true)?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(SocketAddr::from((address, udp)))?;
        Ok(Self {
            requests: Requests::over(stream),
            datagrams: Sender::unopened(Datagrams::new(socket)?),
            file: None,
            _peer: peer,
        })
    }

    fn exchange(&mut self, exchange: Exchange) -> Result<(), Reason> {
        let exchanged = match exchange {
            Exchange::UdpPing => {
                let byte = self.requests.next_ping();
                self.datagram(byte).map(|answer| check(answer == !byte))
            }
            Exchange::SendFile => self.send_file().map(|answer| check(answer == RIGHT)),
            Exchange::Datagrams(length) => return self.datagrams.send(Frames::Burst(length)),
            over_stream => return self.requests.exchange(over_stream),
        };
        exchanged.unwrap_or(Err("the network fails"))
    }

    fn datagram(&mut self, byte: u8) -> io::Result<u8> {
        let socket = &self.datagrams.link().socket;
        socket.send(&[byte])?;
        let mut answer = [byte];
        socket.recv(&mut answer)?;
        Ok(answer[0])
    }

    fn send_file(&mut self) -> io::Result<u8> {
        let requests = &mut self.requests;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(cached_file(&requests.pattern)?),
        };
        requests.stream.write_all(&[SEND])?;
        send_from(file, &requests.stream)?;
        requests.answer()
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
        let card = if Path::new("/sys/class/net").join(SECOND_CARD).exists() {
            SECOND_CARD
        } else {
            CARD
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
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
