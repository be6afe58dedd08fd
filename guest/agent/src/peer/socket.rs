//! A peer at a Unix socket to which `trapline-vmm` connects when its guest connects to a port of the host over vsock.
//!
//! It is a child of this process, which executes the VMM. The socket is in a directory that exists until the guest has connected.

use super::tap::close_others;
use super::{answer_all, limit_lifetime, neighbour};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use trapline_abi::net::PORT;

/// Address of the guest: the first that is not reserved (`vsock(7)`).
const CID: u32 = 3;

/// Starts the peer. Returns the option of a vsock device for a program that this process executes.
///
/// # Errors
/// The peer cannot be started.
pub fn start() -> Result<String, String> {
    let failed = |error: io::Error| format!("the peer of a socket cannot be started: {error}");
    let directory = neighbour::create_directory("vsock").map_err(failed)?;
    let path = directory.join("socket");
    start_at(&directory, &path).map_err(failed)?;
    Ok(format!("cid={CID},path={}", path.display()))
}

fn start_at(directory: &Path, path: &Path) -> io::Result<()> {
    // By the VMM's convention connections to a port go to the socket with this suffix.
    let listener = UnixListener::bind(format!("{}_{PORT}", path.display()))?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            if let Err(error) = serve(&listener, directory) {
                eprintln!("trapline-agent: peer: {error}");
            }
            std::process::exit(1)
        }
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Serves until this process is killed.
fn serve(listener: &UnixListener, directory: &Path) -> io::Result<()> {
    limit_lifetime()?;
    close_others(listener.as_raw_fd());
    answer_all(|| {
        let (stream, _) = listener.accept()?;
        // The connection remains.
        let _remains = fs::remove_dir_all(directory);
        Ok(stream)
    })
}
