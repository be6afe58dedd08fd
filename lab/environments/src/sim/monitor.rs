//! The simulated machine's monitor: QEMU's machine protocol, one JSON object a line
//! (QEMU `docs/interop/qmp-spec.rst`), over a pair of sockets that has no name.
//!
//! Seven commands are all that is needed to let a machine go and to take its state
//! along. They are given only while the machine stands still, so that nobody waits
//! for us while we wait for an answer.

use crate::environment::Watch;
use crate::error::EnvError;
use crate::process::Bystander;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde_json::{json, Value};
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Our end of a monitor.
pub struct Monitor {
    stream: UnixStream,
    /// What was read and is no whole line yet.
    rest: Vec<u8>,
}

/// Which way a machine's state goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From the machine into a file.
    Save,
    /// From a file into the machine, which waits for it.
    Load,
}

/// How often is looked whether somebody wants everything to stop.
const GLANCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// The name under which QEMU keeps a file that it was given.
const GIVEN: &str = "state";

/// In bytes per second: QEMU must not think of a network.
const BANDWIDTH: u64 = 1 << 40;

/// More than one message takes, in bytes.
const MOST: usize = 1 << 20;

impl Monitor {
    /// A monitor, and the end that QEMU is to be given.
    ///
    /// # Errors
    /// There are no sockets.
    pub fn pair() -> io::Result<(Self, File)> {
        let (stream, theirs) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        let rest = Vec::new();
        Ok((Self { stream, rest }, File::from(OwnedFd::from(theirs))))
    }

    /// Hears QEMU's greeting and asks to be told about transfers.
    ///
    /// # Errors
    /// QEMU ended, or it is no QEMU.
    pub fn greet(&mut self, watch: &Watch) -> Result<(), EnvError> {
        self.wait(watch, |message| message.get("QMP").is_some())?;
        self.execute("qmp_capabilities", &json!({}), watch)?;
        let events = json!({"capabilities": [{"capability": "events", "state": true}]});
        self.execute("migrate-set-capabilities", &events, watch)?;
        let fast = json!({"max-bandwidth": BANDWIDTH});
        self.execute("migrate-set-parameters", &fast, watch)
            .map(drop)
    }

    /// Lets the machine go on. A machine that has little to do may have come to its end
    /// before QEMU's main loop, which lets the CPU rest first, gets to answer: then how QEMU
    /// ended says the rest.
    ///
    /// # Errors
    /// It cannot.
    pub fn go(&mut self, watch: &Watch) -> Result<(), EnvError> {
        self.send("cont", &json!({}))?;
        match self.await_message(watch, is_answer)? {
            Some(answer) => judged(&answer).map(drop),
            None => Ok(()),
        }
    }

    /// Saves the machine's state to `file`, or loads it from there, at the file's
    /// position.
    ///
    /// # Errors
    /// It cannot be done.
    pub fn transfer(
        &mut self,
        transfer: Transfer,
        file: &File,
        watch: &Watch,
    ) -> Result<(), EnvError> {
        self.give(file, watch)?;
        let command = match transfer {
            Transfer::Save => "migrate",
            Transfer::Load => "migrate-incoming",
        };
        let from = json!({"uri": format!("fd:{GIVEN}")});
        self.execute(command, &from, watch)?;
        let told = self.wait(watch, |message| transfer_status(message).is_some())?;
        match transfer_status(&told) {
            Some("completed") => self.finalized(watch),
            _ => Err(trouble("the machine's state cannot be transferred")),
        }
    }

