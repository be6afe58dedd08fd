//! What the plugin writes: for each window, a line an instruction.
//!
//! ```text
//! window
//! h ffffffff81000000 12
//! h ffffffffc0123456 3 leaves
//! g 200110 3
//! ```
//! `h` is the machine itself, `g` a guest on it; addresses are hexadecimal,
//! counts decimal. `leaves` is the instruction to which guests exit.

use std::fmt::Write;

/// What the plugin says when it is asked whether it could be used.
pub const READY: &str = "ready";

/// An instruction of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Whether a guest executed it.
    pub in_guest: bool,
    /// Its virtual address.
    pub address: u64,
    /// How often it was executed.
    pub count: u64,
    /// Whether it is where guests exit to.
    pub leaves: bool,
}

/// What was executed between two marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Its instructions, each once, or once for each window that it is made of.
    pub lines: Vec<Line>,
}

impl Window {
    /// What was executed in either.
    pub fn and(&self, other: &Self) -> Self {
        Self {
            lines: [self.lines.as_slice(), &other.lines].concat(),
        }
    }
}

/// A line that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not what the plugin writes: build both from one source with 'make build'")]
pub struct BadLine(String);

const WINDOW: &str = "window";

/// The text of one window.
pub fn write(lines: &[Line]) -> String {
    let mut text = format!("{WINDOW}\n");
    for line in lines {
        let world = if line.in_guest { 'g' } else { 'h' };
        let leaves = if line.leaves { " leaves" } else { "" };
        let (address, count) = (line.address, line.count);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{world} {address:x} {count}{leaves}");
    }
    text
}

/// The windows in what the plugin wrote.
///
/// # Errors
/// A line is none.
pub fn read(text: &str) -> Result<Vec<Window>, BadLine> {
    let mut windows: Vec<Window> = Vec::new();
    for line in text.lines() {
        let bad = || BadLine(line.to_owned());
        if line == WINDOW {
            windows.push(Window::default());
        } else {
            let read = read_line(line).ok_or_else(bad)?;
            windows.last_mut().ok_or_else(bad)?.lines.push(read);
        }
    }
    Ok(windows)
}

fn read_line(line: &str) -> Option<Line> {
    let words: Vec<_> = line.split(' ').collect();
    let (world, address, count, leaves) = match words[..] {
        [world, address, count] => (world, address, count, false),
        [world, address, count, "leaves"] => (world, address, count, true),
        _ => return None,
    };
    Some(Line {
        in_guest: match world {
            "g" => true,
            "h" => false,
            _ => return None,
        },
        address: u64::from_str_radix(address, 16).ok()?,
        count: count.parse().ok()?,
        leaves,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_as_they_are_written() {
        let line = |in_guest, address, leaves| Line {
            in_guest,
            address,
            count: 7,
            leaves,
        };
        let one = vec![line(false, u64::MAX, true), line(true, 0x20_0110, false)];
        let text = write(&one) + &write(&[]);
        let windows = read(&text).unwrap();
        assert_eq!(windows, [Window { lines: one }, Window::default()]);
    }

    #[test]
    fn what_is_no_line_is_named() {
        for text in [
            "g 1 1",
            "window\nx 1 1",
            "window\ng 1",
            "window\ng 1 1 enters",
        ] {
            let last = text.lines().last().unwrap();
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(last), "{error}");
        }
    }
}
