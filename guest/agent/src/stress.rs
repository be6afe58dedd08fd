//! Loads: `trapline-agent trapline.burn=cpu` works until it is killed or its time is over.
//!
//! It writes the amount of its work to the start of its standard output, a file that the parent
//! process reads.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use trapline_spawn::Program;

/// Prefixes of its words.
const LOAD: &str = "trapline.burn=";
const SECONDS: &str = "trapline.seconds=";

/// Turns of the empty loop between two updates of the count.
const TURNS: u64 = 1 << 20;

/// Words of memory between two updates of the count.
const WORDS: usize = 1 << 17;

/// Load to run.
#[derive(Debug, PartialEq, Eq)]
pub enum Load<'a> {
    /// Empty loop; counts turns.
    Cpu,
    /// Reads and writes a block of this size in MiB; counts bytes.
    Memory(usize),
    /// Runs a program repeatedly; counts runs.
    Run(&'a [String]),
}

/// Parses the load and its maximum duration in seconds; `None` if `words` do not select a load.
///
/// # Errors
/// Returns a message that names the invalid word.
pub fn parse(words: &[String]) -> Option<Result<(Load<'_>, u32), String>> {
    let what = words.first()?.strip_prefix(LOAD)?;
    Some(parse_load(what, &words[1..]))
}

fn parse_load<'a>(what: &str, words: &'a [String]) -> Result<(Load<'a>, u32), String> {
    let (seconds, program) = words.split_first().unwrap_or((&EMPTY, &[]));
    let seconds = seconds
        .strip_prefix(SECONDS)
        .and_then(|text| text.parse().ok())
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| format!("{LOAD}{what}: {SECONDS}N must follow"))?;
    let load = match what.split_once(':').unwrap_or((what, "")) {
        ("cpu", "") => Load::Cpu,
        ("memory", mib) => Load::Memory(
            mib.parse()
                .map_err(|_| format!("{LOAD}{what}: expected memory:MIB"))?,
        ),
        ("run", "") if !program.is_empty() => Load::Run(program),
        _ => return Err(format!("{LOAD}{what}: unknown load")),
    };
    Ok((load, seconds))
}

static EMPTY: String = String::new();

/// Runs the load.
///
/// # Errors
/// Returns the reason of the failure.
pub fn run(load: &Load<'_>, seconds: u32) -> Result<(), String> {
    // SAFETY: takes a number; its signal ends this process.
    unsafe { libc::alarm(seconds) };
    let count = Count::new();
    match load {
        Load::Cpu => run_empty_loop(count),
        Load::Memory(mib) => use_memory(count, *mib),
        Load::Run(words) => run_repeatedly(count, words),
    }
}

/// Amount of work, in standard output.
struct Count {
    output: ManuallyDrop<File>,
    value: u64,
}

impl Count {
    fn new() -> Self {
        // SAFETY: never dropped, so it does not close standard output.
        let output = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDOUT_FILENO) });
        Self { output, value: 0 }
    }

    fn add(&mut self, done: u64) -> Result<(), String> {
        self.value = self.value.wrapping_add(done);
        let written = self.output.write_all_at(&self.value.to_le_bytes(), 0);
        written.map_err(|error| format!("the count cannot be written: {error}"))
    }
}

fn run_empty_loop(mut count: Count) -> Result<(), String> {
    loop {
        (0..TURNS).for_each(|turn| {
            black_box(turn);
        });
        count.add(TURNS)?;
    }
}

fn use_memory(mut count: Count, mib: usize) -> Result<(), String> {
    let mut block = vec![1_u64; (mib << 20) / size_of::<u64>()];
    loop {
        for piece in block.chunks_mut(WORDS) {
            piece
                .iter_mut()
                .for_each(|word| *word = word.wrapping_mul(3));
            let bytes = size_of_val(piece) as u64;
            black_box(piece);
            count.add(bytes)?;
        }
    }
}

fn run_repeatedly(mut count: Count, words: &[String]) -> Result<(), String> {
    loop {
        let status = run_program(words).map_err(|error| format!("{}: {error}", words[0]))?;
        if status != 0 {
            return Err(format!("{} ended with wait status {status}", words[0]));
        }
        count.add(1)?;
    }
}

/// Runs the program `words[0]` until it exits. It is killed with this process.
fn run_program(words: &[String]) -> io::Result<i32> {
    let mut program = Program::new(Path::new(&words[0]))?;
    for word in &words[1..] {
        program.argument(word)?;
    }
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for end in [null.as_fd(), null.as_fd(), io::stderr().as_fd()] {
        program.descriptor(end)?;
    }
    Ok(trapline_spawn::start(&program)?.reap()?.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn loads_are_parsed_and_invalid_ones_rejected() {
        let read = |text: &str| {
            let words = words(text);
            parse(&words).map(|found| found.map(|(load, seconds)| format!("{load:?} {seconds}")))
        };
        let good = |parsed: &str| Some(Ok(parsed.to_owned()));
        assert_eq!(read("trapline.burn=cpu trapline.seconds=9"), good("Cpu 9"));
        let memory = "trapline.burn=memory:64 trapline.seconds=1";
        assert_eq!(read(memory), good("Memory(64) 1"));
        let run = "trapline.burn=run trapline.seconds=1 /bin/true now";
        assert_eq!(read(run), good("Run([\"/bin/true\", \"now\"]) 1"));
        assert_eq!(read("trapline.run=basic"), None);
        assert_eq!(read("x trapline.burn=cpu"), None);
        for bad in [
            "trapline.burn=cpu",
            "trapline.burn=cpu trapline.seconds=0",
            "trapline.burn=disk trapline.seconds=1",
            "trapline.burn=memory trapline.seconds=1",
            "trapline.burn=run trapline.seconds=1",
        ] {
            assert!(matches!(read(bad), Some(Err(_))), "{bad}");
        }
    }

    #[test]
    fn a_program_is_run_until_it_fails() {
        assert_eq!(run_program(&words("/bin/true")).unwrap(), 0);
        assert_eq!(run_program(&words("/bin/false")).unwrap(), 1 << 8);
        assert!(run_program(&words("/nonexistent")).is_err());
    }
}
