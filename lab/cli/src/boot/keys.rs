//! What is typed for the machine, and what for its guest.

/// The key that is for the machine: Ctrl-A.
const PREFIX: u8 = 1;

/// What somebody wants of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// That it ends.
    End,
    /// Its power button pressed.
    Button,
    /// To know what there is to wish.
    Help,
}

/// Printed for [`Wish::Help`].
pub const HELP: &str = "\r\nCtrl-A x  end the machine\r\nCtrl-A p  press its power button\r\n\
                        Ctrl-A a  send Ctrl-A\r\nCtrl-A h  this\r\n";

/// Reads what is typed.
#[derive(Debug, Default)]
pub struct Keys {
    prefixed: bool,
}

impl Keys {
    /// Takes `typed`; what is for the guest is put into `through`.
    pub fn read(&mut self, typed: &[u8], through: &mut Vec<u8>) -> Vec<Wish> {
        let mut wishes = Vec::new();
        for byte in typed {
            match (std::mem::take(&mut self.prefixed), *byte) {
                (false, PREFIX) => self.prefixed = true,
                (true, b'x') => wishes.push(Wish::End),
                (true, b'p') => wishes.push(Wish::Button),
                (true, b'h' | b'?') => wishes.push(Wish::Help),
                (true, b'a' | PREFIX) => through.push(PREFIX),
                // Unknown, or nothing special.
                (_, byte) => through.push(byte),
            }
        }
        wishes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_may_come_apart_from_its_key() {
        let (mut keys, mut through) = (Keys::default(), Vec::new());
        assert_eq!(keys.read(b"ls\x01", &mut through), []);
        assert_eq!(
            keys.read(b"x\x01p\x01h", &mut through),
            [Wish::End, Wish::Button, Wish::Help]
        );
        assert_eq!(keys.read(b"\x01a\x01\x01\x01qx", &mut through), []);
        assert_eq!(through, b"ls\x01\x01qx");
    }
}
