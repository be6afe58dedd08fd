//! Counts instructions in the boots of a plan: each boot gets a QEMU with a plugin of its own, or a
//! Bochs whose debugger output is read. The counts are kept by boot.

use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::symbols::machine_of;
use crate::windows;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use trapline_environments::{EnvError, Environment, Plugin, Settings, Trace};
use trapline_model::{Clock, Config, EnvironmentId, Observation, PlannedBoot};
use trapline_profile::bochs_trace::TraceReader;
use trapline_profile::{format, Window};

/// Configuration and replicate of a boot.
type Key = (Config, u32);

/// The counts of a boot, or the failure to read them.
type Counted = Result<Vec<Window>, Failure>;

/// Remedy for counts that cannot be read.
const REBUILD: &str = "'make build' rebuilds the lab and the plugin";

/// Instruction counters, and their counts so far.
pub struct Counters {
    /// For environments that QEMU simulates, if there are any.
    plugin: Option<Plugin>,
    stacks: bool,
    counted: Mutex<BTreeMap<Key, Counted>>,
}

/// An environment with a counter, for one boot.
pub struct CountedEnvironment {
    /// The environment.
    pub environment: Box<dyn Environment>,
    counter: Counter,
}

/// The counter of one boot.
enum Counter {
    Plugin(Plugin),
    Debugger(Arc<Mutex<TraceReader>>),
}

impl Counter {
    /// Returns `settings` with this counter.
    fn settings(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        match self {
            Self::Plugin(plugin) => settings.plugin = Some(plugin.clone()),
            Self::Debugger(reader) => settings.trace = Some(Trace::new(reader.clone())),
        }
        settings
    }

    fn windows(&self) -> Counted {
        match self {
            Self::Plugin(plugin) => {
                let text = plugin.written()?;
                format::read(&text).map_err(|error| Failure::from_error(&error).help(REBUILD))
            }
            Self::Debugger(reader) => {
                let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
                let taken = reader.take();
                taken.map_err(|error| Failure::from_error(&error).help(REBUILD))
            }
        }
    }
}

impl CountedEnvironment {
    /// Returns an environment of these settings with a plugin.
    pub fn with_plugin(id: EnvironmentId, settings: &Settings, plugin: Plugin) -> Self {
        Self::with_counter(id, settings, Counter::Plugin(plugin))
    }

    fn with_counter(id: EnvironmentId, settings: &Settings, counter: Counter) -> Self {
        let settings = counter.settings(settings);
        Self {
            environment: trapline_environments::environment(id, &settings),
            counter,
        }
    }

    /// Returns what was counted since the last call.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn windows(&self) -> Result<Vec<Window>, Failure> {
        self.counter.windows()
    }
}

/// Returns the arguments of the plugin for an environment, among them `lengths` if its hypervisor finds lengths of
/// instructions.
pub fn arguments(id: EnvironmentId, lengths: &str) -> Vec<String> {
    let levels = id.stack().levels.len();
    let words = [
        (id.stack().finds_lengths(), lengths.to_owned()),
        (id.is_xen(), format::XEN.to_owned()),
        (id.is_nova(), format::RESET.to_owned()),
        (
            id.stack().is_nested(),
            format!("{}{levels}", format::LEVELS),
        ),
    ];
    let words = words.into_iter().filter(|(is_wanted, _)| *is_wanted);
    words.map(|(_, word)| word).collect()
}

impl Counters {
    /// Creates counters for `configs`. The plugin records call stacks if `stacks` is set.
    ///
    /// # Errors
    /// The plugin is required but missing, or a QEMU cannot load it.
    pub fn find(inventory: &Inventory, configs: &[Config], stacks: bool) -> Result<Self, EnvError> {
        let on_qemu = configs.iter();
        let on_qemu = on_qemu.filter(|config| config.environment.clock() == Clock::Insn);
        let qemus: BTreeMap<_, _> = on_qemu
            .map(|config| inventory.with_files_of(&config.overrides).settings())
            .map(|settings| (&settings.qemu, settings))
            .collect();
        let mut plugin = None;
        for settings in qemus.into_values() {
            plugin = Some(settings.load_plugin(&format::ready())?);
        }
        Ok(Self {
            plugin,
            stacks,
            counted: Mutex::default(),
        })
    }

    /// Returns the environment of a boot, made from `settings`, with a counter.
    ///
    /// # Errors
    /// Memory for the counts cannot be allocated, or instructions cannot be counted there.
    pub fn attach(
        &self,
        id: EnvironmentId,
        settings: &Settings,
    ) -> Result<CountedEnvironment, EnvError> {
        let mut words = arguments(id, format::LENGTHS);
        // Call stacks distinguish one guest only.
        if self.stacks && !id.stack().is_nested() {
            words.push(format::STACKS.to_owned());
        }
        let counter = match (&self.plugin, id.clock()) {
            (_, Clock::InsnVmx) => {
                let reader = TraceReader::new(machine_of(id), !id.is_native());
                Counter::Debugger(Arc::new(Mutex::new(reader)))
            }
            (Some(plugin), _) => Counter::Plugin(plugin.another()?.with_arguments(words)),
            (None, _) => {
                return Err(EnvError::unavailable(format!(
                    "instructions of {id} cannot be counted"
                )))
            }
        };
        Ok(CountedEnvironment::with_counter(id, settings, counter))
    }

    /// Adds the counts of a start that is over, of the operations that its boot keeps.
    pub fn store(
        &self,
        boot: &PlannedBoot,
        mut windows: Result<Vec<Window>, Failure>,
        observation: Option<&Observation>,
    ) {
        if let Some(observation) = observation {
            windows = windows.and_then(|all| windows::kept(observation, all, boot.kept));
        }
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let of_boot = counted.entry((boot.config.clone(), boot.replicate));
        let of_boot = of_boot.or_insert_with(|| Ok(Vec::new()));
        match (of_boot, windows) {
            (Ok(all), Ok(windows)) => all.extend(windows),
            (failed @ Ok(_), Err(failure)) => *failed = Err(failure),
            (Err(_), _) => {}
        }
    }

    /// Removes and returns the counts of a boot, which are large.
    ///
    /// # Errors
    /// There are none, or they cannot be read.
    pub fn take(&self, config: &Config, replicate: u32) -> Result<Vec<Window>, Failure> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let windows = counted.remove(&(config.clone(), replicate));
        let missing = || Err(Failure::new("no instructions were counted").help(REBUILD));
        let windows = windows.unwrap_or_else(missing);
        windows.map_err(|failure| failure.about(&config.to_string()))
    }
}
