//! Devices of the machine: console, pause, end, and the firmware configuration device.

use crate::arch::devices;
use std::io;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::Record;

/// Devices of the machine.
pub struct Devices(());

impl Devices {
    /// Checks that the kernel allows access to the devices.
    ///
    /// # Errors
    /// It refuses.
    pub fn open() -> io::Result<Self> {
        devices::check().map(|()| Self(()))
    }

    /// Returns the devices, after a successful [`Self::open`].
    pub fn opened() -> Self {
        Self(())
    }

    /// Sends `record` with timestamp `at`, in ticks.
    pub fn send(&mut self, record: &Record<'_>, at: u64) {
        let mut frame = [0; MAX_FRAME];
        // Texts are truncated and relayed pieces are short, so every record fits.
        if let Ok(length) = encode(record, at, &mut frame) {
            self.write(&frame[..length]);
        }
    }

    /// Writes frames.
    pub fn write(&mut self, bytes: &[u8]) {
        devices::write(bytes);
    }

    /// Pauses the machine until the lab resumes it, possibly in another process from a snapshot.
    pub fn pause(&mut self) {
        devices::pause();
    }

    /// Selects an item of the firmware configuration device, from its beginning.
    pub fn select(&mut self, item: u16) {
        devices::select(item);
    }

    /// Reads the next bytes of the selected item, zeros after its end.
    pub fn read(&mut self, bytes: &mut [u8]) {
        devices::read(bytes);
    }

    /// Ends the machine with `code`: [`EXIT_DONE`](trapline_abi::platform::EXIT_DONE), or another after a failure.
    pub fn end(&mut self, code: u32) -> ! {
        devices::end(code)
    }
}
