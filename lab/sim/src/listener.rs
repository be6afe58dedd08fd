//! Decodes the stream of a simulated machine, in which its init reports which program starts, what it
//! writes and how it ends.

use sha2::{Digest, Sha256};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use trapline_abi::platform::EXIT_STATUS_DONE;
use trapline_abi::record::Channel;
use trapline_abi::{Decoder, Item, Record, VERSION};
use trapline_host::process::{Exited, OutputHandler, Process};
use trapline_host::{hexadecimal, Error, Limits};
use trapline_protocol::{Log, UsageProbe, MAX_BYTES, NOT_REPORTED};

/// Observes the programs of a machine, which run one after the other. An error ends the machine.
pub trait ProgramObserver {
    /// Returns the number of programs to run.
    fn expected(&self) -> usize;

    /// Returns the number of bytes above which the machine counts as flooding.
    fn byte_limit(&self) -> u64 {
        2 * MAX_BYTES
    }

    /// The next program starts, at `exec` ticks of the machine's clock.
    fn start(&mut self, exec: u64);

    /// The program wrote something.
    ///
    /// # Errors
    /// The machine is to be stopped.
    fn output(&mut self, channel: Channel, bytes: &[u8]) -> Result<(), Error>;

    /// The program ended, at `at` ticks of the machine's clock.
    ///
    /// # Errors
    /// It failed.
    fn end(&mut self, status: ExitStatus, at: u64) -> Result<(), Error>;

    /// The machine ended before the program, for this reason.
    fn abort(&mut self, reason: &str);
}

/// Implements [`ProgramObserver`] for a pointer to an observer.
macro_rules! observe_through {
    ($pointer:ty) => {
        impl<P: ProgramObserver + ?Sized> ProgramObserver for $pointer {
            fn expected(&self) -> usize {
                (**self).expected()
            }

            fn byte_limit(&self) -> u64 {
                (**self).byte_limit()
            }

            fn start(&mut self, exec: u64) {
                (**self).start(exec);
            }

            fn output(&mut self, channel: Channel, bytes: &[u8]) -> Result<(), Error> {
                (**self).output(channel, bytes)
            }

            fn end(&mut self, status: ExitStatus, at: u64) -> Result<(), Error> {
                (**self).end(status, at)
            }

            fn abort(&mut self, reason: &str) {
                (**self).abort(reason);
            }
        }
    };
}

observe_through!(Box<P>);
observe_through!(&mut P);

/// Exit statuses of an emulator.
#[derive(Clone, Copy, Debug)]
pub struct Emulator {
    /// Its name.
    pub name: &'static str,
    /// Status if init ended the machine.
    pub done: i32,
    /// Status if Linux ended the machine.
    pub stopped: i32,
    /// Parts of lines that its log has in every run.
    pub usual: &'static [&'static str],
}

impl Emulator {
    /// QEMU, with an exit device.
    pub const QEMU: Self = Self {
        name: "QEMU",
        done: EXIT_STATUS_DONE,
        stopped: 0,
        usual: &[],
    };

    /// QEMU's machine of Arm, which has no exit device: whether init ended it is in the records.
    pub const QEMU_OF_ARM: Self = Self {
        done: 0,
        ..Self::QEMU
    };

    /// `trapline-vmm`, whose guest is the machine.
    pub const TRAPLINE_VMM: Self = Self {
        name: "trapline-vmm",
        done: 0,
        stopped: 36,
        usual: &[],
    };
}

/// Reason for a wait before the start.
pub const NOT_STARTED: &str = "it was not started";

/// Decodes the output of a machine.
pub struct MachineOutput<I> {
    decoder: Decoder,
    state: State<I>,
}

struct State<I> {
    emulator: Emulator,
    programs: I,
    running: bool,
    started: usize,
    /// First error while decoding.
    error: Option<Error>,
    done: bool,
    panic: Option<String>,
    serial: Log,
    /// The line that the serial port has not ended yet, without what exceeds [`MAX_LINE`].
    line: Vec<u8>,
    /// Xen is about to reset the machine.
    has_crashed: bool,
    errors: Log,
    hash: Sha256,
    bytes: u64,
}

impl<I: ProgramObserver> MachineOutput<I> {
    /// Returns a decoder of a machine with these programs.
    pub fn new(emulator: Emulator, programs: I) -> Self {
        Self {
            decoder: Decoder::new(),
            state: State {
                emulator,
                programs,
                running: false,
                started: 0,
                error: None,
                done: false,
                panic: None,
                serial: Log::default(),
                line: Vec::new(),
                has_crashed: false,
                errors: Log::default(),
                hash: Sha256::new(),
                bytes: 0,
            },
        }
    }

    /// Decodes until a machine that may not have been started ends. Returns the hash of its output, too.
    pub fn wait(
        mut self,
        running: Option<Process>,
        limits: &Limits,
    ) -> (String, Result<(), Error>) {
        let exited = match running {
            Some(mut running) => running.wait(&mut self, limits),
            None => Err(Error::Machine(NOT_STARTED.to_owned())),
        };
        let (_, hash, result) = self.finish(exited);
        (hash, result)
    }

    /// Completes decoding after the machine ended with `exited`. Returns the programs and the hash of
    /// the whole output, too.
    pub fn finish(mut self, exited: Result<Exited, Error>) -> (I, String, Result<(), Error>) {
        let Self { decoder, state } = &mut self;
        decoder.finish(&mut |item| state.item(item));
        let result = exited.and_then(|exited| state.check_exit(&exited));
        if std::mem::take(&mut state.running) {
            let reason = result
                .as_ref()
                .err()
                .map_or_else(|| NOT_REPORTED.to_owned(), Error::to_string);
            state.programs.abort(&reason);
        }
        let hash = hexadecimal(&self.state.hash.finalize());
        (self.state.programs, hash, result)
    }
}