    /// A transfer is told to be completed a moment before the machine can go on.
    fn finalized(&mut self, watch: &Watch) -> Result<(), EnvError> {
        let start = Instant::now();
        let none = json!({});
        while self.execute("query-status", &none, watch)?["status"] == "finish-migrate" {
            watch.check(start, String::new)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Gives QEMU a descriptor of `file`.
    fn give(&mut self, file: &File, watch: &Watch) -> Result<(), EnvError> {
        let text = command("getfd", &json!({"fdname": GIVEN}));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut along = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        along.push(SendAncillaryMessage::ScmRights(&files));
        let text = [IoSlice::new(text.as_bytes())];
        // A command is far shorter than the socket's buffer: it goes whole.
        sendmsg(&self.stream, &text, &mut along, SendFlags::NOSIGNAL).map_err(lost)?;
        self.answer(watch).map(drop)
    }

    fn execute(&mut self, name: &str, arguments: &Value, watch: &Watch) -> Result<Value, EnvError> {
        self.send(name, arguments)?;
        self.answer(watch)
    }

    fn send(&mut self, name: &str, arguments: &Value) -> Result<(), EnvError> {
        let text = command(name, arguments);
        let sent = rustix::net::send(&self.stream, text.as_bytes(), SendFlags::NOSIGNAL);
        sent.map(drop).map_err(lost)
    }

    fn answer(&mut self, watch: &Watch) -> Result<Value, EnvError> {
        judged(&self.wait(watch, is_answer)?)
    }

    fn wait(&mut self, watch: &Watch, wanted: impl Fn(&Value) -> bool) -> Result<Value, EnvError> {
        let message = self.await_message(watch, wanted)?;
        message.ok_or_else(|| trouble("QEMU hung up"))
    }

    /// Waits for the first message that `wanted` holds for; the others are news
    /// that nobody waits for. `None` if QEMU hung up.
    fn await_message(
        &mut self,
        watch: &Watch,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Option<Value>, EnvError> {
        let start = Instant::now();
        loop {
            while let Some(message) = self.next()? {
                if wanted(&message) {
                    return Ok(Some(message));
                }
            }
            if !self.fill().map_err(EnvError::Deaf)? {
                return Ok(None);
            }
            watch.check(start, String::new)?;
        }
    }

    /// Sleeps until there is more to read, and reads it; whether QEMU is there.
    fn fill(&mut self) -> io::Result<bool> {
        match poll(
            &mut [PollFd::new(&self.stream, PollFlags::IN)],
            Some(&GLANCE),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => self.read(),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what there is; whether there may be more later.
    fn read(&mut self) -> io::Result<bool> {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Ok(false),
                Ok(length) => self.rest.extend(&piece[..length]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(true),
                    io::ErrorKind::Interrupted => {}
                    // What was not read any more when QEMU ended.
                    io::ErrorKind::ConnectionReset => return Ok(false),
                    _ => return Err(error),
                },
            }
        }
    }

    /// The next whole message that was read.
    fn next(&mut self) -> Result<Option<Value>, EnvError> {
        let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') else {
            return match self.rest.len() {
                0..MOST => Ok(None),
                _ => Err(trouble("QEMU does not come to an end")),
            };
        };
        let line: Vec<u8> = self.rest.drain(..=end).collect();
        let message = serde_json::from_slice(&line);
        message
            .map(Some)
            .map_err(|error| trouble(&error.to_string()))
    }
}

fn is_answer(message: &Value) -> bool {
    ["return", "error"].iter().any(|key| has(message, key))
}

/// What an answer returns, or what is wrong.
fn judged(answer: &Value) -> Result<Value, EnvError> {
    match answer.get("error") {
        None => Ok(answer["return"].clone()),
        Some(error) => {
            let words = error["desc"].as_str().unwrap_or("it does not say why");
            Err(trouble(words))
        }
    }
}

impl Bystander for Monitor {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether the machine has paused. That QEMU hung up is told by its end.
    fn consider(&mut self) -> Result<bool, EnvError> {
        self.read().map_err(EnvError::Deaf)?;
        while let Some(message) = self.next()? {
            if message["event"] == "STOP" {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn command(name: &str, arguments: &Value) -> String {
    format!("{}\n", json!({"execute": name, "arguments": arguments}))
}

fn has(message: &Value, key: &str) -> bool {
    message.get(key).is_some()
}

/// How a transfer ended, if this is what the message tells.
fn transfer_status(message: &Value) -> Option<&str> {
    let told = message["event"] == "MIGRATION";
    let status = message["data"]["status"].as_str().filter(|_| told)?;
    matches!(status, "completed" | "failed" | "cancelled").then_some(status)
}

fn lost(error: rustix::io::Errno) -> EnvError {
    EnvError::Deaf(error.into())
}

fn trouble(words: &str) -> EnvError {
    EnvError::Machine(format!("its monitor: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A monitor whose QEMU has said `words`, and that QEMU.
    fn told(words: &str) -> (Monitor, File) {
        let (monitor, mut qemu) = Monitor::pair().unwrap();
        qemu.write_all(words.as_bytes()).unwrap();
        (monitor, qemu)
    }

    fn watch() -> Watch {
        Watch::of(Duration::from_secs(10))
    }

    const ANSWER: &str = "{\"return\": {}}\r\n";

    #[test]
    fn news_between_answers_is_passed_over() {
        let event = "{\"event\": \"RESUME\"}\n";
        let (mut monitor, _qemu) = told(&format!("{{\"QMP\": {{}}}}\n{event}{}", ANSWER.repeat(3)));
        monitor.greet(&watch()).unwrap();
    }

    #[test]
    fn a_file_goes_along_and_its_transfer_is_awaited() {
        let status = |status| {
            format!("{{\"event\": \"MIGRATION\", \"data\": {{\"status\": \"{status}\"}}}}\n")
        };
        let file = tempfile::tempfile().unwrap();
        let answers = ANSWER.repeat(2);
        let busy = "{\"return\": {\"status\": \"finish-migrate\"}}\n";
        let words = [
            &answers,
            &status("active"),
            &status("completed"),
            busy,
            ANSWER,
        ]
        .concat();
        let (mut monitor, _qemu) = told(&words);
        monitor.transfer(Transfer::Save, &file, &watch()).unwrap();
        let (mut monitor, _qemu) = told(&[answers, status("failed")].concat());
        let error = monitor
            .transfer(Transfer::Load, &file, &watch())
            .unwrap_err();
        assert!(
            error.to_string().contains("cannot be transferred"),
            "{error}"
        );
    }

    #[test]
    fn an_error_is_told_in_the_words_of_qemu_and_silence_as_such() {
        let (mut monitor, qemu) = told("{\"error\": {\"desc\": \"no such command\"}}\n");
        let error = monitor.go(&watch()).unwrap_err().to_string();
        assert!(error.ends_with("no such command"), "{error}");
        drop(qemu);
        let error = monitor.greet(&watch()).unwrap_err().to_string();
        assert!(error.ends_with("hung up"), "{error}");
    }

    #[test]
    fn a_machine_may_come_to_its_end_before_qemu_says_that_it_goes() {
        let (mut monitor, mut qemu) = told("{\"event\": \"RESUME\"}\n");
        let ending = std::thread::spawn(move || qemu.read(&mut [0; 4096]));
        monitor.go(&watch()).unwrap();
        assert!(ending.join().unwrap().unwrap() > 0, "it was told nothing");
    }

    #[test]
    fn a_pause_is_noticed() {
        let (mut monitor, mut qemu) = told("{\"event\": \"GUEST_PANICKED\"}\n{\"ev");
        assert!(!monitor.consider().unwrap());
        qemu.write_all(b"ent\": \"STOP\"}\n").unwrap();
        assert!(monitor.consider().unwrap());
    }
}
