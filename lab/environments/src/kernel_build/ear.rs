//! Hearing who builds: when `make` began and ended, by the clock of its machine and, as
//! far as that matters, when we heard of it, and what it has made.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use trapline_abi::record::Channel;
use trapline_abi::{Decoder, Item, Record, VERSION};
use trapline_host::process::{Exited, OutputHandler};
use trapline_host::Error;
use trapline_protocol::{Log, UsageProbe, MAX_BYTES};

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Object files.
    pub objects: u32,
    /// Symbols that they define and use.
    pub symbols: u64,
    /// The SHA-256 of names and sizes of all of them.
    pub hash: String,
}

/// A build that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// How long it took by the clock of the Linux in which it ran, in nanoseconds.
    pub own_ns: u64,
    /// The same by the time stamp counter there, in ticks.
    pub ticks: u64,
    /// When we heard of its beginning and its end, in ticks of our clock.
    pub at: Option<(u64, u64)>,
    /// What was made.
    pub proof: Proof,
}

/// A moment: there, and here if that is known.
type Moment = (u64, Option<u64>);

/// Hears one that builds.
#[derive(Default)]
pub struct Builder {
    decoder: Decoder,
    state: State,
}

#[derive(Default)]
struct State {
    began: Option<Moment>,
    ended: Option<Moment>,
    told: String,
    trouble: Option<String>,
    version: Option<u16>,
    done: bool,
    log: Log,
    bytes: u64,
}

impl Builder {
    /// Takes what it said, heard at `at` ticks of our clock if that means anything.
    pub fn hear(&mut self, bytes: &[u8], at: Option<u64>) {
        let Self { decoder, state } = self;
        state.bytes += bytes.len() as u64;
        decoder.feed(bytes, &mut |item| state.item(&item, at));
    }

    /// What came of it.
    ///
    /// # Errors
    /// Nothing good.
    pub fn finish(mut self) -> Result<Heard, Error> {
        let Self { decoder, state } = &mut self;
        decoder.finish(&mut |item| state.item(&item, None));
        self.state.finish()
    }

    /// The same of one whose process has ended so.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_after(self, program: &str, over: &Exited) -> Result<Heard, Error> {
        let words = self.state.log.last_lines(6);
        let finished = self.finish();
        match (&finished, over.status.signal(), over.status.code()) {
            (Err(Error::NoDone { .. }), Some(signal), _) => Err(Error::Killed {
                program: program.to_owned(),
                signal,
                output: words,
            }),
            (Err(Error::NoDone { .. }), _, Some(status)) if status != 0 => Err(Error::Failed {
                program: program.to_owned(),
                status,
                output: words,
            }),
            _ => finished,
        }
    }
}

impl State {
    fn item(&mut self, item: &Item<'_>, at: Option<u64>) {
        match item {
            Item::Text(byte) => self.log.push(*byte),
            Item::Damaged => {}
            Item::Record(record, said) => self.record(record, (*said, at)),
        }
    }

    fn record(&mut self, record: &Record<'_>, moment: Moment) {
        match *record {
            Record::Hello { version, .. } if version != VERSION => self.version = Some(version),
            Record::Launch { .. } => self.began = Some(moment),
            Record::Reaped { .. } => self.ended = Some(moment),
            Record::Relay {
                channel: Channel::Events,
                bytes,
                ..
            } => self.told += &String::from_utf8_lossy(bytes),
            Record::Panic { message } => self.trouble = Some(message.to_owned()),
            Record::Done => self.done = true,
            _ => {}
        }
    }

    fn finish(self) -> Result<Heard, Error> {
        if let Some(theirs) = self.version {
            return Err(Error::Version { theirs });
        }
        if let Some(trouble) = self.trouble {
            return Err(Error::KernelBuild(trouble));
        }
        let (Some(began), Some(ended), true) = (self.began, self.ended, self.done) else {
            let words = self.log.last_lines(6);
            return Err(Error::NoDone { output: words });
        };
        let damaged = || Error::KernelBuild("what it told of its work is damaged".to_owned());
        Ok(Heard {
            own_ns: number(&self.told, "nanoseconds").ok_or_else(damaged)?,
            ticks: ended.0.saturating_sub(began.0),
            at: began.1.zip(ended.1),
            proof: proof(&self.told).ok_or_else(damaged)?,
        })
    }
}

