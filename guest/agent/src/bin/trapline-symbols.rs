//! Prints the addresses of code on a simulated machine, for profiles. Runs outside of measurements.
//!
//! `trapline-symbols` prints the code symbols of the kernel and its modules.
//! `trapline-symbols --modules` prints only those of modules, after a line with the hash of the others. A guest of a
//! guest needs an exit of several levels for each byte.
//! `trapline-symbols PROGRAM ARGUMENT...` starts a program and prints its mappings, which are the same
//! at each start without address randomisation.

use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Maximum number of reads of the mappings while a program loads, and their interval.
const MAX_READS: u32 = 50;
const INTERVAL: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let printed = match words.split_first() {
        None => print_symbols(),
        Some((option, [])) if option == "--modules" => print_module_symbols(),
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

/// Prints code symbols only, because relaying all symbols would take several times as long.
fn print_symbols() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    each_symbol(|line| writeln!(out, "{line}"))?;
    out.flush()
}

/// Prints the SHA-256 of the lines of the kernel's own code symbols, then those of its modules, which end with a name in
/// brackets.
fn print_module_symbols() -> io::Result<()> {
    let mut modules = String::new();
    let mut kernel = Sha256::new();
    each_symbol(|line| {
        if line.ends_with(']') {
            modules.extend([line, "\n"])
        } else {
            kernel.update([line.as_bytes(), b"\n"].concat())
        }
        Ok(())
    })?;
    println!("{:x}", kernel.finalize());
    io::stdout().write_all(modules.as_bytes())
}

/// Calls `symbol` with each line of a code symbol.
fn each_symbol(mut symbol: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    for line in BufReader::new(fs::File::open("/proc/kallsyms")?).lines() {
        let line = line?;
        let kind = line.split_ascii_whitespace().nth(1);
        if matches!(kind, Some("t" | "T" | "w" | "W")) {
            symbol(&line)?;
        }
    }
    Ok(())
}

/// Prints the mappings of the last read, which are the most complete.
fn print_mappings(command: &mut Command) -> io::Result<()> {
    let mut child = command
        .stdin(Stdio::inherit())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let maps = format!("/proc/{}/maps", child.id());
    let mut seen = String::new();
    for _ in 0..MAX_READS {
        match fs::read_to_string(&maps) {
            Ok(text) if !text.is_empty() => seen = text,
            _ => break,
        }
        std::thread::sleep(INTERVAL);
    }
    // Fails only for a program that has exited.
    let _ = child.kill();
    child.wait()?;
    io::stdout().write_all(seen.as_bytes())
}
