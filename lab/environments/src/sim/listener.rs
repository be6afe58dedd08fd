//! Hearing a simulated machine: one stream in which its init tells which program
//! started, what it wrote, and how it ended. What the programs are is the
//! business of [`Inmates`]: guests here, any programs in `programs`.

use super::script::{patience, PATIENCE};
use crate::custom::Foreign;
use crate::environment::{Progress, SampleSink};
use crate::error::EnvError;
use crate::guest::{judge, not_told, Statuses};
use crate::observe::{Finished, Offset};
use crate::parts::hexadecimal;
use crate::process::{Ear, Over};
use crate::transcript::{most_bytes, Blind, Ending, Log, Transcript, Witness, MOST_BYTES};
use sha2::{Digest, Sha256};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use trapline_abi::platform::EXIT_STATUS_DONE;
use trapline_abi::record::Channel;
use trapline_abi::{Decoder, Item, Job, Record, VERSION};

/// The programs of a machine, which run one after the other. An error of any of
/// these ends the machine.
pub trait Inmates {
    /// How many there are to be.
    fn expected(&self) -> usize;

    /// Bytes of a machine after which it counts as flooding.
    fn most_bytes(&self) -> u64 {
        2 * MOST_BYTES
    }

    /// The next starts, at `exec` ticks of the machine's clock.
    fn start(&mut self, exec: u64);

    /// It wrote something.
    ///
    /// # Errors
    /// It is not to be heard any longer.
    fn relay(&mut self, channel: Channel, bytes: &[u8]) -> Result<(), EnvError>;

    /// It has ended, at `at` ticks of the machine's clock.
    ///
    /// # Errors
    /// It has not ended well.
    fn end(&mut self, status: ExitStatus, at: u64) -> Result<(), EnvError>;

    /// It is heard no more, because of this.
    fn cut(&mut self, because: &str);
}

/// What ends with a machine, and with which statuses.
#[derive(Clone, Copy, Debug)]
pub struct Emulator {
    /// Its name.
    pub name: &'static str,
    /// Its init ended the machine.
    pub done: i32,
    /// Its Linux ended it.
    pub stopped: i32,
}

impl Emulator {
    /// QEMU, with an exit device.
    pub const QEMU: Self = Self {
        name: "QEMU",
        done: EXIT_STATUS_DONE,
        stopped: 0,
    };
}

/// Hears a machine.
pub struct MachineEar<I> {
    decoder: Decoder,
    state: State<I>,
}

struct State<I> {
    emulator: Emulator,
    inmates: I,
    running: bool,
    started: usize,
    /// What to object to, found while decoding.
    objection: Option<EnvError>,
    done: bool,
    last_words: Option<String>,
    serial: Log,
    errors: Log,
    hash: Sha256,
    bytes: u64,
}

impl<I: Inmates> MachineEar<I> {
    /// Hears a machine with these inmates.
    pub fn new(emulator: Emulator, inmates: I) -> Self {
        Self {
            decoder: Decoder::new(),
            state: State {
                emulator,
                inmates,
                running: false,
                started: 0,
                objection: None,
                done: false,
                last_words: None,
                serial: Log::default(),
                errors: Log::default(),
                hash: Sha256::new(),
                bytes: 0,
            },
        }
    }

    /// The machine has ended, or is not heard any more. Gives the inmates back and
    /// the hash of all that was said.
    pub fn finish(mut self, heard: Result<Over, EnvError>) -> (I, String, Result<(), EnvError>) {
        let Self { decoder, state } = &mut self;
        decoder.finish(&mut |item| state.item(item));
        let judged = heard.and_then(|over| state.judge(&over));
        if std::mem::take(&mut state.running) {
            let because = judged
                .as_ref()
                .err()
                .map_or_else(not_told, EnvError::to_string);
            state.inmates.cut(&because);
        }
        let hash = hexadecimal(&self.state.hash.finalize());
        (self.state.inmates, hash, judged)
    }
}

