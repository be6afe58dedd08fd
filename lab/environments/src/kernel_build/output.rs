//! Decodes the output of a build: begin and end of `make` on the clock of its machine, their arrival on the
//! clock of this host, and the result.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use trapline_abi::record::Channel;
use trapline_abi::{Decoder, Item, Record, VERSION};
use trapline_host::process::{Exited, OutputHandler};
use trapline_host::Error;
use trapline_protocol::{Log, UsageProbe, MAX_BYTES};

/// Result of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Object files.
    pub objects: u32,
    /// Symbols that they define and use.
    pub symbols: u64,
    /// SHA-256 of names and sizes of all symbols.
    pub hash: String,
}

/// Times and result of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildReport {
    /// Duration on the clock of the Linux in which it ran, in nanoseconds.
    pub own_ns: u64,
    /// Duration on the TSC there, in ticks.
    pub ticks: u64,
    /// Arrival of its begin and its end, in ticks of the host clock.
    pub arrival: Option<(u64, u64)>,
    /// Result.
    pub proof: Proof,
}

/// Time of a record on the clock of its sender, and of its arrival on the host clock.
type Times = (u64, Option<u64>);

/// Decodes the output of a build.
#[derive(Default)]
pub struct BuildDecoder {
    decoder: Decoder,
    state: State,
}

#[derive(Default)]
struct State {
    began: Option<Times>,
    ended: Option<Times>,
    result: String,
    panic: Option<String>,
    version: Option<u16>,
    done: bool,
    log: Log,
    bytes: u64,
}

impl BuildDecoder {
    /// Decodes console output that arrived at `at` ticks of the host clock.
    pub fn decode(&mut self, bytes: &[u8], at: Option<u64>) {
        let Self { decoder, state } = self;
        state.bytes += bytes.len() as u64;
        decoder.feed(bytes, &mut |item| state.item(&item, at));
    }

    /// Returns the report of the build.
    ///
    /// # Errors
    /// The build failed, or its output is incomplete.
    pub fn finish(mut self) -> Result<BuildReport, Error> {
        let Self { decoder, state } = &mut self;
        decoder.finish(&mut |item| state.item(&item, None));
        self.state.finish()
    }

