//! Endurance test: starts one command repeatedly. Some runs exit, others are killed while they
//! write. Their output and the result of each run are printed on the console of this machine.

use super::Message;
use crate::drivers;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// File with the words of the command, one per line.
const COMMAND: &str = "/trapline/cycles/command";

/// File with one run per line: how it ends, and additional words of the command.
const SCHEDULE: &str = "/trapline/cycles/schedule";

/// Prefix of lines that are counted in a run that is killed.
const COUNTS: &str = "journal told ";

/// End of a run.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The command exits.
    Own,
    /// The command is killed this long after this number of counted lines.
    Killed { lines: u32, delay: Duration },
}

/// Performs the runs of the schedule. Returns true if there is one.
///
/// # Errors
/// The schedule is invalid, or the command cannot be started.
pub fn supervise() -> Result<bool, Message> {
    let schedule = match fs::read_to_string(SCHEDULE) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        schedule => schedule.map_err(|error| format!("{SCHEDULE}: {error}"))?,
    };
    let command = fs::read_to_string(COMMAND).map_err(|error| format!("{COMMAND}: {error}"))?;
    drivers::prepare()?;
    let mut lines = schedule.lines().zip(0..).peekable();
    while let Some((line, number)) = lines.next() {
        let at_run = |message: String| format!("run {number}: {message}");
        let (end, words) = parse(line).ok_or_else(|| at_run(format!("'{line}' is not a run")))?;
        let last = if lines.peek().is_none() { " last" } else { "" };
        println!("run {number} begins{last}");
        let result = run(&command, words, &end).map_err(|error| at_run(error.to_string()))?;
        println!("run {number} {result}");
    }
    println!("schedule done");
    Ok(true)
}

/// Parses a run: `own`, or `kill LINES MILLISECONDS`, then `:` and the additional words.
fn parse(line: &str) -> Option<(End, &str)> {
    let (end, added) = line.split_once(':')?;
    let mut words = end.split(' ');
    let end = match words.next()? {
        "own" => End::Own,
        "kill" => End::Killed {
            lines: words.next()?.parse().ok()?,
            delay: Duration::from_millis(words.next()?.parse().ok()?),
        },
        _ => return None,
    };
    words.next().is_none().then_some((end, added))
}

fn run(command: &str, added: &str, end: &End) -> io::Result<String> {
    let command = format!("{command} {added}");
    let mut words = command.lines();
    let program = words.next().unwrap_or_default();
    let mut started = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let Some(output) = started.stdout.take() else {
        return Err(io::Error::other("has no output"));
    };
    let mut lines = BufReader::new(output);
    let mut killed = false;
    if let End::Killed {
        lines: wanted,
        delay,
    } = end
    {
        if relay(&mut lines, *wanted)? {
            thread::sleep(*delay);
            started.kill()?;
            killed = true;
        }
    }
    relay(&mut lines, u32::MAX)?;
    result(&mut started, killed)
}

fn result(started: &mut Child, killed: bool) -> io::Result<String> {
    let status = started.wait()?;
    Ok(match (killed, status.code()) {
        (true, None) => "killed".to_owned(),
        (_, Some(code)) => format!("ended {code}"),
        (false, None) => format!("ended by itself, {status}"),
    })
}

/// Prints the output of a run, up to `wanted` counted lines. Returns false if it ended before.
fn relay(from: &mut BufReader<impl Read>, wanted: u32) -> io::Result<bool> {
    let mut line = Vec::new();
    let mut counted = 0;
    while counted < wanted {
        line.clear();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        counted += u32::from(text.starts_with(COUNTS));
        // Marks a line that was cut off.
        if line.ends_with(b"\n") {
            println!("{text}")
        } else {
            println!("cut: {text}")
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn runs_are_parsed() {
        assert_eq!(parse("own:a b"), Some((End::Own, "a b")));
        let delay = Duration::from_millis(20);
        let killed = End::Killed { lines: 3, delay };
        assert_eq!(parse("kill 3 20:"), Some((killed, "")));
        for bad in ["", "own", "own 1:", "kill 3:", "kill x 1:", "stop:"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_run_exits_or_is_killed_after_its_output() {
        let say = "for i in 1 2 3; do echo journal told 0 $i; done;";
        let command = format!("/bin/sh\n-c\n{say}");
        let result = |added, end| run(&command, added, &end).unwrap();
        assert_eq!(result("exit 3", End::Own), "ended 3");
        let killed = |lines| End::Killed {
            lines,
            delay: Duration::ZERO,
        };
        assert_eq!(result("exec sleep 60", killed(2)), "killed");
        assert_eq!(result("exit 0", killed(4)), "ended 0", "too few lines");
        expect!["ended by itself, signal: 9 (SIGKILL)"].assert_eq(&result("kill -9 $$", End::Own));
    }
}
