//! A peer behind a tap of `trapline-vmm`, and a bridge between two such taps.
//!
//! Either is a child in a network namespace of its own, where it creates the taps; without the privilege for that, in a
//! user namespace, too. It passes their descriptors to this process, which executes the VMM with them. So the VMM keeps
//! the number, the namespaces and the privileges of the process that was started, and no interface of the host is
//! involved.

use super::{limit_lifetime, Server};
use crate::interface;
use crate::sys::zero_or_error;
use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::ptr;
use trapline_abi::net::{MAC, PEER, PORT};

const DEVICE: &str = "/dev/net/tun";
/// Names of the tap in the namespace of the peer, and of those of a bridge.
const TAP: &str = "trapline0";
const BRIDGED: [&str; 2] = ["trapline0", "trapline1"];
const BRIDGE: &str = "trapline-bridge";

/// Ethernet frames, preceded by a virtio-net header (Linux, Documentation/networking/tuntap.rst).
const FLAGS: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

/// Maximum length of a message from the peer: an error.
const MESSAGE: usize = 512;

/// Space for one descriptor in a message (`cmsg(3)`), aligned as its header.
type Control = [u64; 4];

/// Starts the peer. Returns the option of a network card on its tap, for a program that this process executes.
///
/// # Errors
/// The peer cannot be started.
pub fn start() -> Result<String, String> {
    let [tap] = start_child(|| {
        let (server, tap) = prepare()?;
        let serve = move || server.serve();
        Ok(([tap], serve))
    })?;
    let mac = MAC.map(|byte| format!("{byte:02x}")).join(":");
    // The descriptor is inherited, and closed by the VMM.
    Ok(format!("fd={},mac={mac}", tap.into_raw_fd()))
}

/// Starts a process with a bridge between two taps, and returns these.
///
/// # Errors
/// The bridge cannot be made.
pub fn start_bridge() -> Result<[OwnedFd; 2], String> {
    start_child(|| {
        let taps = prepare_bridge()?;
        let serve = || loop {
            // SAFETY: waits for a signal; each ends this process.
            unsafe { libc::pause() };
        };
        Ok((taps, serve))
    })
}

/// Starts a child that prepares taps, passes them to this process, and then serves until it is killed.
fn start_child<const COUNT: usize, S: FnOnce() -> io::Result<()>>(
    prepare: impl FnOnce() -> io::Result<([File; COUNT], S)>,
) -> Result<[OwnedFd; COUNT], String> {
    let failed = |error: io::Error| format!("the peer cannot be started: {error}");
    let (ours, theirs) = UnixDatagram::pair().map_err(failed)?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            if let Err(why) = serve(theirs, prepare) {
                eprintln!("trapline-agent: peer: {why}");
            }
            std::process::exit(1)
        }
        ..0 => return Err(failed(io::Error::last_os_error())),
        _ => drop(theirs),
    }
    let taps: Result<Vec<_>, _> = (0..COUNT).map(|_| receive(&ours)).collect();
    taps?
        .try_into()
        .map_err(|_| "the peer has no tap".to_owned())
}

/// Checks that a peer can be started.
///
/// # Errors
/// The reason why not, with the remedy.
pub fn check() -> Result<(), String> {
    prepare().map(drop).map_err(|error| error.to_string())
}

/// Serves until this process is killed.
fn serve<const COUNT: usize, S: FnOnce() -> io::Result<()>>(
    parent: UnixDatagram,
    prepare: impl FnOnce() -> io::Result<([File; COUNT], S)>,
) -> io::Result<()> {
    close_others(parent.as_raw_fd());
    // A new user namespace may clear the signal of the parent's death.
    let prepared = prepare().and_then(|prepared| limit_lifetime().map(|()| prepared));
    let (taps, serve) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return parent.send(error.to_string().as_bytes()).map(drop),
    };
    taps.iter().try_for_each(|tap| send(&parent, tap))?;
    drop((parent, taps));
    serve()
}

/// Creates the namespace with the tap, and binds the sockets.
fn prepare() -> io::Result<(Server, File)> {
    enter_namespace()?;
    interface::disable_ipv6();
    let tap = open(TAP)?;
    let address = Ipv4Addr::from(PEER);
    interface::configure(TAP, address)?;
    Ok((Server::bind(address, PORT)?, tap))
}

