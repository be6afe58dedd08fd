//! QMP client for the simulated machine (QEMU `docs/interop/qmp-spec.rst`), over an unnamed socket pair.
//!
//! Seven commands are needed. The `qapi` crate passes no file descriptors (`getfd`) and generates the whole
//! schema.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde_json::{json, Value};
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use trapline_host::process::{Deadline, EventSource};
use trapline_host::{Error, Limits};

/// A QMP connection.
pub struct Monitor {
    stream: UnixStream,
    /// Incomplete line.
    rest: Vec<u8>,
    /// Process of QEMU, whose CPU time is limited.
    emulator: Option<i32>,
}

/// Direction of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// From the machine to a file.
    Save,
    /// From a file to the machine.
    Load,
}

/// Interval of checks for timeouts and stop requests.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Name of the file passed by `getfd`.
const GIVEN: &str = "state";

/// Bandwidth limit of a migration, in bytes per second.
const BANDWIDTH: u64 = 1 << 40;

/// Limit of a message, in bytes.
const MAX_MESSAGE: usize = 1 << 20;

impl Monitor {
    /// Returns a connection and the end for QEMU.
    ///
    /// # Errors
    /// No socket can be created.
    pub fn pair() -> io::Result<(Self, File)> {
        let (stream, theirs) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        let monitor = Self {
            stream,
            rest: Vec::new(),
            emulator: None,
        };
        Ok((monitor, File::from(OwnedFd::from(theirs))))
    }

    /// Limits the CPU time of process `pid` while waiting for answers, instead of wall time.
    pub fn watch(&mut self, pid: i32) {
        self.emulator = Some(pid);
    }

    fn deadline(&self) -> Deadline {
        self.emulator.map_or_else(Deadline::wall, Deadline::cpu)
    }

    /// Negotiates capabilities, enables migration events, and leaves memory that QEMU shares out of migrations.
    ///
    /// # Errors
    /// QEMU ended, or did not send a QMP greeting.
    pub fn greet(&mut self, limits: &Limits) -> Result<(), Error> {
        self.wait(limits, |message| message.get("QMP").is_some())?;
        self.execute("qmp_capabilities", &json!({}), limits)?;
        let enabled =
            ["events", "x-ignore-shared"].map(|name| json!({"capability": name, "state": true}));
        let enabled = json!({"capabilities": enabled});
        self.execute("migrate-set-capabilities", &enabled, limits)?;
        let fast = json!({"max-bandwidth": BANDWIDTH});
        self.execute("migrate-set-parameters", &fast, limits)
            .map(drop)
    }

    /// Continues the machine. A short job may end QEMU before its main loop answers: then its exit status
    /// reports the result.
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn go(&mut self, limits: &Limits) -> Result<(), Error> {
        self.send("cont", &json!({}))?;
        match self.await_message(limits, is_answer)? {
            Some(answer) => judged(&answer).map(drop),
            None => Ok(()),
        }
    }

    /// Saves the machine's state to `file`, or loads it, from the current position of the file.
    ///
    /// # Errors
    /// The migration failed.
    pub fn migrate(
        &mut self,
        transfer: Migration,
        file: &File,
        limits: &Limits,
    ) -> Result<(), Error> {
        self.give(file, limits)?;
        let command = match transfer {
            Migration::Save => "migrate",
            Migration::Load => "migrate-incoming",
        };
        let from = json!({"uri": format!("fd:{GIVEN}")});
        self.execute(command, &from, limits)?;
        let event = self.wait(limits, |message| transfer_status(message).is_some())?;
        match transfer_status(&event) {
            Some("completed") => self.finalized(limits),
            _ => Err(trouble("the machine's state cannot be transferred")),
        }
    }