fn proof(told: &str) -> Option<Proof> {
    let hash = value(told, "proof")?;
    let whole = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    whole.then_some(())?;
    Some(Proof {
        objects: number(told, "objects")?,
        symbols: number(told, "symbols")?,
        hash: hash.to_owned(),
    })
}

fn number<N: std::str::FromStr>(told: &str, name: &str) -> Option<N> {
    value(told, name)?.parse().ok()
}

fn value<'a>(told: &'a str, name: &str) -> Option<&'a str> {
    let words = told.lines().filter_map(|line| line.split_once(' '));
    words
        .clone()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

impl OutputHandler for Builder {
    fn console(&mut self, bytes: &[u8], at: u64, _: &mut dyn UsageProbe) {
        self.hear(bytes, Some(at));
    }

    fn errors(&mut self, bytes: &[u8]) {
        self.state.bytes += bytes.len() as u64;
        self.state.log.extend(bytes);
    }

    /// What a VMM tells of itself is not asked for here.
    fn events(&mut self, bytes: &[u8]) {
        self.state.bytes += bytes.len() as u64;
    }

    fn check(&mut self) -> Result<(), Error> {
        match self.state.bytes > MAX_BYTES {
            true => Err(Error::Flooded {
                output: self.last_output(),
            }),
            false => Ok(()),
        }
    }

    fn is_complete(&mut self, _: Duration) -> Result<bool, Error> {
        Ok(false)
    }

    fn last_output(&self) -> String {
        self.state.log.last_lines(6)
    }
}

/// Hears a program whose words are of interest only if it fails.
#[derive(Default)]
pub struct Words(Log);

impl Words {
    /// The last of them.
    pub fn last(&self) -> String {
        self.0.last_lines(8)
    }
}

impl OutputHandler for Words {
    fn console(&mut self, bytes: &[u8], _: u64, _: &mut dyn UsageProbe) {
        self.0.extend(bytes);
    }

    fn errors(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    fn events(&mut self, _: &[u8]) {}

    fn check(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn last_output(&self) -> String {
        self.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::frame::{encode, MAX_FRAME};

    fn say(builder: &mut Builder, record: &Record<'_>, said: u64, at: u64) {
        let mut frame = [0; MAX_FRAME];
        let length = encode(record, said, &mut frame).unwrap();
        builder.hear(&frame[..length], Some(at));
    }

    fn told(proof: &str) -> Builder {
        let mut builder = Builder::default();
        builder.hear(b"Linux boots\n", Some(1));
        say(&mut builder, &Record::Launch { child: 0 }, 1000, 5000);
        let reaped = Record::Reaped {
            child: 0,
            status: 0,
            peak_kib: 1,
        };
        say(&mut builder, &reaped, 4000, 8010);
        let text = format!("nanoseconds 2999\nobjects 2\nsymbols 7\nproof {proof}\n");
        let relay = Record::Relay {
            child: 0,
            channel: Channel::Events,
            bytes: text.as_bytes(),
        };
        say(&mut builder, &relay, 4100, 8100);
        builder
    }

    #[test]
    fn two_clocks_and_the_proof_are_heard() {
        let mut builder = told(&"a".repeat(64));
        say(&mut builder, &Record::Done, 4200, 8200);
        let heard = builder.finish().unwrap();
        assert_eq!((heard.own_ns, heard.ticks), (2999, 3000));
        assert_eq!(heard.at, Some((5000, 8010)));
        assert_eq!((heard.proof.objects, heard.proof.symbols), (2, 7));
    }

    #[test]
    fn half_a_build_is_none() {
        let cut = told(&"a".repeat(64)).finish().unwrap_err().to_string();
        assert!(cut.contains("Linux boots"), "{cut}");
        let mut short = told("abc");
        say(&mut short, &Record::Done, 4200, 8200);
        assert!(short.finish().unwrap_err().to_string().contains("damaged"));
        let mut failed = told(&"a".repeat(64));
        let message = "make failed: no rule";
        say(&mut failed, &Record::Panic { message }, 4200, 8200);
        let told = failed.finish().unwrap_err().to_string();
        assert_eq!(told, "kernel build failed: make failed: no rule");
    }
}
