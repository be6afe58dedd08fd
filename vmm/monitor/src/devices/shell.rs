//! Services of the program around the monitor.

use crate::devices::HotplugRequest;
use crate::StopReason;
use trapline_abi::populate::Refusal;

/// The far end of the serial port.
pub trait Terminal {
    /// Sends a byte. May block, or drop the byte if there is no room.
    fn send(&mut self, byte: u8);

    /// Returns true if a byte would be accepted.
    fn has_room(&self) -> bool;

    /// Returns the next byte of input, if any. Does not block.
    fn receive(&mut self) -> Option<u8>;

    /// Raises the serial port's interrupt once.
    fn interrupt(&mut self);
}

/// Services of the program around the monitor.
pub trait Shell: Terminal {
    /// Writes a byte to the console. May block.
    fn print(&mut self, byte: u8);

    /// Writes bytes to the console and flushes it.
    fn print_all(&mut self, bytes: &[u8]);

    /// Flushes the console.
    fn flush(&mut self);

    /// Returns the reason to stop the VM, if any, after a kick.
    fn stop_reason(&mut self) -> Option<StopReason>;

    /// Starts the ticker with the page at this address, or stops it.
    fn set_ticker(&mut self, _page: u64) {}

    /// Attaches or detaches memory.
    ///
    /// # Errors
    /// The reason, as reported to the guest.
    fn hotplug(&mut self, _request: HotplugRequest) -> Result<(), Refusal> {
        Err(Refusal::Failed)
    }
}
