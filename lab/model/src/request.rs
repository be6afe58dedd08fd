//! What somebody wants to know, before it is a plan.

use crate::block;
use crate::config::Config;
use crate::irq;
use crate::overrides::Overrides;
use crate::populate;
use crate::preset::Preset;
use trapline_abi::{Op, OpSet};

/// What somebody wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who is to be measured. Order and repetition mean nothing.
    pub configs: Vec<Config>,
    /// Those that can run here and now; others than were asked for mean nothing.
    pub ready: Vec<Config>,
    /// Set of [`Op::bit`]: the operations asked for.
    pub operations: OpSet,
    /// Those of them that were named one by one: they are measured even where they take
    /// long.
    pub named: OpSet,
    /// How thorough.
    pub preset: Preset,
    /// Boots of each environment on the wall clock, if not the preset's number.
    pub boots: Option<u32>,
    /// Settings of every configuration that does not set them itself.
    pub overrides: Overrides,
    /// Whether a long run on the wall clock has one config twice, to tell what chance does.
    pub with_control: bool,
    /// Decides the order of boots on the wall clock and the draws of resampling. Figures of
    /// exact clocks do not depend on it.
    pub seed: u64,
    /// How interrupts are made, where any are asked for.
    pub irq: irq::Settings,
    /// How much of a disk is measured, where any is.
    pub block: block::Settings,
}

/// Nobody and nothing, as it is where nobody says how.
impl Default for Request {
    fn default() -> Self {
        Self {
            configs: Vec::new(),
            ready: Vec::new(),
            operations: 0,
            named: 0,
            preset: Preset::Quick,
            boots: None,
            overrides: Overrides::default(),
            with_control: false,
            seed: 0,
            irq: irq::Settings::default(),
            block: block::Settings::default(),
        }
    }
}

impl Request {
    /// Returns whether anything that is asked for depends on the seed: the wall clock does.
    pub fn uses_seed(&self) -> bool {
        let mut configs = self.configs.iter();
        configs.any(|config| !config.environment.clock().is_exact())
    }
}

/// What is measured where nobody says what: all but interrupts, which take as long as
/// everything else together, giving memory, of which there is as much as a machine
/// has, and disks, which are the user's to name; all of them have a command of their own.
pub fn usual_operations() -> OpSet {
    let apart = irq::operations() | populate::operations() | trapline_abi::block::operations();
    known_operations() & !apart
}

/// The set of all operations there are.
pub fn known_operations() -> OpSet {
    Op::ALL.into_iter().fold(0, |set, op| set | op.bit())
}
