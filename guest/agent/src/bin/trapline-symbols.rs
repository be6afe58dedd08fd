//! Run once on a simulated machine, apart from any measurement: prints where its
//! code lies, so that the lab can name what was executed.
//!
//! `trapline-symbols` prints the code symbols of the kernel and its modules.
//! `trapline-symbols PROGRAM ARGUMENT...` starts a program and prints what it has
//! mapped; without randomness it will be the same wherever it is started.

use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// How often a program is looked at while it loads, and how long between.
const LOOKS: u32 = 50;
const BETWEEN: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let printed = match words.split_first() {
        None => print_symbols(),
        Some((program, arguments)) => print_mappings(Command::new(program).args(arguments)),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trapline-symbols: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Only code: a list of everything would take several times as long to relay.
fn print_symbols() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in BufReader::new(fs::File::open("/proc/kallsyms")?).lines() {
        let line = line?;
        let kind = line.split_ascii_whitespace().nth(1);
        if matches!(kind, Some("t" | "T" | "w" | "W")) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()
}

/// The last look before the program ends, or before we have looked often enough,
/// shows most.
fn print_mappings(command: &mut Command) -> io::Result<()> {
    let mut child = command
        .stdin(Stdio::inherit())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let maps = format!("/proc/{}/maps", child.id());
    let mut seen = String::new();
    for _ in 0..LOOKS {
        match fs::read_to_string(&maps) {
            Ok(text) if !text.is_empty() => seen = text,
            _ => break,
        }
        std::thread::sleep(BETWEEN);
    }
    // Fails only for a program that has ended by itself.
    let _ = child.kill();
    child.wait()?;
    io::stdout().write_all(seen.as_bytes())
}