/// Creates a namespace with two taps that a bridge connects. It sends no frames by itself.
fn prepare_bridge() -> io::Result<[File; 2]> {
    enter_namespace()?;
    interface::disable_ipv6();
    let [first, second] = BRIDGED;
    let taps = [open(first)?, open(second)?];
    let bridged = interface::create_bridge(BRIDGE, &BRIDGED);
    bridged.map_err(|error| {
        let help = "load its driver (sudo modprobe bridge), or use --path switch";
        with_help(format!("no bridge between guests: {error}"), help)
    })?;
    Ok(taps)
}

fn with_help(message: String, help: &str) -> io::Error {
    io::Error::other(format!("{message}\nhelp: {help}"))
}

/// Closes the descriptors of the VMM, whose output would not end otherwise.
pub fn close_others(kept: RawFd) {
    let kept = kept as libc::c_uint;
    for (first, last) in [(0, 1), (3, kept.max(3) - 1), (kept + 1, libc::c_uint::MAX)] {
        if first <= last {
            // SAFETY: no object of this process owns a descriptor, except `kept`.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Enters a network namespace; without the privilege for that, in a user namespace that has it.
fn enter_namespace() -> io::Result<()> {
    let unshare = |flags| {
        // SAFETY: takes a number; this process has one thread.
        zero_or_error(unsafe { libc::unshare(flags) }.into())
    };
    let entered = match unshare(libc::CLONE_NEWNET) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)
        }
        entered => entered,
    };
    entered.map_err(|error| {
        with_help(
            format!("the peer of a network needs a network namespace: {error}"),
            "allow user namespaces (sudo sysctl user.max_user_namespaces=10000), or measure as root",
        )
    })
}

/// Creates a tap.
fn open(name: &str) -> io::Result<File> {
    let create = || {
        let file = File::options().read(true).write(true).open(DEVICE)?;
        let mut request = interface::request_for(name);
        request.ifr_ifru.ifru_flags = FLAGS as libc::c_short;
        interface::control(&file, libc::TUNSETIFF as libc::c_ulong, &mut request)?;
        Ok(file)
    };
    create().map_err(|error: io::Error| {
        with_help(
            format!("the peer of a network needs a tap: {DEVICE}: {error}"),
            "load the driver (sudo modprobe tun), and give this user access to /dev/net/tun",
        )
    })
}

/// Sends one byte and a descriptor (`unix(7)`, SCM_RIGHTS).
fn send(to: &UnixDatagram, tap: &File) -> io::Result<()> {
    let (mut byte, mut control): (_, Control) = ([0_u8], Default::default());
    let mut part = part(&mut byte);
    let message = message(&mut part, &mut control);
    // SAFETY: the message has room for the header and one descriptor.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = message.msg_controllen;
        ptr::write_unaligned(libc::CMSG_DATA(header).cast(), tap.as_raw_fd());
        libc::sendmsg(to.as_raw_fd(), &raw const message, 0)
    };
    match sent {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Receives the descriptor, or the error of the peer.
fn receive(from: &UnixDatagram) -> Result<OwnedFd, String> {
    let (mut bytes, mut control): (_, Control) = ([0_u8; MESSAGE], Default::default());
    let mut part = part(&mut bytes);
    let mut message = message(&mut part, &mut control);
    // SAFETY: the message refers to buffers of the given lengths.
    let count = unsafe { libc::recvmsg(from.as_raw_fd(), &raw mut message, 0) };
    // SAFETY: the kernel has written the headers of the message.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        let length = usize::try_from(count).unwrap_or(0);
        return Err(match length {
            0 => "the peer has ended".to_owned(),
            _ => String::from_utf8_lossy(&bytes[..length]).into_owned(),
        });
    }
    // SAFETY: the peer sends one descriptor, which is new in this process.
    Ok(unsafe {
        let number: RawFd = ptr::read_unaligned(libc::CMSG_DATA(header).cast());
        OwnedFd::from_raw_fd(number)
    })
}

fn part(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

/// Returns a message of one part, with space for one descriptor.
fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zero is an empty message.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: computes a length.
    message.msg_controllen = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) } as _;
    message
}
