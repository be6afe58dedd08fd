//! Network tests of a guest: it echoes data of TCP and vsock connections from the host, and sends data to
//! an echo server on the host; or it echoes data of another guest, or sends data to that.

use super::Message;
use crate::interface::CARD;
use crate::{drivers, interface, vsock};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

/// A test with an IPv4 address. Returns what it has done.
type Test = fn(Ipv4Addr) -> io::Result<String>;

/// Prefixes of the word of the kernel's command line with the address: of the network card, or of the guest to call.
const TESTS: [(&str, Test); 3] = [
    ("trapline-echo=", run),
    ("trapline-answer=", answer),
    ("trapline-call=", call),
];

/// Address of a guest that calls another.
const CALLER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 3);

/// Attempts to call a guest that may not have booted yet, and the time between them.
const ATTEMPTS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// Time in which the end of a connection reaches the other guest.
const LINGER: Duration = Duration::from_secs(1);

/// Ports of the guest and of the host.
const PORT: u16 = 7;
const HOST_PORT: u32 = 80;

/// Bytes sent in total, and per request.
const LENGTH: usize = 256 << 10;
const PIECE: usize = 16 << 10;

/// Runs the test of the kernel's command line: one connection of each kind. Returns true if there is
/// one.
///
/// # Errors
/// Returns the first failure.
pub fn test() -> Result<bool, Message> {
    let words = fs::read_to_string("/proc/cmdline").map_err(|error| error.to_string())?;
    let find = |(prefix, test): (&'static str, Test)| {
        let mut words = words.split_ascii_whitespace();
        words.find_map(|word| Some((prefix, test, word.strip_prefix(prefix)?)))
    };
    let Some((prefix, test, address)) = TESTS.into_iter().find_map(find) else {
        return Ok(false);
    };
    let address = address.parse().map_err(|_| format!("{prefix}{address}"))?;
    drivers::prepare()?;
    let result = test(address).map_err(|error| error.to_string())?;
    println!("{result}");
    // The machine may end before its console has the text.
    // SAFETY: takes a number.
    unsafe { libc::tcdrain(libc::STDOUT_FILENO) };
    Ok(true)
}

/// Echoes one connection of another guest.
fn answer(address: Ipv4Addr) -> io::Result<String> {
    interface::configure(CARD, address).map_err(named(CARD))?;
    let (mut stream, _) = TcpListener::bind((address, PORT))?.accept()?;
    let bytes = echo(&mut stream)?;
    Ok(format!("echoed {bytes} bytes of another guest"))
}

/// Sends data to another guest that echoes it.
fn call(address: Ipv4Addr) -> io::Result<String> {
    interface::configure(CARD, CALLER).map_err(named(CARD))?;
    let mut stream = TcpStream::connect((address, PORT));
    for _ in 0..ATTEMPTS {
        if stream.is_ok() {
            break;
        }
        std::thread::sleep(PAUSE);
        stream = TcpStream::connect((address, PORT));
    }
    exchange(&mut stream?)?;
    // The end of the machine would come before that of the connection.
    std::thread::sleep(LINGER);
    Ok(format!("{LENGTH} bytes came back from another guest"))
}

fn run(address: Ipv4Addr) -> io::Result<String> {
    interface::configure(CARD, address).map_err(named(CARD))?;
    let over_tcp = TcpListener::bind((address, PORT))?;
    let from_host = vsock::listen(libc::VMADDR_CID_ANY, PORT.into());
    let from_host = from_host.map_err(named("a socket for the host"))?;
    let to_host = vsock::connect(libc::VMADDR_CID_HOST, HOST_PORT);
    let exchanged = to_host.and_then(|mut stream| exchange(&mut stream));
    exchanged.map_err(named("a program of the host"))?;
    let by_socket = echo(&mut vsock::accept(&from_host)?)?;
    let (mut stream, _) = over_tcp.accept()?;
    let by_tcp = echo(&mut stream)?;
    Ok(format!(
        "echoed {by_socket} bytes of a socket, {by_tcp} over TCP"
    ))
}

fn named(what: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::other(format!("{what}: {error}"))
}

/// Sends data and compares what comes back.
fn exchange(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let (mut sent, mut received) = (vec![0; PIECE], vec![0; PIECE]);
    for number in 0..LENGTH / PIECE {
        sent.fill(number as u8);
        stream.write_all(&sent)?;
        stream.read_exact(&mut received)?;
        if sent != received {
            return Err(io::Error::other("the echo differs"));
        }
    }
    Ok(())
}

/// Echoes the stream until its end. Returns the number of bytes.
fn echo(stream: &mut (impl Read + Write)) -> io::Result<usize> {
    let (mut bytes, mut all) = (vec![0; PIECE], 0);
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(all),
            count => {
                stream.write_all(&bytes[..count])?;
                all += count;
            }
        }
    }
}
