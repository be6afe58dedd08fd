//! Event channels, by `/dev/xen/evtchn` (Linux `include/uapi/xen/evtchn.h`).

use crate::ioctl::{open, request, request_number};
use std::fs::File;
use std::io::{self, Read, Write};
use trapline_interface::Missing;

const DEVICE: &str = "/dev/xen/evtchn";

/// `DOMID_SELF` (Xen `public/xen.h`).
const SELF: u32 = 0x7ff0;

const BIND_INTERDOMAIN: libc::c_ulong = request_number(b'E', 1, size_of::<Interdomain>());
const BIND_UNBOUND_PORT: libc::c_ulong = request_number(b'E', 2, size_of::<u32>());
const NOTIFY: libc::c_ulong = request_number(b'E', 4, size_of::<u32>());
const RESTRICT: libc::c_ulong = request_number(b'E', 6, size_of::<u16>());

/// `ioctl_evtchn_bind_interdomain`.
#[repr(C)]
struct Interdomain {
    domain: u32,
    port: u32,
}

/// A local event channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port(u32);

/// Event channels of this process.
#[derive(Debug)]
pub(crate) struct Events(File);

impl Events {
    pub fn open() -> Result<Self, Missing> {
        open(DEVICE).map(Self)
    }

    /// Binds a local channel to `port` of a domain.
    pub fn bind(&self, domain: u16, port: u32) -> io::Result<Port> {
        self.bind_interdomain(domain.into(), port)
    }

    /// Binds two local channels to each other. Returns one; an event sent to it is received on the other.
    pub fn bind_to_self(&self) -> io::Result<Port> {
        // `ioctl_evtchn_bind_unbound_port`.
        let mut remote = SELF;
        // SAFETY: the request reads the number of a domain.
        let unbound = unsafe { request(&self.0, BIND_UNBOUND_PORT, &mut remote) }? as u32;
        self.bind_interdomain(SELF, unbound)
    }

    fn bind_interdomain(&self, domain: u32, port: u32) -> io::Result<Port> {
        let mut remote = Interdomain { domain, port };
        // SAFETY: the request reads this structure.
        let port = unsafe { request(&self.0, BIND_INTERDOMAIN, &mut remote) }?;
        Ok(Port(port as u32))
    }

    /// Forbids this process new channels to other domains.
    pub fn restrict(&self, mut domain: u16) -> io::Result<()> {
        // SAFETY: the request reads the number of a domain.
        unsafe { request(&self.0, RESTRICT, &mut domain) }.map(drop)
    }

    /// Sends an event. Async-signal-safe.
    pub fn notify(&self, port: Port) -> io::Result<()> {
        let mut port = port.0;
        // SAFETY: the request reads the number of a port.
        unsafe { request(&self.0, NOTIFY, &mut port) }.map(drop)
    }

    /// Waits for an event or a signal, and permits the next event on its channel.
    pub fn wait(&self) -> io::Result<()> {
        let mut port = [0; 4];
        match (&self.0).read(&mut port) {
            // The kernel masks a channel until its number is written.
            Ok(4) => (&self.0).write_all(&port),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}
