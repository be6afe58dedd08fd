//! Order of power-cycles and times of kills and power cuts, derived from a seed.

/// Numbers of ends of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Runs that end by a power-off.
    pub own: u32,
    /// Runs in which the VMM is killed.
    pub kills: u32,
    /// Power cuts of the machine with VMM and guest.
    pub cuts: u32,
    /// Seed.
    pub seed: u64,
}

/// A power cut after this number of flushed records of the last run of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut(pub u64);

/// Runs of one machine, from its start to its end.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// The lines of its schedule.
    pub runs: Vec<String>,
    /// Forced end, if any.
    pub cut: Option<Cut>,
}

/// Records that a guest writes before it powers off.
const RECORDS: u64 = 4;

/// Largest number of records, and of further milliseconds, before a guest is killed.
const MOST_LINES: u64 = 48;
const MOST_DELAY: u64 = 25;

/// Returns the guest's parameter for the number of records to write.
fn until(records: u64) -> String {
    format!("trapline-records={records}")
}

impl Plan {
    /// Returns the machines, separated by power cuts. A further run at the end reads the records after
    /// the last kill or cut.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        let mut draw = Draw(self.seed);
        let mut runs = self.shuffled(&mut draw);
        let each = runs.len().div_ceil(self.cuts as usize + 1).max(1);
        let mut parts: Vec<Part> = Vec::new();
        for number in 0..=self.cuts {
            let rest = runs.split_off(each.min(runs.len()));
            let mut runs = std::mem::replace(&mut runs, rest);
            let cut = (number < self.cuts).then(|| Cut(1 + draw.below(MOST_LINES)));
            // The guest writes until the power is cut, or reads a last time.
            let last = if cut.is_some() { u64::MAX } else { RECORDS };
            runs.push(format!("own:{}", until(last)));
            parts.push(Part { runs, cut });
        }
        parts
    }

    fn shuffled(&self, draw: &mut Draw) -> Vec<String> {
        // The last run reads only.
        let own = self.own.saturating_sub(1);
        let mut kills = self.kills;
        let all = own + kills;
        let runs = (0..all).map(|done| {
            let is_kill = draw.below(u64::from(all - done)) < u64::from(kills);
            kills -= u32::from(is_kill);
            if is_kill {
                let (lines, delay) = (1 + draw.below(MOST_LINES), draw.below(MOST_DELAY));
                format!("kill {lines} {delay}:{}", until(u64::MAX))
            } else {
                format!("own:{}", until(RECORDS))
            }
        });
        runs.collect()
    }
}

/// Pseudorandom numbers: Marsaglia's xorshift, times a constant (Vigna 2016, xorshift64*).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        let mut state = self.0.max(1);
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.0 = state;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_has_every_run_once_and_depends_on_the_seed_only() {
        let plan = Plan {
            own: 200,
            kills: 50,
            cuts: 3,
            seed: 7,
        };
        let parts = plan.parts();
        assert_eq!(parts, plan.parts());
        assert_ne!(parts, Plan { seed: 8, ..plan }.parts());
        let runs = || parts.iter().flat_map(|part| &part.runs);
        assert_eq!(runs().filter(|run| run.starts_with("kill ")).count(), 50);
        // One power-off each, and three runs that end by a power cut.
        assert_eq!(runs().filter(|run| run.starts_with("own:")).count(), 203);
        let cut: Vec<_> = parts.iter().map(|part| part.cut.is_some()).collect();
        assert_eq!(cut, [true, true, true, false]);
        assert!(parts.iter().all(|part| part.runs.len() > 50));
    }

    #[test]
    fn smallest_plan_has_one_run() {
        let plan = Plan {
            own: 1,
            kills: 0,
            cuts: 0,
            seed: 1,
        };
        let parts = plan.parts();
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].runs, ["own:trapline-records=4"]);
    }
}
