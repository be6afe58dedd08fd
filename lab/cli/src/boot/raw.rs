//! A terminal whose keys go to the guest, each as it is typed.

use rustix::termios::{tcgetattr, tcsetattr, OptionalActions, Termios};
use std::io::{self, IsTerminal};

/// The terminal as it was, which it will be again.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Makes standard input raw; `None` if it is no terminal, or does not want to.
    pub fn enter() -> Option<Self> {
        let input = io::stdin();
        if !input.is_terminal() {
            return None;
        }
        let before = tcgetattr(&input).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&input, OptionalActions::Now, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
