//! Runs on the simulated machine: creates a tap, starts a VMM with the given arguments, and exchanges
//! data with the guest's agent, which echoes it (guest/agent/src/init/network.rs).

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const MODULE: &str = "/tun.ko";
const VMM: &str = "/vmm";
const TAP: &[u8] = b"tap0";
const HOST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const PORT: u16 = 7;

/// Socket of the VMM.
const PATH: &str = "/guest.socket";

const LENGTH: usize = 256 << 10;

fn main() -> io::Result<()> {
    insert_module()?;
    let tap = make_tap()?;
    let listener = UnixListener::bind(format!("{PATH}_80"))?;
    thread::spawn(move || echo(&listener));
    fs::set_permissions(VMM, Permissions::from_mode(0o755))?;
    // The tap stays when this descriptor goes, for the VMM to attach to.
    drop(tap);
    let mut vmm = Command::new(VMM)
        .args(std::env::args_os().skip(1))
        .stdin(Stdio::null())
        .spawn()?;
    let (reader, writer) = meet_by_socket()?;
    talk("a socket", reader, writer, |stream| {
        stream.shutdown(Shutdown::Write)
    })?;
    let stream = persistently(|| TcpStream::connect((GUEST, PORT)))?;
    talk("TCP", stream.try_clone()?, stream, |stream| {
        stream.shutdown(Shutdown::Write)
    })?;
    let status = vmm.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("the VMM: {status}")))
    }
}

/// Says back what programs of the guest say.
fn echo(listener: &UnixListener) {
    for stream in listener.incoming() {
        let stream = stream.expect("guest program");
        let back = stream.try_clone().expect("descriptor");
        let _ended = io::copy(&mut &stream, &mut &back);
    }
}

fn meet_by_socket() -> io::Result<(BufReader<UnixStream>, UnixStream)> {
    persistently(|| {
        let mut stream = UnixStream::connect(PATH)?;
        stream.write_all(format!("CONNECT {PORT}\n").as_bytes())?;
        let (mut reader, mut line) = (BufReader::new(stream.try_clone()?), String::new());
        reader.read_line(&mut line)?;
        if line.starts_with("OK ") {
            Ok((reader, stream))
        } else {
            Err(io::Error::other("connection refused"))
        }
    })
}

/// Tries until it succeeds, as long as that may take a guest that boots.
fn persistently<T>(work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..600 {
        if let Ok(done) = work() {
            return Ok(done);
        }
        thread::sleep(Duration::from_millis(100));
    }
    work()
}

/// Says something, hears what comes back, and says whether it is the same.
fn talk<W: Write + Send + 'static>(
    transport: &str,
    mut reader: impl Read,
    mut writer: W,
    end: impl FnOnce(&W) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let said: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
    let to_say = said.clone();
    let saying = thread::spawn(move || {
        writer.write_all(&to_say)?;
        end(&writer)
    });
    let mut heard = Vec::new();
    reader.read_to_end(&mut heard)?;
    saying.join().expect("no panic")?;
    let verdict = if heard == said {
        "the same"
    } else {
        "something else"
    };
    println!("by {transport}: {} bytes came back, {verdict}", heard.len());
    Ok(())
}

fn insert_module() -> io::Result<()> {
    let file = File::open(MODULE)?;
    // SAFETY: an open descriptor, a string that ends, and no flags.
    check(unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) })
}

/// A tap that stays, with the host's address, switched on.
fn make_tap() -> io::Result<File> {
    let tap = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    let mut request = request();
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
    ask(tap.as_raw_fd(), libc::TUNSETIFF, &mut request)?;
    // SAFETY: the request takes a number.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETPERSIST, 1) }.into())?;
    // SAFETY: makes a new descriptor from numbers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) };
    check(fd.into())?;
    // SAFETY: the descriptor is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    for (operation, address) in [
        (libc::SIOCSIFADDR, HOST),
        (libc::SIOCSIFNETMASK, Ipv4Addr::new(255, 255, 255, 0)),
    ] {
        // SAFETY: all zero is a valid address.
        let mut internet: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        internet.sin_family = libc::AF_INET as u16;
        internet.sin_addr.s_addr = u32::from(address).to_be();
        let mut request = self::request();
        // SAFETY: one kind of address is as long as the other.
        let any = unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(internet) };
        request.ifr_ifru.ifru_addr = any;
        ask(socket.as_raw_fd(), operation as libc::Ioctl, &mut request)?;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    ask(
        socket.as_raw_fd(),
        libc::SIOCSIFFLAGS as libc::Ioctl,
        &mut request,
    )?;
    Ok(tap)
}

fn request() -> libc::ifreq {
    // SAFETY: all zero is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(TAP) {
        *place = *byte as libc::c_char;
    }
    request
}

fn ask(fd: i32, operation: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: each of these requests reads or writes this structure.
    check(unsafe { libc::ioctl(fd, operation, &raw mut *request) }.into())
}

fn check(status: libc::c_long) -> io::Result<()> {
    match status {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
