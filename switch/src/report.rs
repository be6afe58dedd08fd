//! Messages on standard error. One that it does not take at once is lost: its disk or pipe may be full, or its reader gone.

use std::time::{Duration, Instant};

/// Most messages of a port in a period.
const MOST: u32 = 8;
const PERIOD: Duration = Duration::from_secs(1);

/// Most bytes of a message: a pipe that is ready takes so many at once (pipe(7), `PIPE_BUF`).
const LONGEST: usize = libc::PIPE_BUF;

/// Writes a line to standard error, if that takes it at once.
pub fn say(text: &str) {
    let line = format!("trapline-switch: {text}\n");
    let bytes = &line.as_bytes()[..line.len().min(LONGEST)];
    let mut ready = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one entry, and bytes of this length.
    unsafe {
        if libc::poll(&mut ready, 1, 0) == 1 && ready.revents & libc::POLLOUT != 0 {
            libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len());
        }
    }
}

/// Messages of a port, few in a period: a front end can make any number of them.
pub struct Reporter {
    name: String,
    period: Option<Instant>,
    said: u32,
    left_out: u64,
}

impl Reporter {
    /// Creates the reporter of the port called `name`.
    pub fn new(name: String) -> Self {
        Self {
            name,
            period: None,
            said: 0,
            left_out: 0,
        }
    }

    /// Writes a message, or counts it.
    pub fn report(&mut self, message: &str) {
        if let Some(text) = self.text(message, Instant::now()) {
            say(&text);
        }
    }

    /// Returns the line of a message at this time; `None` if it is left out.
    fn text(&mut self, message: &str, now: Instant) -> Option<String> {
        if self.period.is_none_or(|start| now - start >= PERIOD) {
            (self.period, self.said) = (Some(now), 0);
        }
        if self.said == MOST {
            self.left_out += 1;
            return None;
        }
        self.said += 1;
        let left_out = match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            count => format!(" ({count} messages before it are left out)"),
        };
        Some(format!("{}: {message}{left_out}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_port_are_bounded_in_rate_and_counted() {
        let mut reporter = Reporter::new("a".to_owned());
        let start = Instant::now();
        let lines = (0..1000).filter_map(|_| reporter.text("bad", start));
        assert_eq!(lines.count(), MOST as usize);
        assert_eq!(reporter.text("bad", start + PERIOD / 2), None);
        let line = reporter.text("bad", start + PERIOD);
        let expected = format!("a: bad ({} messages before it are left out)", 1001 - MOST);
        assert_eq!(line, Some(expected));
        let next = reporter.text("bad", start + PERIOD);
        assert_eq!(next, Some("a: bad".to_owned()));
    }
}
