//! What devices ask of the machine around them.

/// What is at the other end of a serial line.
pub trait Terminal {
    /// Takes a byte. May wait until there is room for it, or lose it if there is none.
    fn say(&mut self, byte: u8);

    /// Whether a byte that is sent now would be taken.
    fn has_room(&self) -> bool;

    /// The next byte that has arrived, if one has. Does not wait.
    fn hear(&mut self) -> Option<u8>;
}

/// How a device interrupts.
pub trait Trigger {
    /// Raises the device's interrupt once.
    fn trigger(&mut self);
}

/// All of it.
pub trait Host: Terminal + Trigger {
    /// Takes a byte of the console that is always ready. May wait until there is room.
    fn print(&mut self, byte: u8);

    /// Exits of the guest so far; see [`trapline_abi::platform::EXITS_LOW`].
    /// `accesses` of them have reached the devices.
    fn exits(&mut self, accesses: u64) -> u64;
}
