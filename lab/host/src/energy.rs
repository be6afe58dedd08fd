//! Energy of the processor packages by RAPL, of all programs of the host together (Linux,
//! Documentation/power/powercap/powercap.rst). Kernels for AMD's processors have the same files.

use std::fs;
use std::path::{Path, PathBuf};

/// Directory of the counters.
pub const POWERCAP: &str = "/sys/class/powercap";

/// Counter of a package, in microjoules. It wraps above `range`.
struct Counter {
    directory: PathBuf,
    range: u64,
    before: u64,
}

/// Counters of all packages, read at the begin of a period.
pub struct EnergySampler(Vec<Counter>);

impl EnergySampler {
    /// Reads the counters below `directory`, usually [`POWERCAP`]. There are none without RAPL, or without the right to read
    /// them.
    pub fn begin(directory: &Path) -> Self {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let packages = entries.filter(|entry| is_package(&entry.file_name().to_string_lossy()));
        let counters = packages.filter_map(|entry| {
            let directory = entry.path();
            Some(Counter {
                range: number(&directory, "max_energy_range_uj")?,
                before: number(&directory, "energy_uj")?,
                directory,
            })
        });
        Self(counters.collect())
    }

    /// Returns the energy since the begin, in joules; `None` if a counter cannot be read, or there are none. The period is
    /// shorter than that of a wrap, at least a minute.
    pub fn end(self) -> Option<f64> {
        let all = self.0.iter().map(|counter| {
            let now = number(&counter.directory, "energy_uj")?;
            let wrapped = if now < counter.before {
                counter.range
            } else {
                0
            };
            (now + wrapped).checked_sub(counter.before)
        });
        let all: Vec<u64> = all.collect::<Option<_>>()?;
        (!all.is_empty()).then(|| all.iter().sum::<u64>() as f64 / 1e6)
    }
}

/// Returns whether this is a package, such as `intel-rapl:0`, not a part of one, such as `intel-rapl:0:1`.
fn is_package(name: &str) -> bool {
    let number = name.strip_prefix("intel-rapl:");
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

fn number(directory: &Path, file: &str) -> Option<u64> {
    let text = fs::read_to_string(directory.join(file)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the files of a counter whose range is that of a recorded one.
    fn write(directory: &Path, name: &str, microjoules: &str) {
        let place = directory.join(name);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("max_energy_range_uj"), "262143328850\n").unwrap();
        fs::write(place.join("energy_uj"), microjoules).unwrap();
    }

    #[test]
    fn energy_of_packages_is_added_up_across_a_wrap() {
        let place = tempfile::tempdir().unwrap();
        write(place.path(), "intel-rapl:0", "262143328000\n");
        write(place.path(), "intel-rapl:1", "5000000\n");
        write(place.path(), "intel-rapl:0:0", "7\n");
        write(place.path(), "intel-rapl-mmio:0", "7\n");
        let sampler = EnergySampler::begin(place.path());
        write(place.path(), "intel-rapl:0", "1999150\n");
        write(place.path(), "intel-rapl:1", "5500000\n");
        write(place.path(), "intel-rapl:0:0", "9000000\n");
        assert_eq!(sampler.end(), Some(2.0 + 0.5));
    }

    #[test]
    fn energy_that_cannot_be_read_is_absent() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(EnergySampler::begin(place.path()).end(), None);
        write(place.path(), "intel-rapl:0", "1\n");
        let sampler = EnergySampler::begin(place.path());
        fs::remove_dir_all(place.path().join("intel-rapl:0")).unwrap();
        assert_eq!(sampler.end(), None);
        assert_eq!(EnergySampler::begin(Path::new("/nonexistent")).end(), None);
    }
}
