//! What a guest printed beside its records: as much as is worth keeping.

use std::collections::VecDeque;

/// Bytes kept from the beginning, and bytes kept from the end.
const HEAD: usize = 48 << 10;
const TAIL: usize = 16 << 10;

/// A log that keeps its beginning and its end, however much is written to it.
#[derive(Default)]
pub struct Log {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Log {
    /// Appends a byte.
    pub fn push(&mut self, byte: u8) {
        if self.head.len() < HEAD {
            return self.head.push(byte);
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
            self.dropped += 1;
        }
        self.tail.push_back(byte);
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.push(*byte));
    }

    /// All that was kept, as harmless text: what could command a terminal is
    /// replaced, as is what is not UTF-8.
    pub fn text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        let mut text = harmless(&self.head);
        if self.dropped > 0 {
            text += &format!("\n[{} bytes left out]\n", self.dropped);
        }
        text + &harmless(&[front, back].concat())
    }

    /// The last `count` lines that are not empty.
    pub fn last_lines(&self, count: usize) -> String {
        let text = self.text();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// At most `count` lines from the last that holds `word` on, none of them empty;
    /// the very last ones if no line holds it.
    pub fn lines_from(&self, word: &str, count: usize) -> String {
        let text = self.text();
        let at = text
            .rfind(word)
            .map(|at| text[..at].rfind('\n').map_or(0, |end| end + 1));
        let Some(from) = at else {
            return self.last_lines(count);
        };
        let lines = text[from..].lines().filter(|line| !line.trim().is_empty());
        lines.take(count).collect::<Vec<_>>().join("\n")
    }
}

/// The console of Xen's first domain ends lines with what ends them twice: the domain's
/// terminal and Xen each give a carriage return.
fn harmless(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .replace("\r\r\n", "\n")
        .replace("\r\n", "\n")
        .chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_of_a_flood_are_kept() {
        let mut log = Log::default();
        log.extend(b"first\n");
        log.extend(&vec![b'x'; 1 << 20]);
        log.extend(b"\n\nlast\n\n");
        let text = log.text();
        assert!(text.starts_with("first\n") && text.ends_with("last\n\n"));
        assert!(text.len() < HEAD + TAIL + 100, "{}", text.len());
        assert!(text.contains("bytes left out]"));
        assert!(log.last_lines(1) == "last");
    }

    #[test]
    fn a_line_is_found_with_what_follows() {
        let mut log = Log::default();
        log.extend(b"one panic\ntwo\n3: panic: no init\n\nfour\nfive\nsix\n");
        assert_eq!(log.lines_from("panic", 3), "3: panic: no init\nfour\nfive");
        assert_eq!(log.lines_from("oops", 2), "five\nsix");
        assert_eq!(log.lines_from("one", 1), "one panic");
    }

    #[test]
    fn a_terminal_is_not_commanded() {
        let mut log = Log::default();
        log.extend(b"a\x1b[2Jb\x07\xff\r\nc\td\r\r\ne");
        let kept = log.text();
        assert_eq!(kept, "a\u{fffd}[2Jb\u{fffd}\u{fffd}\nc\td\ne");
    }
}
