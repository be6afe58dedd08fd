//! Bounded log of a guest's output besides records.

use std::collections::VecDeque;

/// Bytes kept of the beginning and of the end.
const HEAD: usize = 48 << 10;
const TAIL: usize = 16 << 10;

/// Log that keeps the beginning and the end of what is appended.
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

    /// Returns the kept text. Control characters and invalid UTF-8 are replaced.
    pub fn text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        let mut text = sanitized(&self.head);
        if self.dropped > 0 {
            text += &format!("\n[{} bytes omitted]\n", self.dropped);
        }
        text + &sanitized(&[front, back].concat())
    }

    /// Returns the last `count` non-empty lines.
    pub fn last_lines(&self, count: usize) -> String {
        self.last_lines_without(count, &[])
    }

    /// Returns the last `count` non-empty lines that contain none of `parts`.
    pub fn last_lines_without(&self, count: usize, parts: &[&str]) -> String {
        let text = self.text();
        let is_wanted = |line: &String| !parts.iter().any(|part| line.contains(part));
        let lines: Vec<String> = printed_lines(&text).filter(is_wanted).collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// Returns at most `count` non-empty lines from the last line that contains `word` on, or the
    /// last `count` lines if none does.
    pub fn lines_from(&self, word: &str, count: usize) -> String {
        let text = self.text();
        let at = text
            .rfind(word)
            .map(|at| text[..at].rfind('\n').map_or(0, |end| end + 1));
        let Some(from) = at else {
            return self.last_lines(count);
        };
        let lines = printed_lines(&text[from..]).take(count);
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Longest line in an error message, in characters.
const LINE_LENGTH: usize = 300;

/// Returns the lines with printable characters, the longest ones shortened.
fn printed_lines(text: &str) -> impl Iterator<Item = String> + '_ {
    let is_blank = |c: char| c.is_whitespace() || c == char::REPLACEMENT_CHARACTER;
    let lines = text.lines().filter(move |line| !line.chars().all(is_blank));
    lines.map(|line| match line.char_indices().nth(LINE_LENGTH) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    })
}

/// Lines of dom0's console end with two carriage returns: one of its terminal, one of Xen.
fn sanitized(bytes: &[u8]) -> String {
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
    fn beginning_and_end_of_long_output_are_kept() {
        let mut log = Log::default();
        log.extend(b"first\n");
        log.extend(&vec![b'x'; 1 << 20]);
        log.extend(b"\n\nlast\n\n");
        let text = log.text();
        assert!(text.starts_with("first\n") && text.ends_with("last\n\n"));
        assert!(text.len() < HEAD + TAIL + 100, "{}", text.len());
        assert!(text.contains("bytes omitted]"));
        assert!(log.last_lines(1) == "last");
    }

    #[test]
    fn last_lines_are_short_and_have_printable_characters() {
        let mut log = Log::default();
        log.extend("no kernel\n".as_bytes());
        log.extend(&"x".repeat(2 * LINE_LENGTH).into_bytes());
        log.extend(b"\n");
        log.extend(&[0; 5000]);
        let expected = format!("no kernel\n{}...", "x".repeat(LINE_LENGTH));
        assert_eq!(log.last_lines(3), expected);
        assert_eq!(log.lines_from("kernel", 3), expected);
    }

    #[test]
    fn lines_from_returns_matching_line_and_following_lines() {
        let mut log = Log::default();
        log.extend(b"one panic\ntwo\n3: panic: no init\n\nfour\nfive\nsix\n");
        assert_eq!(log.lines_from("panic", 3), "3: panic: no init\nfour\nfive");
        assert_eq!(log.lines_from("oops", 2), "five\nsix");
        assert_eq!(log.lines_from("one", 1), "one panic");
    }

    #[test]
    fn control_characters_are_replaced() {
        let mut log = Log::default();
        log.extend(b"a\x1b[2Jb\x07\xff\r\nc\td\r\r\ne");
        let kept = log.text();
        assert_eq!(kept, "a\u{fffd}[2Jb\u{fffd}\u{fffd}\nc\td\ne");
    }
}
