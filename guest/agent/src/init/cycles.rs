//! A machine that starts one command over and over, as somebody does who wants to know
//! whether a guest can be relied on: some runs end by themselves, others are killed while
//! they speak. Everything that they say is said on this machine's console, and how each ended.

use super::{drivers, Trouble};
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// The words of the command, one a line.
const COMMAND: &str = "/trapline/cycles/command";

/// One run a line: how it ends, and what is added to the command's last word.
const SCHEDULE: &str = "/trapline/cycles/schedule";

/// A line that begins so counts for a run that is to be killed.
const COUNTS: &str = "journal told ";

/// How a run ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// By itself.
    Own,
    /// Killed so long after so many lines that count.
    Killed { lines: u32, delay: Duration },
}

/// Does all runs that there are to do; true if there is a schedule.
///
/// # Errors
/// It makes no sense, or the command cannot be started.
pub fn supervise() -> Result<bool, Trouble> {
    let schedule = match fs::read_to_string(SCHEDULE) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        schedule => schedule.map_err(|error| format!("{SCHEDULE}: {error}"))?,
    };
    let command = fs::read_to_string(COMMAND).map_err(|error| format!("{COMMAND}: {error}"))?;
    drivers::make_ready()?;
    let mut lines = schedule.lines().zip(0..).peekable();
    while let Some((line, number)) = lines.next() {
        let at_run = |trouble: String| format!("run {number}: {trouble}");
        let (end, words) = parse(line).ok_or_else(|| at_run(format!("'{line}' is no run")))?;
        let last = if lines.peek().is_none() { " last" } else { "" };
        println!("run {number} begins{last}");
        let told = run(&command, words, &end).map_err(|error| at_run(error.to_string()))?;
        println!("run {number} {told}");
    }
    println!("schedule done");
    Ok(true)
}

/// A run: `own`, or `kill LINES MILLISECONDS`, then `:` and what is added.
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
    told(&mut started, killed)
}

fn told(started: &mut Child, killed: bool) -> io::Result<String> {
    let status = started.wait()?;
    Ok(match (killed, status.code()) {
        (true, None) => "killed".to_owned(),
        (_, Some(code)) => format!("ended {code}"),
        (false, None) => format!("ended by itself, {status}"),
    })
}

/// Says what a run says, until so many lines that count; false if it ended before.
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
        // What was cut off in the middle says less than was meant.
        match line.ends_with(b"\n") {
            true => println!("{text}"),
            false => println!("cut: {text}"),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_schedule_says_how_a_run_ends() {
        assert_eq!(parse("own:a b"), Some((End::Own, "a b")));
        let delay = Duration::from_millis(20);
        let killed = End::Killed { lines: 3, delay };
        assert_eq!(parse("kill 3 20:"), Some((killed, "")));
        for bad in ["", "own", "own 1:", "kill 3:", "kill x 1:", "stop:"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_run_ends_by_itself_or_is_killed_after_what_it_says() {
        let say = "for i in 1 2 3; do echo journal told 0 $i; done;";
        let command = format!("/bin/sh\n-c\n{say}");
        let told = |added, end| run(&command, added, &end).unwrap();
        assert_eq!(told("exit 3", End::Own), "ended 3");
        let killed = |lines| End::Killed {
            lines,
            delay: Duration::ZERO,
        };
        assert_eq!(told("exec sleep 60", killed(2)), "killed");
        assert_eq!(told("exit 0", killed(4)), "ended 0", "never said enough");
        assert!(told("kill -9 $$", End::Own).contains("signal: 9"));
    }
}
