//! Speed of the guest's ring 0, measured because CPU flags can be wrong: `trapline-probe` runs a loop of
//! two instructions there.

use crate::parts;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of the probe. Emulated ring 0 takes a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the iterations per second of an empty loop at ring 0, for a counter of `hertz`. `None` if a
/// part is missing or the guest fails.
pub fn measure(hertz: f64) -> Option<f64> {
    rate(&run_probe()?, hertz)
}

fn run_probe() -> Option<String> {
    let mut child = Command::new(parts::directory().join("trapline-probe"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    end_in_time(&mut child);
    let mut output = String::new();
    child.stdout.take()?.read_to_string(&mut output).ok()?;
    Some(output)
}

/// Waits for the child, whose output fits into a pipe, and kills it after the limit.
fn end_in_time(child: &mut Child) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            _ => return,
        }
    }
    // It may have exited since.
    let _ = child.kill();
    let _ = child.wait();
}

/// Parses the rate from the output of the probe.
fn rate(output: &str, hertz: f64) -> Option<f64> {
    let number = |name: &str| -> Option<f64> {
        let mut lines = output.lines().filter_map(|line| line.split_once('\t'));
        lines.find(|(key, _)| *key == name)?.1.parse().ok()
    };
    let (turns, ticks) = (number("ring0-turns")?, number("ring0-ticks")?);
    (ticks > 0.0).then(|| turns * hertz / ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_parsed() {
        let output = "caps\tCaps { vcpus: 4 }\nring0-turns\t1000\nring0-ticks\t2000\n";
        assert_eq!(rate(output, 2e9), Some(1e9));
        assert_eq!(rate("ring0-turns\t1000\n", 2e9), None);
        assert_eq!(rate("ring0-turns\t1000\nring0-ticks\t0\n", 2e9), None);
    }
}
