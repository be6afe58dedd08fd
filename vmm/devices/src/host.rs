//! What devices ask of the machine around them.

/// Where bytes go to and come from.
pub trait Terminal {
    /// Takes a byte. May wait until there is room for it.
    fn say(&mut self, byte: u8);

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
    /// Exits of the guest so far; see [`trapline_abi::platform::EXITS_LOW`].
    /// `accesses` of them have reached the devices.
    fn exits(&mut self, accesses: u64) -> u64;
}