impl<I: ProgramObserver> State<I> {
    fn item(&mut self, item: Item<'_>) {
        let handled = match item {
            Item::Text(byte) => {
                self.print(byte);
                Ok(())
            }
            Item::Damaged => failed("damaged record of init"),
            Item::Record(record, at) => self.record(&record, at),
        };
        if let (Err(error), true) = (handled, self.error.is_none()) {
            self.error = Some(error);
        }
    }

    /// Notes a byte of the serial port.
    fn print(&mut self, byte: u8) {
        self.serial.push(byte);
        if self.line.len() < MAX_LINE {
            self.line.push(byte);
        }
        if byte == b'\n' {
            let line = std::mem::take(&mut self.line);
            self.has_crashed |= line.starts_with(DOM0_CRASHED);
        }
    }

    fn record(&mut self, record: &Record<'_>, at: u64) -> Result<(), Error> {
        match *record {
            Record::Hello { version, .. } if version != VERSION => {
                return Err(Error::Version { theirs: version });
            }
            Record::Hello { .. } => {}
            Record::Launch { child } => return self.launch(child, at),
            Record::Relay {
                child,
                channel,
                bytes,
            } if self.is_running(child) => return self.programs.output(channel, bytes),
            Record::Reaped { child, status, .. } if self.is_running(child) => {
                self.running = false;
                let status = ExitStatus::from_raw(status as i32);
                let log = self.emulator_log();
                if !status.success() && !log.is_empty() {
                    let log = format!("{}: {log}\n", self.emulator.name);
                    self.programs.output(Channel::Errors, log.as_bytes())?;
                }
                return self.programs.end(status, at);
            }
            Record::Panic { message } => self.panic = Some(message.to_owned()),
            Record::Done => self.done = true,
            _ => return failed("record of init is out of sequence"),
        }
        Ok(())
    }

    /// Returns the last lines of the emulator's log without those of every run: why it refused what a VMM asked for.
    fn emulator_log(&self) -> String {
        let usual = self.emulator.usual;
        self.errors.last_lines_without(EMULATOR_LINES, usual)
    }

    /// Returns whether `child` is the running program.
    fn is_running(&self, child: u16) -> bool {
        self.running && usize::from(child) + 1 == self.started
    }

    fn launch(&mut self, child: u16, exec: u64) -> Result<(), Error> {
        let in_turn = !self.running && usize::from(child) == self.started;
        if !in_turn || self.started == self.programs.expected() {
            return failed("init started a program out of sequence");
        }
        self.running = true;
        self.started += 1;
        self.programs.start(exec);
        Ok(())
    }

    fn check_exit(&self, exited: &Exited) -> Result<(), Error> {
        if let Some(message) = &self.panic {
            return failed(message);
        }
        let serial = self.serial.lines_from(PANIC, 6);
        let output = [serial, self.emulator_log()].join("\n");
        let failed = |what: &str| failed(format!("{what}\n{}", output.trim()).trim_end());
        let Emulator {
            name,
            done,
            stopped,
            usual: _,
        } = self.emulator;
        match (exited.status.code(), self.done) {
            (Some(status), true) if status == done => {
                if self.started == self.programs.expected() {
                    Ok(())
                } else {
                    failed("init skipped programs")
                }
            }
            (Some(status), _) if status == stopped => failed(STOPPED),
            (Some(status), _) => failed(&format!("{name} ended with status {status}")),
            (None, _) => failed(&format!(
                "{name} ended by signal {}",
                exited.status.signal().unwrap_or_default()
            )),
        }
    }
}

/// Lines of an emulator's log that are shown after a failure.
const EMULATOR_LINES: usize = 3;

const STOPPED: &str = "its Linux stopped";

/// Start of the line that Xen prints before it waits for five seconds, which an emulator executes, and resets the machine.
const DOM0_CRASHED: &[u8] = b"(XEN) Hardware Dom0 crashed";

/// Bytes of a line that are compared.
const MAX_LINE: usize = 64;

/// Kernel message before the reason of a panic.
const PANIC: &str = "Kernel panic - not syncing";

fn failed(reason: impl Into<String>) -> Result<(), Error> {
    Err(Error::Machine(reason.into()))
}

impl<I: ProgramObserver> OutputHandler for MachineOutput<I> {
    fn console(&mut self, bytes: &[u8], _: u64, _: &mut dyn UsageProbe) {
        let Self { decoder, state } = self;
        state.bytes += bytes.len() as u64;
        state.hash.update(bytes);
        decoder.feed(bytes, &mut |item| state.item(item));
    }

    fn errors(&mut self, bytes: &[u8]) {
        self.state.errors.extend(bytes);
    }

    /// Descriptor 3 of a simulated machine is its serial port.
    fn events(&mut self, bytes: &[u8]) {
        self.state.bytes += bytes.len() as u64;
        bytes.iter().for_each(|byte| self.state.print(*byte));
    }

    fn check(&mut self) -> Result<(), Error> {
        if self.state.bytes > self.state.programs.byte_limit() {
            let output = self.last_output();
            return Err(Error::Flooded { output });
        }
        if self.state.has_crashed {
            return failed(format!("{STOPPED}\n{}", self.last_output()));
        }
        self.state.error.take().map_or(Ok(()), Err)
    }

    fn last_output(&self) -> String {
        self.state.serial.lines_from(PANIC, 6)
    }
}
