//! Workload `kernel-build`: runs `make` on prepared sources in a complete root file system, with one
//! job per CPU.
//!
//! The [`recipe`] in the root names the command. A Linux guest uses its own root; a process first
//! creates a private [`build_root`] with the same files. Start and end of `make`, the elapsed time of
//! this Linux, and a [`proof`] of the result are sent.

mod archive;
mod build_root;
mod proof;
mod recipe;

use crate::clock::monotonic_ns;
use crate::linux::{Sink, HELLO};
use recipe::Recipe;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use trapline_abi::frame::{encode, truncate, MAX_FRAME, MAX_RELAY};
use trapline_abi::record::Channel;
use trapline_abi::Record;
use trapline_spawn::{ticks, Ended, Program};

/// Prefixes of words: number of jobs of `make`, and archive to unpack.
const JOBS: &str = "trapline.build=";
const ROOT: &str = "trapline.root=";

/// Prefix of the directory in which a program is confined.
const CONFINE: &str = "trapline.confine=";

/// Index of `make` in records.
const CHILD: u16 = 0;

/// Maximum output of a failed `make` that is reported, in bytes.
const MAX_OUTPUT: usize = 4096;

/// Output file of `make`, in memory, so that output does not slow it down.
const LOG: &str = "/tmp/trapline-make.log";

/// Parses the number of jobs; `None` if the words do not select a build.
///
/// # Errors
/// Returns a message that names the invalid word.
pub fn jobs<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Result<u32, String>> {
    let jobs = words.find_map(|word| word.strip_prefix(JOBS))?;
    let number = jobs.parse().ok().filter(|jobs| *jobs > 0);
    Some(number.ok_or_else(|| format!("{JOBS}{jobs}: expected a number of jobs")))
}

/// Runs the build or the confined program that `words` select, in a private root; `None` if they do
/// not select one.
pub fn execute(words: &[String], sink: Sink<'_>) -> Option<Result<ExitCode, String>> {
    let (first, rest) = words.split_first()?;
    if let Some(directory) = first.strip_prefix(CONFINE) {
        return Some(confine(Path::new(directory), rest));
    }
    let jobs = jobs(words.iter().map(String::as_str))?;
    let root = words.iter().find_map(|word| word.strip_prefix(ROOT));
    Some(jobs.and_then(|jobs| {
        let root = root.ok_or_else(|| format!("{JOBS}{jobs}: {ROOT}FILE must follow"))?;
        let archive = File::open(root).map_err(|error| format!("{root}: {error}"))?;
        build_root::in_memory(&archive, || {
            run(jobs, sink);
            ExitCode::SUCCESS
        })
    }))
}

fn confine(directory: &Path, words: &[String]) -> Result<ExitCode, String> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| format!("{CONFINE}{}: expected a program", directory.display()))?;
    build_root::in_directory(directory, || {
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

/// Runs the build and sends its records.
pub fn run(jobs: u32, sink: Sink<'_>) {
    let mut writer = RecordWriter(sink);
    writer.send(&HELLO, ticks());
    match build(jobs, &mut writer) {
        Ok(()) => writer.send(&Record::Done, ticks()),
        Err(error) => {
            let message = truncate(&error);
            writer.send(&Record::Panic { message }, ticks());
        }
    }
}

fn build(jobs: u32, writer: &mut RecordWriter<'_>) -> Result<(), String> {
    let recipe = Recipe::read()?;
    let about = |error: io::Error| format!("{}: {error}", recipe.directory.display());
    std::env::set_current_dir(&recipe.directory).map_err(about)?;
    proof::reset_times(Path::new("/"))
        .map_err(|error| format!("cannot reset file times: {error}"))?;
    let program =
        program(&recipe, jobs).map_err(|error| format!("cannot redirect make: {error}"))?;
    let begin = monotonic_ns();
    let started = trapline_spawn::start(&program);
    let started = started.map_err(|error| format!("{}: {error}", recipe.make.display()))?;
    writer.send(&Record::Launch { child: CHILD }, started.exec);
    let ended = started.reap().map_err(|error| format!("make: {error}"))?;
    let (end, took) = (ticks(), monotonic_ns() - begin);
    writer.send(&reaped(&ended), end);
    if ended.status != 0 {
        return Err(format!("make failed:\n{}", failure_output()));
    }
    let proof = proof::compute(&recipe.directory).map_err(about)?;
    writer.relay(&format!(
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

fn failure_output() -> String {
    let log = fs::read(LOG).unwrap_or_default();
    let from = log.len().saturating_sub(MAX_OUTPUT);
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

/// Sends records.
struct RecordWriter<'a>(Sink<'a>);

impl RecordWriter<'_> {
    fn send(&mut self, record: &Record<'_>, at: u64) {
        let mut frame = [0; MAX_FRAME];
        // Texts are truncated and relayed pieces are short, so every record fits.
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
            self.send(&record, ticks());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_number_of_jobs_is_parsed() {
        let parsed = |words: &'static str| jobs(words.split(' '));
        assert_eq!(parsed("console=ttyS0 trapline.build=2 quiet"), Some(Ok(2)));
        assert_eq!(parsed("trapline.run=basic"), None);
        let errors = ["trapline.build=", "trapline.build=0", "trapline.build=many"]
            .map(|bad| parsed(bad).unwrap().unwrap_err());
        expect![[r#"
            trapline.build=: expected a number of jobs
            trapline.build=0: expected a number of jobs
            trapline.build=many: expected a number of jobs"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn a_build_requires_a_root() {
        let error = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
            execute(&words, &mut |_| {}).unwrap().unwrap_err()
        };
        let without = error(&["trapline.build=1"]);
        let missing = error(&["trapline.build=1", "trapline.root=/nonexistent"]);
        expect![[r#"
            trapline.build=1: trapline.root=FILE must follow
            /nonexistent: No such file or directory (os error 2)"#]]
        .assert_eq(&format!("{without}\n{missing}"));
        assert!(execute(&["trapline.run=none".to_owned()], &mut |_| {}).is_none());
    }
}
