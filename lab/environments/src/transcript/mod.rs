//! From the bytes that one guest sent to an account of what it did. Pure: no
//! process, no clock, so that the most hostile guest can be played in a test.
//!
//! A guest's console is untrusted. Whatever arrives, memory stays bounded: so
//! many samples an operation, so much log, so many problems, and after
//! [`MOST_BYTES`] the guest counts as flooding. Nothing that it says about itself
//! is believed without the check that is possible: an operation must have been
//! asked for, must end once, and must have sent what it says it sent.

mod draft;
mod heard;
mod log;
#[cfg(test)]
mod tests;
mod window;

pub use log::Log;
pub use window::{Lateness, Window};

use heard::Heard;
use std::collections::BTreeMap;
use trapline_abi::job::Wait;
use trapline_abi::record::Speaker;
use trapline_abi::{Counter, Decoder, Job, Op, OpSet, Stage, VERSION};
use trapline_model::irq;
use trapline_model::observed::Operation;

/// Bytes of all streams of one guest after which it counts as flooding, unless it was
/// asked for more, see [`most_bytes`].
pub const MOST_BYTES: u64 = 64 << 20;

/// Bytes that an interrupt takes in a record at the most, nearly always far fewer.
const INTERRUPT_BYTES: u64 = 64;

/// Bytes of all streams after which a guest with this job counts as flooding. One that
/// was asked to flood its console is limited by time alone: what it writes is not kept.
pub fn most_bytes(job: &Job) -> u64 {
    let timers = (job.run & irq::operations()).count_ones();
    match (timers, job.between) {
        (1.., Wait::Flood) => u64::MAX,
        _ => MOST_BYTES + u64::from(timers) * u64::from(job.expiries) * INTERRUPT_BYTES,
    }
}

/// What can be seen of a VMM from outside, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// CPU time of its process so far, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// Exits of its guest so far, as the kernel counts them.
    pub exits: Option<u64>,
}

/// Somebody who can look at a VMM when its guest begins or ends something.
pub trait Witness {
    /// Looks.
    fn look(&mut self) -> Seen;
}

/// A witness who sees nothing.
pub struct Blind;

impl Witness for Blind {
    fn look(&mut self) -> Seen {
        Seen::default()
    }
}

/// What a guest says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version it was built with.
    pub version: u16,
    /// Who speaks.
    pub speaker: Speaker,
    /// Its ring.
    pub ring: u8,
    /// Its memory, in bytes.
    pub memory: u64,
}

/// How a guest's words end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It said that it was done.
    Done,
    /// It panicked.
    Panicked(String),
    /// In the middle.
    Cut,
}

/// How time passed from an early batch of an operation to a late one: by the
/// guest's clock and by ours, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    /// Which operation.
    pub op: Op,
    /// By the guest's clock.
    pub guest: u64,
    /// By ours.
    pub host: u64,
}

/// What one guest did from its start to its end, in ticks of its own clock
/// where nothing else is said.
#[derive(Debug)]
pub struct Account {
    /// The set of operations it was asked for.
    pub asked: OpSet,
    /// What it said of itself.
    pub hello: Option<Hello>,
    /// Stages of the guest.
    pub stages: BTreeMap<Stage, u64>,
    /// Stages of its VMM, in ticks of our clock.
    pub vmm_stages: BTreeMap<Stage, u64>,
    /// What its VMM counted.
    pub counters: BTreeMap<Counter, u64>,
    /// What came of each operation asked for, those of the boot workload excepted.
    pub operations: Vec<Operation>,
    /// Time by two clocks, for operations that were measured.
    pub elapsed: Vec<Elapsed>,
    /// The least difference between when we heard something and when the guest
    /// says it said it. The difference of the clocks is at most this.
    pub lag: Option<i64>,
    /// What else it printed.
    pub log: String,
    /// What its VMM wrote to its standard error.
    pub errors: String,
    /// What was wrong.
    pub problems: Vec<String>,
    /// How it ended.
    pub ending: Ending,
}