    /// Returns the report of a build whose process exited.
    ///
    /// # Errors
    /// See [`Self::finish`]; with the exit status of a process that sent no Done record.
    pub fn finish_after(self, program: &str, exited: &Exited) -> Result<BuildReport, Error> {
        let output = self.state.log.last_lines(6);
        let finished = self.finish();
        match (&finished, exited.status.signal(), exited.status.code()) {
            (Err(Error::NoDone { .. }), Some(signal), _) => Err(Error::Killed {
                program: program.to_owned(),
                signal,
                output,
            }),
            (Err(Error::NoDone { .. }), _, Some(status)) if status != 0 => Err(Error::Failed {
                program: program.to_owned(),
                status,
                output,
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
            Item::Record(record, sent) => self.record(record, (*sent, at)),
        }
    }

    fn record(&mut self, record: &Record<'_>, times: Times) {
        match *record {
            Record::Hello { version, .. } if version != VERSION => self.version = Some(version),
            Record::Launch { .. } => self.began = Some(times),
            Record::Reaped { .. } => self.ended = Some(times),
            Record::Relay {
                channel: Channel::Events,
                bytes,
                ..
            } => self.result += &String::from_utf8_lossy(bytes),
            Record::Panic { message } => self.panic = Some(message.to_owned()),
            Record::Done => self.done = true,
            _ => {}
        }
    }

    fn finish(self) -> Result<BuildReport, Error> {
        if let Some(theirs) = self.version {
            return Err(Error::Version { theirs });
        }
        if let Some(message) = self.panic {
            return Err(Error::KernelBuild(message));
        }
        let (Some(began), Some(ended), true) = (self.began, self.ended, self.done) else {
            let output = self.log.last_lines(6);
            return Err(Error::NoDone { output });
        };
        let damaged = || Error::KernelBuild("the reported result is damaged".to_owned());
        Ok(BuildReport {
            own_ns: number(&self.result, "nanoseconds").ok_or_else(damaged)?,
            ticks: ended.0.saturating_sub(began.0),
            arrival: began.1.zip(ended.1),
            proof: proof(&self.result).ok_or_else(damaged)?,
        })
    }
}

fn proof(text: &str) -> Option<Proof> {
    let hash = value(text, "proof")?;
    let whole = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    whole.then_some(())?;
    Some(Proof {
        objects: number(text, "objects")?,
        symbols: number(text, "symbols")?,
        hash: hash.to_owned(),
    })
}

fn number<N: std::str::FromStr>(text: &str, name: &str) -> Option<N> {
    value(text, name)?.parse().ok()
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let words = text.lines().filter_map(|line| line.split_once(' '));
    words
        .clone()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

impl OutputHandler for BuildDecoder {
    fn console(&mut self, bytes: &[u8], at: u64, _: &mut dyn UsageProbe) {
        self.decode(bytes, Some(at));
    }

    fn errors(&mut self, bytes: &[u8]) {
        self.state.bytes += bytes.len() as u64;
        self.state.log.extend(bytes);
    }

    /// Events of the VMM are not used.
    fn events(&mut self, bytes: &[u8]) {
        self.state.bytes += bytes.len() as u64;
    }

    fn check(&mut self) -> Result<(), Error> {
        if self.state.bytes > MAX_BYTES {
            Err(Error::Flooded {
                output: self.last_output(),
            })
        } else {
            Ok(())
        }
    }

    fn is_complete(&mut self, _: Duration) -> Result<bool, Error> {
        Ok(false)
    }

    fn last_output(&self) -> String {
        self.state.log.last_lines(6)
    }
}

/// Keeps the last output of a program, for its error message.
#[derive(Default)]
pub struct LastOutput(Log);

impl LastOutput {
    /// Returns the last lines.
    pub fn lines(&self) -> String {
        self.0.last_lines(8)
    }
}

impl OutputHandler for LastOutput {
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
        self.lines()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_abi::frame::{encode, MAX_FRAME};

    fn send(builder: &mut BuildDecoder, record: &Record<'_>, sent: u64, at: u64) {
        let mut frame = [0; MAX_FRAME];
        let length = encode(record, sent, &mut frame).unwrap();
        builder.decode(&frame[..length], Some(at));
    }

    fn decoder(proof: &str) -> BuildDecoder {
        let mut builder = BuildDecoder::default();
        builder.decode(b"Linux boots\n", Some(1));
        send(&mut builder, &Record::Launch { child: 0 }, 1000, 5000);
        let reaped = Record::Reaped {
            child: 0,
            status: 0,
            peak_kib: 1,
        };
        send(&mut builder, &reaped, 4000, 8010);
        let text = format!("nanoseconds 2999\nobjects 2\nsymbols 7\nproof {proof}\n");
        let relay = Record::Relay {
            child: 0,
            channel: Channel::Events,
            bytes: text.as_bytes(),
        };
        send(&mut builder, &relay, 4100, 8100);
        builder
    }

    #[test]
    fn both_clocks_and_the_result_are_decoded() {
        let mut builder = decoder(&"a".repeat(64));
        send(&mut builder, &Record::Done, 4200, 8200);
        let report = builder.finish().unwrap();
        assert_eq!((report.own_ns, report.ticks), (2999, 3000));
        assert_eq!(report.arrival, Some((5000, 8010)));
        assert_eq!((report.proof.objects, report.proof.symbols), (2, 7));
    }

    #[test]
    fn incomplete_build_is_an_error() {
        let cut = decoder(&"a".repeat(64));
        let mut short = decoder("abc");
        send(&mut short, &Record::Done, 4200, 8200);
        let mut failed = decoder(&"a".repeat(64));
        let message = "make failed: no rule";
        send(&mut failed, &Record::Panic { message }, 4200, 8200);
        let errors = [cut, short, failed].map(|build| build.finish().unwrap_err().to_string());
        expect![[r#"
            guest ended without a Done record; last output:
              Linux boots
            kernel build failed: the reported result is damaged
            kernel build failed: make failed: no rule"#]]
        .assert_eq(&errors.join("\n"));
    }
}
