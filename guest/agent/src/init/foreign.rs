//! Running a VMM that knows nothing of Trapline.
//!
//! It may insist on a terminal, print whatever it likes before its guest speaks,
//! never start its guest, or stay when its guest has ended. So its guest's records
//! are looked for in what it prints: the first says when to ask for the offset of
//! the guest's clock, and the last that the VMM is to end now. In between this
//! process sleeps as it does for other guests.

use super::guest::{offset_of, ready, start, Guest, PATIENCE};
use super::mount;
use super::port::Port;
use super::script::Launch;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};
use trapline_abi::frame::MAX_RELAY;
use trapline_abi::job::FIRST_WORD_SECONDS;
use trapline_abi::record::Channel;
use trapline_abi::{Decoder, Item, Record};
use trapline_spawn::ticks;

/// Text that is kept before the first record, in bytes; more is told at once.
const MOST_HELD: usize = 64 << 10;

/// Runs a VMM from its start to the end of its guest and tells about it.
pub fn run(launch: &Launch<'_>, port: &mut Port) -> io::Result<()> {
    mount_what_any_linux_has()?;
    // Hangs up when this is dropped.
    let (_terminal, input) = trapline_spawn::terminal()?;
    let mut foreign = Foreign {
        guest: start(launch, input.as_fd())?,
        told: false,
        ear: Ear::default(),
    };
    let spoke = foreign.wait_for_first_record(port)?;
    let offset = spoke.then(|| offset_of(|machine| machine.contains('-')));
    foreign.tell(port)?;
    if let Some(offset) = offset.flatten() {
        foreign.guest.tell_offset(offset, port);
    }
    if spoke {
        foreign.wait_for_end(launch.seconds, port)?;
    }
    foreign.guest.started.kill_group();
    let ended = foreign.guest.started.reap()?;
    let at = ticks();
    foreign.tell(port)?;
    port.say(&foreign.guest.reaped(&ended), at);
    Ok(())
}

/// Terminals and shared memory, once.
fn mount_what_any_linux_has() -> io::Result<()> {
    for (kind, at) in [("devpts", "/dev/pts"), ("tmpfs", "/dev/shm")] {
        if !Path::new(at).exists() {
            mount(kind, at)?;
        }
    }
    Ok(())
}

struct Foreign {
    guest: Guest,
    told: bool,
    ear: Ear,
}

impl Foreign {
    /// Whether its guest spoke, rather than that the VMM ended or nothing came.
    fn wait_for_first_record(&mut self, port: &mut Port) -> io::Result<bool> {
        let deadline = Instant::now() + Duration::from_secs(FIRST_WORD_SECONDS);
        while !self.ear.spoke && Instant::now() < deadline {
            let (ended, console) = (self.guest.started.pidfd.as_fd(), self.guest.console());
            let mut descriptors = vec![ended];
            // A stream at its end would be news for ever.
            descriptors.extend((!self.ear.closed).then(|| console.as_fd()));
            let news = ready(&descriptors, PATIENCE)?;
            let is_over = ready(&descriptors[..1], 0)?;
            self.ear.read(console)?;
            if !news || self.ear.held.len() > MOST_HELD {
                self.tell(port)?;
            }
            if is_over {
                break;
            }
        }
        self.ear.conclude();
        Ok(self.ear.spoke)
    }

    /// Until the VMM has ended, at most for so many seconds, and only a moment
    /// after its guest's last record.
    fn wait_for_end(&mut self, seconds: u32, port: &mut Port) -> io::Result<()> {
        for _ in 0..seconds {
            let said_all = self.ear.done;
            let over = ready(&[self.guest.started.pidfd.as_fd()], PATIENCE)?;
            if over || said_all {
                break;
            }
            self.tell(port)?;
        }
        Ok(())
    }

    /// Tells what was said until now.
    fn tell(&mut self, port: &mut Port) -> io::Result<()> {
        self.guest.tell_start(&mut self.told, None, port);
        loop {
            self.ear.read(self.guest.console())?;
            let held = std::mem::take(&mut self.ear.held);
            for piece in held.chunks(MAX_RELAY) {
                port.say(&self.guest.relay(Channel::Console, piece), ticks());
            }
            if held.len() <= MOST_HELD {
                return self.guest.tell_streams(port);
            }
        }
    }
}

/// Listens for a guest's records in what its VMM prints.
#[derive(Default)]
struct Ear {
    decoder: Decoder,
    /// What was read and not told yet.
    held: Vec<u8>,
    /// There will be no more.
    closed: bool,
    /// A record was heard.
    spoke: bool,
    /// The last record was heard.
    done: bool,
}

impl Ear {
    /// Takes what can be read now, but not without end.
    fn read(&mut self, mut from: &File) -> io::Result<()> {
        let mut piece = [0; MAX_RELAY];
        while !self.closed && self.held.len() <= MOST_HELD {
            match from.read(&mut piece) {
                Ok(0) => self.closed = true,
                Ok(length) => self.hear(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.held.extend(bytes);
        let (spoke, done) = (&mut self.spoke, &mut self.done);
        self.decoder
            .feed(bytes, &mut |item| note(item, spoke, done));
    }

    /// Nothing was heard in all the time that was given: records may stand behind
    /// noise that looks like the start of one.
    fn conclude(&mut self) {
        if !self.spoke {
            let (spoke, done) = (&mut self.spoke, &mut self.done);
            self.decoder.finish(&mut |item| note(item, spoke, done));
        }
    }
}

fn note(item: Item<'_>, spoke: &mut bool, done: &mut bool) {
    if let Item::Record(record, _) = item {
        *spoke = true;
        *done |= matches!(record, Record::Done | Record::Panic { .. });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::frame::{encode, MAX_FRAME};

    fn frame(record: &Record<'_>) -> Vec<u8> {
        let mut frame = [0; MAX_FRAME];
        let length = encode(record, 1, &mut frame).unwrap();
        frame[..length].to_vec()
    }

    #[test]
    fn records_are_heard_among_noise_and_nothing_is_lost() {
        let mut ear = Ear::default();
        ear.hear(b"VMM 1.0 starting\n");
        assert!(!ear.spoke);
        let ready = frame(&Record::Ready);
        ear.hear(&ready[..5]);
        assert!(!ear.spoke);
        ear.hear(&ready[5..]);
        assert!(ear.spoke && !ear.done);
        ear.hear(&frame(&Record::Done));
        assert!(ear.done);
        let said = [b"VMM 1.0 starting\n", &ready[..], &frame(&Record::Done)].concat();
        assert_eq!(ear.held, said);
    }

    #[test]
    fn a_panic_is_a_last_word() {
        let mut ear = Ear::default();
        ear.hear(&frame(&Record::Panic { message: "why" }));
        assert!(ear.spoke && ear.done);
    }
}
