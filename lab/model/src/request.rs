//! Requests, which are expanded to plans.

use crate::block;
use crate::config::Config;
use crate::guest_config::GuestConfig;
use crate::irq;
use crate::kernel_build::Column;
use crate::names;
use crate::operation::Operation;
use crate::overrides::Overrides;
use crate::packets;
use crate::populate;
use crate::preset::Preset;
use crate::slice::Slice;
use serde::{Deserialize, Serialize};
use trapline_abi::{Need, OpSet, Workload};

/// Default boots of an environment on an exact clock: one for the figure, one for its proof.
pub const EXACT_BOOTS: u32 = 2;

/// A request for measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Purpose of the figures.
    pub aim: Aim,
    /// Configurations to measure. Order and repetition have no effect.
    pub configs: Vec<Config>,
    /// Configurations that can be measured on this host.
    pub ready: Vec<Config>,
    /// Operations that guests measure.
    pub operations: OpSet,
    /// Operations that no guest repeats: kernel builds, in the configurations with settings for them, and packets, in
    /// forwarders.
    pub long: Vec<Operation>,
    /// The subset that is named individually: measured even where it takes long.
    pub named: OpSet,
    /// Boots, and samples per boot.
    pub preset: Preset,
    /// Boots of each environment on the wall clock, if not the preset's number.
    pub boots: Option<u32>,
    /// Boots of each environment on an exact clock; further ones must reproduce the figures of the first.
    pub exact_boots: u32,
    /// Settings of every configuration that does not set them itself.
    pub overrides: Overrides,
    /// Adds an A/A control to long runs on the wall clock.
    pub with_control: bool,
    /// Seed of the order of boots on the wall clock and of resampling. Exact figures do not depend on it.
    pub seed: u64,
    /// Settings of workload irq.
    pub irq: irq::Settings,
    /// Settings of workload block.
    pub block: block::Settings,
    /// Settings of trials of packets.
    pub packets: packets::Settings,
    /// The slice of the plan that is executed; `None` for the whole plan.
    pub slice: Option<Slice>,
    /// Why there is no tap on this host, if a network is measured and there is none.
    pub without_taps: Option<String>,
}

/// Purpose of the figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aim {
    /// A report.
    #[default]
    Report,
    /// A baseline.
    Baseline,
    /// The comparison with the baseline in this file.
    Check(String),
}

/// No configuration and no operation.
impl Default for Request {
    fn default() -> Self {
        Self {
            aim: Aim::Report,
            configs: Vec::new(),
            ready: Vec::new(),
            operations: OpSet::EMPTY,
            long: Vec::new(),
            named: OpSet::EMPTY,
            preset: Preset::Quick,
            boots: None,
            exact_boots: EXACT_BOOTS,
            overrides: Overrides::default(),
            with_control: false,
            seed: 0,
            irq: irq::Settings::default(),
            block: block::Settings::default(),
            packets: packets::Settings::default(),
            slice: None,
            without_taps: None,
        }
    }
}

impl Request {
    /// Returns the operations of a configuration that no guest repeats.
    pub fn long_in(&self, config: &Config) -> Vec<Operation> {
        let is_one = |operation: &&Operation| match operation {
            Operation::Guest(_) => false,
            Operation::Build(_) => Column::of(config).is_some(),
            Operation::Packets(_) => config.environment.forwarder().is_some(),
        };
        self.long.iter().filter(is_one).copied().collect()
    }

    /// Returns whether guests measure operations in a configuration.
    pub fn is_of_guest(&self, config: &Config) -> bool {
        let is_long = Column::of(config).is_some() || config.environment.forwarder().is_some();
        !self.operations.is_empty() && !is_long
    }

    /// Returns a guest with the settings of the request, and those of a configuration.
    pub(crate) fn configured(&self, mut guest: GuestConfig, config: &Config) -> GuestConfig {
        let of_all = self.overrides.supported_by(config.environment);
        of_all.apply(&mut guest);
        config.overrides.apply(&mut guest);
        guest
    }

    /// Returns whether a figure depends on the seed.
    pub fn uses_seed(&self) -> bool {
        let mut configs = self.configs.iter();
        configs.any(|config| !config.environment.clock().is_exact())
    }
}

/// Returns the operations measured by default: all but those of memory, which has many, of net, which need a tap,
/// of files, which need a disk, of ipc and smp, which need a second CPU, and of irq, populate and block, which have a command of
/// their own. Of each workload they are those that its name selects.
pub fn usual_operations() -> OpSet {
    let separate = Workload::Memory.set()
        | irq::operations()
        | populate::operations()
        | trapline_abi::block::operations()
        | Workload::Files.set()
        | Workload::Net.set()
        | Need::SecondCpu.operations();
    let selected = Workload::ALL.into_iter().map(names::selected_by);
    selected.collect::<OpSet>() - separate
}
