//! Hearing a simulated machine: one stream that carries what its init says, and
//! inside it what each guest said.

use crate::environment::{Progress, SampleSink};
use crate::error::EnvError;
use crate::guest::{judge, not_told, Statuses};
use crate::observe::{Finished, Offset};
use crate::parts::hexadecimal;
use crate::process::{Ear, Over};
use crate::transcript::{Blind, Log, Transcript, Witness, MOST_BYTES};
use sha2::{Digest, Sha256};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use trapline_abi::platform::EXIT_STATUS_DONE;
use trapline_abi::record::Channel;
use trapline_abi::{Decoder, Item, Job, Record, VERSION};

/// What a machine's guests are, as far as hearing them needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Inside {
    /// What their programs' exit statuses mean.
    pub statuses: Statuses,
    /// How their clock relates to the machine's.
    pub offset: Offset,
    /// The name of the program that runs them.
    pub program: &'static str,
}

/// Hears a machine.
pub struct MachineEar<'a> {
    decoder: Decoder,
    state: State<'a>,
}

struct State<'a> {
    inside: Inside,
    jobs: &'a [Job],
    current: Option<Current>,
    launched: usize,
    /// What to object to, found while decoding.
    objection: Option<EnvError>,
    done: bool,
    last_words: Option<String>,
    serial: Log,
    errors: Log,
    hash: Sha256,
    bytes: u64,
    out: &'a mut dyn SampleSink,
}

/// The guest that runs now.
struct Current {
    transcript: Transcript,
    child: u16,
    exec: u64,
}

impl<'a> MachineEar<'a> {
    /// Hears a machine that runs `jobs` one after the other.
    pub fn new(inside: Inside, jobs: &'a [Job], out: &'a mut dyn SampleSink) -> Self {
        Self {
            decoder: Decoder::new(),
            state: State {
                inside,
                jobs,
                current: None,
                launched: 0,
                objection: None,
                done: false,
                last_words: None,
                serial: Log::default(),
                errors: Log::default(),
                hash: Sha256::new(),
                bytes: 0,
                out,
            },
        }
    }

    /// The machine has ended, or is not heard any more.
    ///
    /// # Errors
    /// It did not end well.
    pub fn finish(mut self, heard: Result<Over, EnvError>) -> Result<(), EnvError> {
        let Self { decoder, state } = &mut self;
        decoder.finish(&mut |item| state.item(item));
        let judged = heard.and_then(|over| state.judge(&over));
        let unreached = judged
            .as_ref()
            .err()
            .map_or_else(not_told, EnvError::to_string);
        state.cut(&unreached);
        let hash = hexadecimal(&state.hash.clone().finalize());
        state.out.fact(STREAM_HASH, hash);
        judged
    }
}

/// The fact that two runs of a simulated machine have in common if all that they
/// said was the same, byte for byte.
pub const STREAM_HASH: &str = "stream-sha256";

impl State<'_> {
    fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Text(byte) => self.serial.push(byte),
            Item::Damaged => self.object("a record of its init is damaged".to_owned()),
            Item::Record(record, at) => self.record(&record, at),
        }
    }

    fn record(&mut self, record: &Record<'_>, at: u64) {
        match *record {
            Record::Hello { version, .. } if version != VERSION => {
                self.objection = Some(EnvError::Version { theirs: version });
            }
            Record::Hello { .. } => {}
            Record::Launch { child } => self.launch(child, at),
            Record::Relay {
                child,
                channel,
                bytes,
            } => self.relay(child, channel, bytes),
            Record::Reaped { child, status, .. } => self.reaped(child, status, at),
            Record::Panic { message } => self.last_words = Some(message.to_owned()),
            Record::Done => self.done = true,
            _ => self.object("its init said what only a guest or VMM says".to_owned()),
        }
    }

    fn object(&mut self, reason: String) {
        if self.objection.is_none() {
            self.objection = Some(EnvError::Machine(reason));
        }
    }

    fn launch(&mut self, child: u16, exec: u64) {
        let number = self.launched;
        let of = self.jobs.len();
        match self.jobs.get(number) {
            Some(job) if self.current.is_none() && usize::from(child) == number => {
                self.out.progress(Progress::Launch { number, of });
                self.current = Some(Current {
                    transcript: Transcript::new(job),
                    child,
                    exec,
                });
                self.launched += 1;
            }
            _ => self.object(format!("guest {child} started out of turn")),
        }
    }

    fn relay(&mut self, child: u16, channel: Channel, bytes: &[u8]) {
        let Some(current) = self.current.as_mut().filter(|now| now.child == child) else {
            return self.object(format!("guest {child} spoke out of turn"));
        };
        match channel {
            Channel::Console => current.transcript.console(bytes, None, &mut Blind),
            Channel::Events => current.transcript.events(bytes),
            Channel::Errors => current.transcript.errors(bytes),
        }
        if current.transcript.flooded() {
            let words = current.transcript.last_words();
            self.objection = Some(EnvError::Flooded { words });
        }
    }

    fn reaped(&mut self, child: u16, status: u32, at: u64) {
        let Some(current) = self.current.take_if(|now| now.child == child) else {
            return self.object(format!("guest {child} ended out of turn"));
        };
        let status = ExitStatus::from_raw(status as i32);
        let Inside {
            program, statuses, ..
        } = self.inside;
        let judged = match current.transcript.foreign_version() {
            Some(theirs) => Err(EnvError::Version { theirs }),
            None => judge(program, status, statuses, &current.transcript),
        };
        let unreached = judged
            .as_ref()
            .err()
            .map_or_else(not_told, EnvError::to_string);
        self.hand_on(current, Some(at), &unreached);
        if let (Err(error), true) = (judged, self.objection.is_none()) {
            self.objection = Some(error);
        }
    }

    /// A guest whose end was not told is over too.
    fn cut(&mut self, unreached: &str) {
        if let Some(current) = self.current.take() {
            self.hand_on(current, None, unreached);
        }
    }

    fn hand_on(&mut self, current: Current, reaped: Option<u64>, unreached: &str) {
        let account = current.transcript.finish(unreached);
        self.out.finished(Finished {
            account,
            exec: current.exec,
            reaped,
            offset: self.inside.offset,
            own_memory: None,
        });
    }

    fn judge(&self, over: &Over) -> Result<(), EnvError> {
        if let Some(words) = &self.last_words {
            return Err(EnvError::Machine(words.clone()));
        }
        let words = [self.serial.last_lines(6), self.errors.last_lines(3)].join("\n");
        let failed = |what: String| Err(EnvError::Machine(format!("{what}\n{}", words.trim())));
        match (over.status.code(), self.done) {
            (Some(EXIT_STATUS_DONE), true) if self.launched == self.jobs.len() => Ok(()),
            (Some(EXIT_STATUS_DONE), true) => failed("it left guests out".to_owned()),
            (Some(0), _) => failed("its Linux stopped".to_owned()),
            (Some(status), _) => failed(format!("QEMU ended with status {status}")),
            (None, _) => failed(format!(
                "QEMU was ended by signal {}",
                over.status.signal().unwrap_or_default()
            )),
        }
    }
}

impl Ear for MachineEar<'_> {
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
        if self.state.bytes > 2 * MOST_BYTES {
            let words = self.last_words();
            return Err(EnvError::Flooded { words });
        }
        self.state.objection.take().map_or(Ok(()), Err)
    }

    fn last_words(&self) -> String {
        self.state.serial.last_lines(3)
    }
}
