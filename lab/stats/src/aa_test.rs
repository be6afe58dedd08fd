//! A/A test: a configuration that was booted twice in each block is compared with itself. Every
//! difference is noise; its size determines the smallest change that these boots detect.

use crate::compare::{boots_of, compare_all, Comparison, Row};
use crate::hosts::design_of_run;
use crate::verdict::{Assessment, Design, FalsePositives, Settings};
use trapline_model::{Config, Observation, Operation};

/// Result of comparing a configuration with itself.
#[derive(Clone, Debug, PartialEq)]
pub struct AaTest {
    /// The configuration.
    pub config: Config,
    /// Number of blocks, or of hosts.
    pub blocks: usize,
    /// Pairing of the boots: within blocks, or on hosts.
    pub design: Design,
    /// Counts of verdicts.
    pub false_positives: FalsePositives,
    /// Level of a significant p-value.
    pub level: f64,
    /// Smallest change of each operation, as a share, that as many boots detect with a probability of 80%
    /// if it is the only one in the table: at a level of `alpha / m` of `m` operations.
    pub detectable: Vec<(Operation, f64)>,
}

impl AaTest {
    /// Tests the configuration with an A/A control; `None` if no boot of `observations` is one.
    pub fn new(observations: &[Observation], settings: &Settings) -> Option<Self> {
        let control = observations
            .iter()
            .find(|boot| boot.config.overrides.is_control)?;
        let mut config = control.config.clone();
        config.overrides.is_control = false;
        let sides = [&config, &config.control()].map(|side| boots_of(observations, side));
        let [a, b] = &sides;
        let comparison = Comparison {
            a: std::slice::from_ref(a),
            b: std::slice::from_ref(b),
            design: design_of_run(a.iter().chain(b)),
            repeated: &[],
        };
        let rows = compare_all(&[comparison], settings);
        Self::from_rows(config, &rows, settings)
    }

    /// Counts the verdicts of a table in which a configuration was compared with itself; `None` if the
    /// table has no wall-clock test.
    pub fn from_rows(config: Config, rows: &[Row], settings: &Settings) -> Option<Self> {
        let compared: Vec<(Operation, &Assessment)> = rows
            .iter()
            .filter_map(|row| Some((row.op, row.outcome.as_ref().ok()?)))
            .collect();
        let level = settings.alpha;
        let found = compared.iter().map(|(_, assessment)| *assessment);
        let false_positives = FalsePositives::count(found, level);
        let level_of_one = level / false_positives.tests.max(1) as f64;
        let detectable = compared
            .iter()
            .filter_map(|(op, assessment)| Some((*op, assessment.smallest_effect(level_of_one)?)));
        let blocks = compared.iter().map(|(_, assessment)| assessment.blocks);
        let mut designs = compared
            .iter()
            .filter_map(|(_, assessment)| assessment.design);
        (false_positives.tests > 0).then(|| Self {
            config,
            blocks: blocks.max().unwrap_or(0),
            design: designs.next().unwrap_or(Design::Blocked),
            false_positives,
            level,
            detectable: detectable.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;
    use trapline_model::testing::{batches, boot, measured};
    use trapline_model::EnvironmentId;

    fn host_boot(block: u32, again: bool, ticks: u64) -> Observation {
        let ticks: Vec<u64> = (0..5).map(|number| ticks + number).collect();
        let outcome = measured(batches(&ticks, 1));
        let mut boot = boot(EnvironmentId::HOST, block, [(Op::Getpid, outcome)]);
        boot.config.overrides.is_control = again;
        boot
    }

    #[test]
    fn the_noise_of_a_control_determines_the_detectable_change() {
        let noise = [0, 7, 3, 9, 1, 4, 8, 2, 6, 5];
        let boots: Vec<_> = (0..10)
            .flat_map(|block| {
                let drift = 1_000 + 10 * u64::from(block);
                let noise: u64 = noise[block as usize];
                [(false, noise), (true, 9 - noise)]
                    .map(|(again, noise)| host_boot(block, again, drift + noise))
            })
            .collect();
        let found = AaTest::new(&boots, &Settings::default()).unwrap();
        assert_eq!(found.config, Config::new(EnvironmentId::HOST));
        assert_eq!((found.blocks, found.false_positives.tests), (10, 1));
        assert_eq!(found.false_positives.changed, 0, "{found:?}");
        let (op, share) = found.detectable[0];
        assert_eq!(op, Op::Getpid);
        assert!((0.003..0.03).contains(&share), "{share}");
        let no_control: Vec<_> = boots
            .into_iter()
            .filter(|it| !it.config.overrides.is_control)
            .collect();
        assert_eq!(AaTest::new(&no_control, &Settings::default()), None);
    }
}
