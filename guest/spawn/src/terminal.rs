//! Pseudo-terminal for programs that require one: many VMMs put standard input into raw mode and fail
//! without a terminal.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;

/// Creates a pseudo-terminal, which is not a controlling terminal. Returns the master and the slave. It
/// hangs up when the master is closed.
///
/// # Errors
/// There is no `/dev/ptmx`, or no devpts at `/dev/pts`.
pub fn terminal() -> io::Result<(File, File)> {
    let master = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open("/dev/ptmx")?;
    let locked: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the kernel reads one number.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &locked) })?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the descriptor is open, and the argument is a number.
    let slave = check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) })?;
    // SAFETY: a new descriptor.
    Ok((master, unsafe { File::from_raw_fd(slave) }))
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IsTerminal;

    #[test]
    fn the_slave_can_be_put_into_raw_mode() {
        let (_master, slave) = terminal().unwrap();
        assert!(slave.is_terminal());
        // SAFETY: an all-zero termios is valid, and is filled before it is used.
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        let descriptor = slave.as_raw_fd();
        // SAFETY: an open descriptor and a local variable, in all three calls.
        unsafe {
            assert_eq!(libc::tcgetattr(descriptor, &mut settings), 0);
            libc::cfmakeraw(&mut settings);
            assert_eq!(libc::tcsetattr(descriptor, libc::TCSANOW, &settings), 0);
        }
    }
}
