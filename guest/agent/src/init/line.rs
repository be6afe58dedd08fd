//! Serial line of user-mode Linux and of machines without ports for records. The machine ends by power-off, or by a reset where that
//! is impossible.

use crate::sys::mount;
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;
use trapline_abi::job::Shutdown;

/// First serial line.
const DEVICE: &str = "/dev/ttyS0";

/// Table of ACPI that only a machine with power management has.
const FADT: &str = "/sys/firmware/acpi/tables/FACP";

/// Serial line in raw mode.
pub struct Line(File);

impl Line {
    /// Opens the line in raw mode.
    pub fn open() -> io::Result<Self> {
        mount("devtmpfs", "/dev")?;
        let file = File::options().read(true).write(true).open(DEVICE)?;
        let mut modes = MaybeUninit::uninit();
        // SAFETY: an open terminal, and room for its modes.
        if unsafe { libc::tcgetattr(file.as_raw_fd(), modes.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above has filled it.
        let mut modes = unsafe { modes.assume_init() };
        // SAFETY: changes bits of a local variable.
        unsafe { libc::cfmakeraw(&mut modes) };
        // SAFETY: an open terminal and valid modes.
        match unsafe { libc::tcsetattr(file.as_raw_fd(), libc::TCSANOW, &modes) } {
            0 => Ok(Self(file)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Writes frames. Ignores errors, because there is no other output.
    pub fn write(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// Drains the line and ends the machine. Without power-off by ACPI a machine of [`Shutdown::PowerOff`] is reset: the kernel would
    /// only halt it.
    pub fn end(&mut self, shutdown: Shutdown) -> ! {
        let needs_acpi = shutdown == Shutdown::PowerOff;
        let has_acpi = || mount("sysfs", "/sys").is_ok() && Path::new(FADT).exists();
        let command = if needs_acpi && !has_acpi() {
            libc::RB_AUTOBOOT
        } else {
            libc::RB_POWER_OFF
        };
        // SAFETY: an open terminal, and a valid command.
        unsafe {
            libc::tcdrain(self.0.as_raw_fd());
            libc::reboot(command);
        }
        // If the kernel refuses, it panics when its init exits.
        std::process::exit(1)
    }
}
