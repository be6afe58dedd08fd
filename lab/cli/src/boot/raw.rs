//! Raw mode of the terminal.

use rustix::termios::{tcgetattr, tcsetattr, OptionalActions, Termios};
use std::io::{self, IsTerminal};

/// Terminal in raw mode; its previous mode is restored on drop.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Sets raw mode of standard input; `None` if it is not a terminal or refuses.
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
        // The terminal may be gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
