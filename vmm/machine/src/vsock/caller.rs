//! A program of the host that has connected, and has to say what to.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// As long as it can be: `CONNECT 4294967295\n`.
const LONGEST: usize = 19;

/// What a caller has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// Less than a line.
    Incomplete,
    /// That it wants to be connected to this port.
    Connect(u32),
    /// Something else, or nothing, and will not.
    Nonsense,
}

/// A caller.
pub struct Caller {
    stream: UnixStream,
    line: [u8; LONGEST],
    length: usize,
}

impl AsRawFd for Caller {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl Caller {
    /// One that has just come; its stream does not wait.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            line: [0; LONGEST],
            length: 0,
        }
    }

    /// Its stream, from behind the line on.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Reads no further than to the end of the line: what follows is for the guest.
    pub fn hear(&mut self) -> Words {
        while self.length < LONGEST {
            match self.stream.read(&mut self.line[self.length..=self.length]) {
                Ok(1) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Words::Incomplete,
                _ => return Words::Nonsense,
            }
            self.length += 1;
            if self.line[self.length - 1] == b'\n' {
                break;
            }
        }
        port_in(&self.line[..self.length]).map_or(Words::Nonsense, Words::Connect)
    }
}

fn port_in(line: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let digits = text.strip_prefix("CONNECT ")?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_line_says_which_port_and_no_byte_behind_it_is_taken() {
        let (mut far, near) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut caller = Caller::new(near);
        assert_eq!(caller.hear(), Words::Incomplete);
        far.write_all(b"CONNECT 10").unwrap();
        assert_eq!(caller.hear(), Words::Incomplete);
        far.write_all(b"24\nhello").unwrap();
        assert_eq!(caller.hear(), Words::Connect(1024));
        let mut bytes = [0; 8];
        assert_eq!(caller.into_stream().read(&mut bytes).unwrap(), 5);
    }

    #[test]
    fn other_words_are_nonsense() {
        for words in [
            &b"\n"[..],
            b"connect 1\n",
            b"CONNECT\n",
            b"CONNECT \n",
            b"CONNECT +1\n",
            b"CONNECT 4294967296\n",
            b"CONNECT 00000000000000000000001",
            b"CONNECT \xff\n",
        ] {
            let (mut far, near) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            far.write_all(words).unwrap();
            assert_eq!(Caller::new(near).hear(), Words::Nonsense, "{words:?}");
        }
        let (far, near) = UnixStream::pair().unwrap();
        drop(far);
        assert_eq!(Caller::new(near).hear(), Words::Nonsense);
    }
}