impl<I: Inmates> State<I> {
    fn item(&mut self, item: Item<'_>) {
        let taken = match item {
            Item::Text(byte) => {
                self.serial.push(byte);
                Ok(())
            }
            Item::Damaged => machine("a record of its init is damaged"),
            Item::Record(record, at) => self.record(&record, at),
        };
        if let (Err(error), true) = (taken, self.objection.is_none()) {
            self.objection = Some(error);
        }
    }

    fn record(&mut self, record: &Record<'_>, at: u64) -> Result<(), EnvError> {
        match *record {
            Record::Hello { version, .. } if version != VERSION => {
                return Err(EnvError::Version { theirs: version });
            }
            Record::Hello { .. } => {}
            Record::Launch { child } => return self.launch(child, at),
            Record::Relay {
                child,
                channel,
                bytes,
            } if self.runs(child) => return self.inmates.relay(channel, bytes),
            Record::Reaped { child, status, .. } if self.runs(child) => {
                self.running = false;
                let status = ExitStatus::from_raw(status as i32);
                return self.inmates.end(status, at);
            }
            Record::Panic { message } => self.last_words = Some(message.to_owned()),
            Record::Done => self.done = true,
            _ => return machine("its init spoke out of turn"),
        }
        Ok(())
    }

    /// Whether `child` is the program that runs now.
    fn runs(&self, child: u16) -> bool {
        self.running && usize::from(child) + 1 == self.started
    }

    fn launch(&mut self, child: u16, exec: u64) -> Result<(), EnvError> {
        let in_turn = !self.running && usize::from(child) == self.started;
        if !in_turn || self.started == self.inmates.expected() {
            return machine("its init started a program out of turn");
        }
        self.running = true;
        self.started += 1;
        self.inmates.start(exec);
        Ok(())
    }

    fn judge(&self, over: &Over) -> Result<(), EnvError> {
        if let Some(words) = &self.last_words {
            return machine(words);
        }
        let serial = self.serial.lines_from(PANIC, 6);
        let words = [serial, self.errors.last_lines(3)].join("\n");
        let failed = |what: &str| machine(format!("{what}\n{}", words.trim()).trim_end());
        let Emulator {
            name,
            done,
            stopped,
        } = self.emulator;
        match (over.status.code(), self.done) {
            (Some(status), true) if status == done => {
                match self.started == self.inmates.expected() {
                    true => Ok(()),
                    false => failed("it left programs out"),
                }
            }
            (Some(status), _) if status == stopped => failed("its Linux stopped"),
            (Some(status), _) => failed(&format!("{name} ended with status {status}")),
            (None, _) => failed(&format!(
                "{name} was ended by signal {}",
                over.status.signal().unwrap_or_default()
            )),
        }
    }
}

/// What a Linux says when it cannot go on, with the reason behind it.
const PANIC: &str = "Kernel panic - not syncing";

fn machine(what: impl Into<String>) -> Result<(), EnvError> {
    Err(EnvError::Machine(what.into()))
}

impl<I: Inmates> Ear for MachineEar<I> {
    fn console(&mut self, bytes: &[u8], _: u64, _: &mut dyn Witness) {
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
        self.state.serial.extend(bytes);
    }

    fn consider(&mut self) -> Result<(), EnvError> {
        if self.state.bytes > self.state.inmates.most_bytes() {
            let words = self.last_words();
            return Err(EnvError::Flooded { words });
        }
        self.state.objection.take().map_or(Ok(()), Err)
    }

    fn last_words(&self) -> String {
        self.state.serial.lines_from(PANIC, 6)
    }
}

/// What a machine's guests are, as far as hearing them needs to know.
#[derive(Clone, Debug)]
pub struct Inside {
    /// What their programs' exit statuses mean.
    pub statuses: Statuses,
    /// How their clock relates to the machine's.
    pub offset: Offset,
    /// The name of the program that runs them.
    pub program: &'static str,
    /// That program, if it is one that knows nothing of Trapline.
    pub foreign: Option<Foreign>,
}

/// Inmates that run jobs.
pub struct Guests<'a> {
    inside: Inside,
    jobs: &'a [Job],
    number: usize,
    current: Option<(Transcript, u64)>,
    out: &'a mut dyn SampleSink,
}

