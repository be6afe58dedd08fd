//! What disturbs others on request: `trapline-agent trapline.burn=cpu` works without
//! end, until it is killed or the time it was given is over.
//!
//! How much it has done so far stands at the beginning of its standard output, which
//! is a file that whoever started it reads when it likes: nothing is sent.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use trapline_spawn::Program;

/// What the words for it begin with.
const WHAT: &str = "trapline.burn=";
const SECONDS: &str = "trapline.seconds=";

/// Turns of the empty loop between two looks at the count.
const TURNS: u64 = 1 << 20;

/// Words of memory between two looks at the count.
const WORDS: usize = 1 << 17;

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Burn<'a> {
    /// Turn an empty loop; turns are counted.
    Cpu,
    /// Read and write a block of so many MiB; bytes are counted.
    Memory(usize),
    /// Run a program again and again; runs are counted.
    Run(&'a [String]),
}

/// What `words` ask for, and for how many seconds at the most; `None` if they ask for
/// something else.
///
/// # Errors
/// What is wrong with them.
pub fn parse(words: &[String]) -> Option<Result<(Burn<'_>, u32), String>> {
    let what = words.first()?.strip_prefix(WHAT)?;
    Some(parsed(what, &words[1..]))
}

fn parsed<'a>(what: &str, words: &'a [String]) -> Result<(Burn<'a>, u32), String> {
    let (seconds, program) = words.split_first().unwrap_or((&EMPTY, &[]));
    let seconds = seconds
        .strip_prefix(SECONDS)
        .and_then(|text| text.parse().ok())
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| format!("{WHAT}{what}: {SECONDS}N has to follow"))?;
    let burn = match what.split_once(':').unwrap_or((what, "")) {
        ("cpu", "") => Burn::Cpu,
        ("memory", mib) => Burn::Memory(
            mib.parse()
                .map_err(|_| format!("{WHAT}{what}: write memory:MIB"))?,
        ),
        ("run", "") if !program.is_empty() => Burn::Run(program),
        _ => return Err(format!("{WHAT}{what}: nothing burns so")),
    };
    Ok((burn, seconds))
}

static EMPTY: String = String::new();

/// Burns.
///
/// # Errors
/// It cannot go on.
pub fn burn(burn: &Burn<'_>, seconds: u32) -> Result<(), String> {
    // SAFETY: takes a number; its signal ends this process.
    unsafe { libc::alarm(seconds) };
    let count = Count::new();
    match burn {
        Burn::Cpu => turn(count),
        Burn::Memory(mib) => stream(count, *mib),
        Burn::Run(words) => run_again_and_again(count, words),
    }
}

/// How much has been done.
struct Count {
    output: ManuallyDrop<File>,
    value: u64,
}

impl Count {
    fn new() -> Self {
        // SAFETY: never dropped, so it closes nothing that is not its own.
        let output = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDOUT_FILENO) });
        Self { output, value: 0 }
    }

    fn add(&mut self, done: u64) -> Result<(), String> {
        self.value = self.value.wrapping_add(done);
        let written = self.output.write_all_at(&self.value.to_le_bytes(), 0);
        written.map_err(|error| format!("the count cannot be written: {error}"))
    }
}

fn turn(mut count: Count) -> Result<(), String> {
    loop {
        (0..TURNS).for_each(|turn| {
            black_box(turn);
        });
        count.add(TURNS)?;
    }
}

fn stream(mut count: Count, mib: usize) -> Result<(), String> {
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

fn run_again_and_again(mut count: Count, words: &[String]) -> Result<(), String> {
    loop {
        let status = run(words).map_err(|error| format!("{}: {error}", words[0]))?;
        if status != 0 {
            return Err(format!("{} ended with wait status {status}", words[0]));
        }
        count.add(1)?;
    }
}

/// Runs the program that `words` name to its end. It dies with this process.
fn run(words: &[String]) -> io::Result<i32> {
    let mut program = Program::new(Path::new(&words[0]))?;
    for word in &words[1..] {
        program.argument(word)?;
    }
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    for end in [nothing.as_fd(), nothing.as_fd(), io::stderr().as_fd()] {
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
    fn what_is_to_burn_is_read_and_nothing_else_is() {
        let read = |text: &str| {
            let words = words(text);
            parse(&words).map(|found| found.map(|(burn, seconds)| format!("{burn:?} {seconds}")))
        };
        let good = |told: &str| Some(Ok(told.to_owned()));
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
        assert_eq!(run(&words("/bin/true")).unwrap(), 0);
        assert_eq!(run(&words("/bin/false")).unwrap(), 1 << 8);
        assert!(run(&words("/nonexistent")).is_err());
    }
}
