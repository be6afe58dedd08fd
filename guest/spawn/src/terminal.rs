//! A terminal for a program that insists on one: many a VMM puts its standard
//! input into raw mode and will not start where that fails.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;

/// A pseudo-terminal: our end and the program's, which nobody has as controlling
/// terminal. Nothing is ever typed into it; it hangs up when our end is closed.
///
/// # Errors
/// There is no `/dev/ptmx`, or no devpts is mounted at `/dev/pts`.
pub fn terminal() -> io::Result<(File, File)> {
    let ours = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open("/dev/ptmx")?;
    let locked: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the kernel reads one number.
    check(unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCSPTLCK, &locked) })?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the descriptor is open, and the argument is a number.
    let theirs = check(unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTPEER, flags) })?;
    // SAFETY: the kernel made it just now and nobody else knows it.
    Ok((ours, unsafe { File::from_raw_fd(theirs) }))
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
    fn a_program_gets_a_terminal_that_can_be_made_raw() {
        let (_ours, theirs) = terminal().unwrap();
        assert!(theirs.is_terminal());
        // SAFETY: an all-zero termios is valid, and is filled before it is used.
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        let descriptor = theirs.as_raw_fd();
        // SAFETY: an open descriptor and a place of ours, in all three calls.
        unsafe {
            assert_eq!(libc::tcgetattr(descriptor, &mut settings), 0);
            libc::cfmakeraw(&mut settings);
            assert_eq!(libc::tcsetattr(descriptor, libc::TCSANOW, &settings), 0);
        }
    }
}
