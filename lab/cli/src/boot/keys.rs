//! Separates keys for the machine from input for the guest.

/// Prefix of keys for the machine: Ctrl-A.
const PREFIX: u8 = 1;

/// A command for the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCommand {
    /// End it.
    End,
    /// Press its power button.
    Button,
    /// Print the list of commands.
    Help,
}

/// Text of [`KeyCommand::Help`].
pub const HELP: &str = "\r\nCtrl-A x  end the machine\r\nCtrl-A p  press its power button\r\n\
                        Ctrl-A a  send Ctrl-A\r\nCtrl-A h  this\r\n";

/// Parses keyboard input.
#[derive(Debug, Default)]
pub struct Keys {
    prefixed: bool,
}

impl Keys {
    /// Parses `typed`, appends the guest's input to `through`, and returns the commands.
    pub fn read(&mut self, typed: &[u8], through: &mut Vec<u8>) -> Vec<KeyCommand> {
        let mut commands = Vec::new();
        for byte in typed {
            match (std::mem::take(&mut self.prefixed), *byte) {
                (false, PREFIX) => self.prefixed = true,
                (true, b'x') => commands.push(KeyCommand::End),
                (true, b'p') => commands.push(KeyCommand::Button),
                (true, b'h' | b'?') => commands.push(KeyCommand::Help),
                (true, b'a' | PREFIX) => through.push(PREFIX),
                // Unknown after the prefix, or without a prefix.
                (_, byte) => through.push(byte),
            }
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_and_key_may_arrive_separately() {
        let (mut keys, mut through) = (Keys::default(), Vec::new());
        assert_eq!(keys.read(b"ls\x01", &mut through), []);
        assert_eq!(
            keys.read(b"x\x01p\x01h", &mut through),
            [KeyCommand::End, KeyCommand::Button, KeyCommand::Help]
        );
        assert_eq!(keys.read(b"\x01a\x01\x01\x01qx", &mut through), []);
        assert_eq!(through, b"ls\x01\x01qx");
    }
}
