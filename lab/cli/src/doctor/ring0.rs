//! Speed of the guest's ring 0, measured because CPU flags can be wrong: `trapline-probe` runs a loop of
//! two instructions there.

use crate::parts;
use std::process::Command;
use std::time::Duration;
use trapline_environments::tool;

/// Time limit of the probe. Emulated ring 0 takes a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the iterations per second of an empty loop at ring 0, for a counter of `hertz`. `None` if a
/// part is missing or the guest fails.
pub fn measure(hertz: f64) -> Option<f64> {
    rate(&run_probe()?, hertz)
}

fn run_probe() -> Option<String> {
    let mut probe = Command::new(parts::directory().join("trapline-probe"));
    let output = tool::output_within(&mut probe, PATIENCE).ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
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
