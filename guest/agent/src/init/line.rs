//! The serial line of a machine without ports, as user-mode Linux is one: records leave by
//! it, and the machine ends by a power-off.

use super::mount;
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// Its first serial line.
const DEVICE: &str = "/dev/ttyS0";

/// The line, on which bytes are bytes.
pub struct Line(File);

impl Line {
    /// Opens it and has the kernel change nothing that is sent.
    pub fn open() -> io::Result<Self> {
        mount("devtmpfs", "/dev")?;
        let file = File::options().read(true).write(true).open(DEVICE)?;
        let mut modes = MaybeUninit::uninit();
        // SAFETY: an open terminal, and a place of ours for its modes.
        if unsafe { libc::tcgetattr(file.as_raw_fd(), modes.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above has filled it.
        let mut modes = unsafe { modes.assume_init() };
        // SAFETY: changes bits of modes that are ours.
        unsafe { libc::cfmakeraw(&mut modes) };
        // SAFETY: an open terminal and valid modes.
        match unsafe { libc::tcsetattr(file.as_raw_fd(), libc::TCSANOW, &modes) } {
            0 => Ok(Self(file)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Says bytes that are frames already. If nobody listens any more, there is nothing
    /// left to do.
    pub fn write(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// Ends the machine when all is said.
    pub fn end(&mut self) -> ! {
        // SAFETY: an open terminal, and a number that every kernel knows.
        unsafe {
            libc::tcdrain(self.0.as_raw_fd());
            libc::reboot(libc::RB_POWER_OFF);
        }
        // A kernel that cannot do that ends with its init, in a panic.
        std::process::exit(1)
    }
}