/// Listens to one guest.
pub struct Transcript {
    console: Decoder,
    events: Decoder,
    /// What comes after the guest's last record is not that guest's.
    ends_with_last_record: bool,
    most_bytes: u64,
    heard: Heard,
}

impl Transcript {
    /// Listens to a guest that was given `job`.
    pub fn new(job: &Job) -> Self {
        Self {
            console: Decoder::new(),
            events: Decoder::new(),
            ends_with_last_record: false,
            most_bytes: most_bytes(job),
            heard: Heard::new(job),
        }
    }

    /// Listens no more after the guest's last record: a VMM that we know nothing
    /// about may print what it likes then, or even start the guest again.
    pub fn to_the_last_record(job: &Job) -> Self {
        Self {
            ends_with_last_record: true,
            ..Self::new(job)
        }
    }

    /// The guest reads the clock of whoever started it.
    pub fn on_one_clock(mut self) -> Self {
        self.heard.one_clock = true;
        self
    }

    /// Takes what the guest wrote to its console, heard at `at` ticks of our
    /// clock if that is known.
    pub fn console(&mut self, bytes: &[u8], at: Option<u64>, witness: &mut dyn Witness) {
        let Self {
            console,
            heard,
            ends_with_last_record,
            ..
        } = self;
        heard.bytes += bytes.len() as u64;
        heard.console_bytes += bytes.len() as u64;
        console.feed(bytes, &mut |item| {
            if !(*ends_with_last_record && heard.ending != Ending::Cut) {
                heard.item(item, at, witness);
            }
        });
    }

    /// Takes what the VMM told of itself.
    pub fn events(&mut self, bytes: &[u8]) {
        let Self { events, heard, .. } = self;
        heard.bytes += bytes.len() as u64;
        events.feed(bytes, &mut |item| heard.event(item));
    }

    /// Takes what the VMM wrote to its standard error.
    pub fn errors(&mut self, bytes: &[u8]) {
        self.heard.bytes += bytes.len() as u64;
        self.heard.errors.extend(bytes);
    }

    /// Whether it has sent more than any honest guest would.
    pub fn flooded(&self) -> bool {
        self.heard.bytes > self.most_bytes
    }

    /// The version of a guest that speaks another one than we do.
    pub fn foreign_version(&self) -> Option<u16> {
        let version = self.heard.hello?.version;
        (version != VERSION).then_some(version)
    }

    /// The operation that it is telling.
    pub fn doing(&self) -> Option<Op> {
        self.heard.draft.as_ref().map(|draft| draft.op)
    }

    /// Windows of interrupts that it has told since this was last asked.
    pub fn take_windows(&mut self) -> Vec<Window> {
        std::mem::take(&mut self.heard.windows)
    }

    /// Whether it said anything that is a guest's to say.
    pub fn spoke(&self) -> bool {
        self.heard.hello.is_some() || self.heard.ending != Ending::Cut
    }

    /// How its words end, as far as they were heard.
    pub fn ending(&self) -> &Ending {
        &self.heard.ending
    }

    /// The last that it or its VMM said, for a message about its end.
    pub fn last_words(&self) -> String {
        let heard = &self.heard;
        let lines = [heard.log.last_lines(3), heard.errors.last_lines(3)];
        let lines: Vec<_> = lines.into_iter().filter(|text| !text.is_empty()).collect();
        lines.join("\n")
    }

    /// The streams have ended: what was held back as the beginning of a frame is
    /// none, and may have whole frames in it.
    pub fn close(&mut self) {
        let Self {
            console,
            events,
            heard,
            ends_with_last_record,
            ..
        } = self;
        console.finish(&mut |item| {
            if !(*ends_with_last_record && heard.ending != Ending::Cut) {
                heard.item(item, None, &mut Blind);
            }
        });
        events.finish(&mut |item| heard.event(item));
    }

    /// The account of it. Operations that were not reached have failed for the
    /// reason `unreached`.
    pub fn finish(mut self, unreached: &str) -> Account {
        self.close();
        self.heard.finish(unreached)
    }
}
