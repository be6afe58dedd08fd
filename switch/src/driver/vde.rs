//! A port of a VDE switch: datagrams between Unix sockets, a frame each (the protocol of `vde_switch`, version 3).

use super::endpoint::{receive_each, send_each, Endpoint};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;

/// First word of a request.
const MAGIC: u32 = 0xfeed_face;
/// Version of the protocol.
const VERSION: u32 = 3;
/// The request to connect to any free port.
const NEW_PORT: u32 = 0;
/// `sizeof(struct sockaddr_un)`: a family, and a path of up to 108 bytes.
const ADDRESS: usize = 110;
const FAMILY: usize = 2;

/// A connected port.
pub struct VdeSocket {
    /// The port is free when this is closed.
    _control: UnixStream,
    data: UnixDatagram,
    /// The name of `data`, removed with it.
    own: std::path::PathBuf,
}

impl VdeSocket {
    /// Connects to the switch whose directory this is. `own` is a new path for a socket.
    ///
    /// # Errors
    /// There is no such switch, or it refuses.
    pub fn connect(directory: &Path, own: &Path) -> io::Result<Self> {
        let mut control = UnixStream::connect(directory.join("ctl"))?;
        let data = UnixDatagram::bind(own)?;
        let own = own.to_owned();
        control.write_all(&request(&own)?)?;
        let mut answer = [0; ADDRESS];
        let length = control.read(&mut answer)?;
        let path = answer.get(FAMILY..length).unwrap_or_default();
        let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
        let path = std::str::from_utf8(path).map_err(|_| ErrorKind::InvalidData)?;
        data.connect(path)?;
        data.set_nonblocking(true)?;
        Ok(Self {
            _control: control,
            data,
            own,
        })
    }
}

impl Drop for VdeSocket {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.own);
    }
}

/// Returns the request of a port whose frames are sent to the socket `own`.
fn request(own: &Path) -> io::Result<Vec<u8>> {
    let path = own.as_os_str().as_encoded_bytes();
    if path.len() >= ADDRESS - FAMILY {
        return Err(ErrorKind::InvalidFilename.into());
    }
    let mut request: Vec<u8> = [MAGIC, VERSION, NEW_PORT]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    request.extend((libc::AF_UNIX as u16).to_ne_bytes());
    request.extend(path);
    request.resize(12 + ADDRESS, 0);
    request.extend(b"trapline\0");
    Ok(request)
}

impl Endpoint for VdeSocket {
    fn send(&mut self, _: usize, most: usize, fill: impl FnMut(&mut [u8]) -> usize) -> usize {
        send_each(most, fill, |frame| self.data.send(frame))
    }

    fn receive(&mut self, visit: impl FnMut(&[u8])) {
        receive_each(visit, |frame| self.data.recv(frame));
    }
}
