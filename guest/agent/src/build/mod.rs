//! The workload `kernel-build`: `make` in a root that has all that it needs, from a
//! prepared source to the result, with as many jobs as there are CPUs.
//!
//! What is to be made stands in a [`recipe`] of the root. In a Linux guest that is the
//! guest's own root; as a process the agent first makes itself a [`ground`] with the
//! same files, which are gone with it. It tells when `make` starts and when it has ended,
//! how long that took by the clock of this Linux, and a [`proof`] of what was made.

mod archive;
mod ground;
mod proof;
mod recipe;

use crate::linux::Sink;
use recipe::Recipe;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use trapline_abi::frame::{clip, encode, MAX_FRAME, MAX_RELAY};
use trapline_abi::record::{Channel, Speaker};
use trapline_abi::{Record, VERSION};
use trapline_spawn::{ticks, Ended, Program};

/// What the words begin with: how many jobs `make` gets, and the archive to unpack.
const JOBS: &str = "trapline.build=";
const ROOT: &str = "trapline.root=";

/// The directory in which a program is to be confined.
const CONFINE: &str = "trapline.confine=";

/// The number of `make` in what is told.
const CHILD: u16 = 0;

/// How much of what `make` has written is told if it fails, in bytes.
const LAST_WORDS: usize = 4096;

/// The file for what `make` writes. It is in memory: telling costs nothing meanwhile.
const LOG: &str = "/tmp/trapline-make.log";

/// How many jobs the words of a kernel or a program ask for; `None` if they ask for no
/// build.
///
/// # Errors
/// What is wrong with them.
pub fn jobs<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Result<u32, String>> {
    let jobs = words.find_map(|word| word.strip_prefix(JOBS))?;
    let number = jobs.parse().ok().filter(|jobs| *jobs > 0);
    Some(number.ok_or_else(|| format!("{JOBS}{jobs}: write a number of jobs")))
}

/// Does what the words of this process ask for, in a ground of its own; `None` if they
/// ask for something else.
pub fn obey(words: &[String], sink: Sink<'_>) -> Option<Result<ExitCode, String>> {
    let (first, rest) = words.split_first()?;
    if let Some(directory) = first.strip_prefix(CONFINE) {
        return Some(confine(Path::new(directory), rest));
    }
    let jobs = jobs(words.iter().map(String::as_str))?;
    let root = words.iter().find_map(|word| word.strip_prefix(ROOT));
    Some(jobs.and_then(|jobs| {
        let root = root.ok_or_else(|| format!("{JOBS}{jobs}: {ROOT}FILE has to follow"))?;
        let archive = File::open(root).map_err(|error| format!("{root}: {error}"))?;
        ground::in_memory(&archive, || {
            run(jobs, sink);
            ExitCode::SUCCESS
        })
    }))
}

fn confine(directory: &Path, words: &[String]) -> Result<ExitCode, String> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| format!("{CONFINE}{}: name a program", directory.display()))?;
    ground::in_directory(directory, || {
        let status = std::process::Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .status();
        match status {
            Ok(status) => ExitCode::from(status.code().unwrap_or(1) as u8),
            Err(error) => {
                eprintln!("{program}: {error}");
                ExitCode::from(127)
            }
        }
    })
}

/// Builds, and tells all that there is to tell.
pub fn run(jobs: u32, sink: Sink<'_>) {
    let mut teller = Teller(sink);
    teller.say(&hello(), ticks());
    match build(jobs, &mut teller) {
        Ok(()) => teller.say(&Record::Done, ticks()),
        Err(trouble) => {
            let message = clip(&trouble);
            teller.say(&Record::Panic { message }, ticks());
        }
    }
}

fn hello() -> Record<'static> {
    Record::Hello {
        version: VERSION,
        speaker: Speaker::Agent,
        ring: 3,
        memory: 0,
        planned: 0,
    }
}

