//! Configuration of network interfaces (Linux `netdevice(7)`).

use crate::sys::zero_or_error;
use std::fs;
use std::io;
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The network card of a guest.
pub const CARD: &str = "eth0";

/// Disables IPv6 on interfaces that are created or enabled later, so that they send no frames by themselves. Without IPv6
/// there is nothing to disable.
pub fn disable_ipv6() {
    for scope in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        let _without_ipv6 = fs::write(path, "1");
    }
}

/// Sets the address of an interface, with a netmask of 24 bits, and enables it.
///
/// # Errors
/// The interface does not exist, or the kernel refuses.
pub fn configure(name: &str, address: Ipv4Addr) -> io::Result<()> {
    let socket = socket()?;
    for (request, address) in [
        (libc::SIOCSIFADDR, address),
        (libc::SIOCSIFNETMASK, Ipv4Addr::new(255, 255, 255, 0)),
    ] {
        // SAFETY: all zero is a valid address.
        let mut internet: libc::sockaddr_in = unsafe { zeroed() };
        internet.sin_family = libc::AF_INET as u16;
        internet.sin_addr.s_addr = u32::from(address).to_be();
        let mut interface = request_for(name);
        // SAFETY: one kind of address is as long as the other.
        let any = unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(internet) };
        interface.ifr_ifru.ifru_addr = any;
        control(&socket, request as libc::c_ulong, &mut interface)?;
    }
    enable_by(&socket, name)
}

/// Enables an interface.
///
/// # Errors
/// It does not exist, or the kernel refuses.
pub fn enable(name: &str) -> io::Result<()> {
    enable_by(&socket()?, name)
}

fn enable_by(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let mut interface = request_for(name);
    interface.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    control(socket, libc::SIOCSIFFLAGS as libc::c_ulong, &mut interface)
}

/// Requests that create a bridge and add a port to it (Linux, include/uapi/linux/sockios.h).
const ADD_BRIDGE: libc::c_ulong = 0x89a0;
const ADD_PORT: libc::c_ulong = 0x89a2;

/// Creates a bridge with these ports, and enables all.
///
/// # Errors
/// The kernel has no bridges, or refuses.
pub fn create_bridge(name: &str, ports: &[&str]) -> io::Result<()> {
    let socket = socket()?;
    control(&socket, ADD_BRIDGE, &mut request_for(name))?;
    for port in ports {
        let mut found = request_for(port);
        control(&socket, libc::SIOCGIFINDEX as libc::c_ulong, &mut found)?;
        let mut request = request_for(name);
        // SAFETY: the kernel has written the number.
        request.ifr_ifru.ifru_ifindex = unsafe { found.ifr_ifru.ifru_ifindex };
        control(&socket, ADD_PORT, &mut request)?;
        enable_by(&socket, port)?;
    }
    enable_by(&socket, name)
}

/// Maximum number of readings of a link's state, one every millisecond.
const MAX_READINGS: u32 = 1000;

/// Waits until the link of an interface is up. Frames sent before are lost.
///
/// # Errors
/// It stays down.
pub fn wait_for_link(name: &str) -> io::Result<()> {
    let path = format!("/sys/class/net/{name}/carrier");
    for _ in 0..MAX_READINGS {
        if fs::read_to_string(&path).is_ok_and(|state| state.trim_end() == "1") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::other(format!("the link of {name} is down")))
}

/// Returns a request for an interface; a long name is truncated.
pub fn request_for(name: &str) -> libc::ifreq {
    // SAFETY: all zero is a valid request.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let room = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    request
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: makes a new descriptor from numbers.
    match unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) } {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: a new descriptor.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// Performs a request that reads this structure.
///
/// # Errors
/// The kernel refuses.
pub fn control(
    descriptor: &impl AsRawFd,
    request: libc::c_ulong,
    interface: &mut libc::ifreq,
) -> io::Result<()> {
    let request = request as libc::Ioctl;
    // SAFETY: each of these requests reads and writes this structure at most.
    zero_or_error(
        unsafe { libc::ioctl(descriptor.as_raw_fd(), request, &raw mut *interface) }.into(),
    )
}