impl<'a> Guests<'a> {
    /// Guests that run `jobs` one after the other.
    pub fn new(inside: Inside, jobs: &'a [Job], out: &'a mut dyn SampleSink) -> Self {
        Self {
            inside,
            jobs,
            number: 0,
            current: None,
            out,
        }
    }

    fn hand_on(&mut self, reaped: Option<u64>, outstayed: bool, unreached: &str) {
        if let Some((transcript, exec)) = self.current.take() {
            self.out.finished(Finished {
                account: transcript.finish(unreached),
                exec,
                reaped: reaped.filter(|_| !outstayed),
                offset: self.inside.offset,
                own_memory: None,
                outstayed,
            });
        }
    }

    fn judge(&self, status: ExitStatus, at: u64) -> Result<(), EnvError> {
        let Some((transcript, exec)) = &self.current else {
            return Ok(());
        };
        let after = Duration::from_nanos(at.saturating_sub(*exec));
        let patience = self.job().map_or(PATIENCE, patience);
        if status.signal() == Some(libc::SIGKILL) && after >= patience {
            let words = transcript.last_words();
            return Err(EnvError::Lingered { after, words });
        }
        if let Some(theirs) = transcript.foreign_version() {
            return Err(EnvError::Version { theirs });
        }
        if let (Some(foreign), Some(job)) = (&self.inside.foreign, self.job()) {
            return foreign.judge(job, status, transcript);
        }
        let Inside {
            program, statuses, ..
        } = self.inside;
        judge(program, status, statuses, transcript)
    }

    /// What the guest that runs now was asked.
    fn job(&self) -> Option<&Job> {
        self.jobs.get(self.number.checked_sub(1)?)
    }

    /// Whether the guest of a VMM that we know nothing about is done.
    fn is_done(&self) -> bool {
        let ending = self
            .current
            .as_ref()
            .map(|(transcript, _)| transcript.ending());
        self.inside.foreign.is_some() && ending == Some(&Ending::Done)
    }
}

impl Inmates for Guests<'_> {
    fn expected(&self) -> usize {
        self.jobs.len()
    }

    /// Twice what its guests may write: init wraps it, and has to say something, too.
    fn most_bytes(&self) -> u64 {
        let largest = self.jobs.iter().map(most_bytes).max();
        largest.unwrap_or(MOST_BYTES).saturating_mul(2)
    }

    fn start(&mut self, exec: u64) {
        let (number, of) = (self.number, self.jobs.len());
        self.out.progress(Progress::Launch { number, of });
        let listen = match self.inside.foreign {
            Some(_) => Transcript::to_the_last_record,
            None => Transcript::new,
        };
        self.current = Some((listen(&self.jobs[number]), exec));
        self.number += 1;
    }

    fn relay(&mut self, channel: Channel, bytes: &[u8]) -> Result<(), EnvError> {
        let Some((transcript, _)) = &mut self.current else {
            return Ok(());
        };
        match channel {
            Channel::Console => {
                transcript.console(bytes, None, &mut Blind);
                for window in transcript.take_windows() {
                    self.out.progress(Progress::Window(window));
                }
            }
            Channel::Events => transcript.events(bytes),
            Channel::Errors => transcript.errors(bytes),
        }
        if transcript.flooded() {
            let words = transcript.last_words();
            return Err(EnvError::Flooded { words });
        }
        Ok(())
    }

    fn end(&mut self, status: ExitStatus, at: u64) -> Result<(), EnvError> {
        if let Some((transcript, _)) = &mut self.current {
            transcript.close();
        }
        let judged = self.judge(status, at);
        let unreached = judged
            .as_ref()
            .err()
            .map_or_else(not_told, EnvError::to_string);
        let outstayed = self.is_done() && status.signal() == Some(libc::SIGKILL);
        self.hand_on(Some(at), outstayed, &unreached);
        judged
    }

    fn cut(&mut self, because: &str) {
        self.hand_on(None, false, because);
    }
}

#[cfg(test)]
mod tests;