fn build(jobs: u32, teller: &mut Teller<'_>) -> Result<(), String> {
    let recipe = Recipe::read()?;
    let about = |error: io::Error| format!("{}: {error}", recipe.directory.display());
    std::env::set_current_dir(&recipe.directory).map_err(about)?;
    proof::settle(Path::new("/")).map_err(|error| format!("times of files: {error}"))?;
    let program = program(&recipe, jobs)
        .map_err(|error| format!("make has nothing to read from or to write to: {error}"))?;
    let clock = Clock::now();
    let started = trapline_spawn::start(&program);
    let started = started.map_err(|error| format!("{}: {error}", recipe.make.display()))?;
    teller.say(&Record::Launch { child: CHILD }, started.exec);
    let ended = started.reap().map_err(|error| format!("make: {error}"))?;
    let (end, took) = (ticks(), clock.elapsed());
    teller.say(&reaped(&ended), end);
    if ended.status != 0 {
        return Err(format!("make failed:\n{}", last_words()));
    }
    let proof = proof::of(&recipe.directory).map_err(about)?;
    teller.relay(&format!(
        "nanoseconds {took}\nobjects {}\nsymbols {}\nproof {}\n",
        proof.objects, proof.symbols, proof.hash
    ));
    Ok(())
}

fn program(recipe: &Recipe, jobs: u32) -> io::Result<Program> {
    let mut program = Program::new(&recipe.make)?;
    for argument in &recipe.arguments {
        program.argument(argument)?;
    }
    program.argument(format!("-j{jobs}"))?;
    let log = File::create(LOG)?;
    program.descriptor(File::open("/dev/null")?.as_fd())?;
    program.descriptor(log.as_fd())?;
    program.descriptor(log.as_fd())?;
    Ok(program)
}

fn reaped(ended: &Ended) -> Record<'static> {
    Record::Reaped {
        child: CHILD,
        status: ended.status as u32,
        peak_kib: ended.peak_kib,
    }
}

fn last_words() -> String {
    let log = fs::read(LOG).unwrap_or_default();
    let from = log.len().saturating_sub(LAST_WORDS);
    let text = String::from_utf8_lossy(&log[from..]).into_owned();
    let lines: Vec<_> = text
        .lines()
        .filter(|line| line.contains("***") || line.contains("error"))
        .collect();
    match lines.as_slice() {
        [] => text,
        lines => lines.join("\n"),
    }
}

/// The clock by which this Linux tells the time.
struct Clock(libc::timespec);

impl Clock {
    fn now() -> Self {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the structure is ours to be written to, and every Linux has this clock.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        Self(now)
    }

    /// Since then, in nanoseconds.
    fn elapsed(&self) -> i64 {
        let Self(now) = Self::now();
        (now.tv_sec - self.0.tv_sec) * 1_000_000_000 + now.tv_nsec - self.0.tv_nsec
    }
}

/// Tells records.
struct Teller<'a>(Sink<'a>);

impl Teller<'_> {
    fn say(&mut self, record: &Record<'_>, at: u64) {
        let mut frame = [0; MAX_FRAME];
        // Texts are clipped and relayed pieces short: every record fits.
        if let Ok(length) = encode(record, at, &mut frame) {
            (self.0)(&frame[..length]);
        }
    }

    fn relay(&mut self, text: &str) {
        for bytes in text.as_bytes().chunks(MAX_RELAY) {
            let record = Record::Relay {
                child: CHILD,
                channel: Channel::Events,
                bytes,
            };
            self.say(&record, ticks());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_ask_for_a_build_or_for_something_else() {
        let asked = |words: &'static str| jobs(words.split(' '));
        assert_eq!(asked("console=ttyS0 trapline.build=2 quiet"), Some(Ok(2)));
        assert_eq!(asked("trapline.run=basic"), None);
        for bad in ["trapline.build=", "trapline.build=0", "trapline.build=many"] {
            let told = asked(bad).unwrap().unwrap_err();
            assert!(told.starts_with(bad), "{told}");
        }
    }

    #[test]
    fn a_process_that_builds_needs_a_root() {
        let words = ["trapline.build=1".to_owned()];
        let told = obey(&words, &mut |_| {}).unwrap().unwrap_err();
        assert!(told.contains("trapline.root=FILE"), "{told}");
        let words = ["trapline.build=1", "trapline.root=/nonexistent"].map(str::to_owned);
        let told = obey(&words, &mut |_| {}).unwrap().unwrap_err();
        assert!(told.starts_with("/nonexistent: "), "{told}");
        assert!(obey(&["trapline.run=none".to_owned()], &mut |_| {}).is_none());
    }
}