    /// Waits for the end of the status `finish-migrate`, which follows the completion event.
    fn finalized(&mut self, limits: &Limits) -> Result<(), Error> {
        let mut deadline = self.deadline();
        let none = json!({});
        while self.execute("query-status", &none, limits)?["status"] == "finish-migrate" {
            deadline.check(limits, String::new)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Passes a descriptor of `file` to QEMU.
    fn give(&mut self, file: &File, limits: &Limits) -> Result<(), Error> {
        let text = command("getfd", &json!({"fdname": GIVEN}));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut along = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        along.push(SendAncillaryMessage::ScmRights(&files));
        let text = [IoSlice::new(text.as_bytes())];
        // A command is shorter than the socket's buffer, so it is sent at once.
        sendmsg(&self.stream, &text, &mut along, SendFlags::NOSIGNAL).map_err(lost)?;
        self.answer(limits).map(drop)
    }

    fn execute(&mut self, name: &str, arguments: &Value, limits: &Limits) -> Result<Value, Error> {
        self.send(name, arguments)?;
        self.answer(limits)
    }

    fn send(&mut self, name: &str, arguments: &Value) -> Result<(), Error> {
        let text = command(name, arguments);
        let sent = rustix::net::send(&self.stream, text.as_bytes(), SendFlags::NOSIGNAL);
        sent.map(drop).map_err(lost)
    }

    fn answer(&mut self, limits: &Limits) -> Result<Value, Error> {
        judged(&self.wait(limits, is_answer)?)
    }

    fn wait(&mut self, limits: &Limits, wanted: impl Fn(&Value) -> bool) -> Result<Value, Error> {
        let message = self.await_message(limits, wanted)?;
        message.ok_or_else(|| trouble("connection closed"))
    }

    /// Waits for the first message for which `wanted` holds, skipping others. `None` if QEMU closed the
    /// connection.
    fn await_message(
        &mut self,
        limits: &Limits,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Option<Value>, Error> {
        let mut deadline = self.deadline();
        loop {
            while let Some(message) = self.next()? {
                if wanted(&message) {
                    return Ok(Some(message));
                }
            }
            if !self.fill().map_err(Error::Output)? {
                return Ok(None);
            }
            deadline.check(limits, String::new)?;
        }
    }

    /// Waits for data and reads it. Returns whether the connection is open.
    fn fill(&mut self) -> io::Result<bool> {
        match poll(
            &mut [PollFd::new(&self.stream, PollFlags::IN)],
            Some(&POLL_INTERVAL),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => self.read(),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads available data. Returns whether the connection is open.
    fn read(&mut self) -> io::Result<bool> {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Ok(false),
                Ok(length) => self.rest.extend(&piece[..length]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(true),
                    io::ErrorKind::Interrupted => {}
                    // QEMU ended with unread data.
                    io::ErrorKind::ConnectionReset => return Ok(false),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Returns the next complete message.
    fn next(&mut self) -> Result<Option<Value>, Error> {
        let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') else {
            return match self.rest.len() {
                0..MAX_MESSAGE => Ok(None),
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

/// Returns the value of an answer, or its error.
fn judged(answer: &Value) -> Result<Value, Error> {
    match answer.get("error") {
        None => Ok(answer["return"].clone()),
        Some(error) => {
            let words = error["desc"].as_str().unwrap_or("no reason given");
            Err(trouble(words))
        }
    }
}

impl EventSource for Monitor {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns whether the machine paused. The end of QEMU is reported by its process.
    fn handle(&mut self) -> Result<bool, Error> {
        self.read().map_err(Error::Output)?;
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

/// Returns the final status of a migration, if the message reports one.
fn transfer_status(message: &Value) -> Option<&str> {
    let is_migration = message["event"] == "MIGRATION";
    let status = message["data"]["status"]
        .as_str()
        .filter(|_| is_migration)?;
    matches!(status, "completed" | "failed" | "cancelled").then_some(status)
}

fn lost(error: rustix::io::Errno) -> Error {
    Error::Output(error.into())
}

fn trouble(words: &str) -> Error {
    Error::Machine(format!("QEMU monitor: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::io::Write;

    /// Returns a connection on which QEMU has sent `text`, and the other end.
    fn connection(text: &str) -> (Monitor, File) {
        let (monitor, mut qemu) = Monitor::pair().unwrap();
        qemu.write_all(text.as_bytes()).unwrap();
        (monitor, qemu)
    }

    fn limits() -> Limits {
        Limits::timeout(Duration::from_secs(120))
    }

    const ANSWER: &str = "{\"return\": {}}\r\n";

    #[test]
    fn events_between_answers_are_skipped() {
        let event = "{\"event\": \"RESUME\"}\n";
        let (mut monitor, _qemu) =
            connection(&format!("{{\"QMP\": {{}}}}\n{event}{}", ANSWER.repeat(3)));
        monitor.greet(&limits()).unwrap();
    }

    #[test]
    fn migration_passes_a_file_and_waits_for_completion() {
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
        let (mut monitor, _qemu) = connection(&words);
        monitor.migrate(Migration::Save, &file, &limits()).unwrap();
        let (mut monitor, _qemu) = connection(&[answers, status("failed")].concat());
        let error = monitor
            .migrate(Migration::Load, &file, &limits())
            .unwrap_err();
        expect![
            "simulated machine failed: QEMU monitor: the machine's state cannot be transferred"
        ]
        .assert_eq(&error.to_string());
    }

    #[test]
    fn errors_of_qemu_and_a_closed_connection_are_reported() {
        let (mut monitor, qemu) = connection("{\"error\": {\"desc\": \"no such command\"}}\n");
        let refused = monitor.go(&limits()).unwrap_err();
        drop(qemu);
        let closed = monitor.greet(&limits()).unwrap_err();
        expect![[r#"
            simulated machine failed: QEMU monitor: no such command
            simulated machine failed: QEMU monitor: connection closed"#]]
        .assert_eq(&format!("{refused}\n{closed}"));
    }

    #[test]
    fn qemu_may_end_before_it_answers_cont() {
        let (mut monitor, mut qemu) = connection("{\"event\": \"RESUME\"}\n");
        let ending = std::thread::spawn(move || qemu.read(&mut [0; 4096]));
        monitor.go(&limits()).unwrap();
        assert!(ending.join().unwrap().unwrap() > 0, "no command was sent");
    }

    #[test]
    fn stop_event_is_reported() {
        let (mut monitor, mut qemu) = connection("{\"event\": \"GUEST_PANICKED\"}\n{\"ev");
        assert!(!monitor.handle().unwrap());
        qemu.write_all(b"ent\": \"STOP\"}\n").unwrap();
        assert!(monitor.handle().unwrap());
    }
}
