//! Who counts in the boots of a plan: each boot gets a QEMU with a plugin of its
//! own, or a Bochs whose debugger is heard, and what that counted is kept by boot.

use super::machine_of;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use trapline_environments::{EnvError, Environment, Plugin, Settings, Trace};
use trapline_model::{Clock, EnvironmentId, PlannedBoot};
use trapline_profile::trace::Reader;
use trapline_profile::{wire, Window};

/// A boot: where, and which repetition.
type Key = (EnvironmentId, u32);

/// What was counted in a boot, or why that cannot be known.
type Counted = Result<Vec<Window>, String>;

/// What helps where nothing better is known.
const MEND: &str = "'make build' makes the lab and the plugin anew";

/// The plugin, and what was counted so far.
pub struct Counters {
    settings: Settings,
    /// For machines that QEMU makes, if there are any.
    plugin: Option<Plugin>,
    stacks: bool,
    counted: Mutex<BTreeMap<Key, Counted>>,
}

/// An environment in which is counted, for one boot.
pub struct Watched {
    /// The environment.
    pub environment: Box<dyn Environment>,
    counter: Counter,
}

/// Whether the image is a guest there.
fn is_guest(id: EnvironmentId) -> bool {
    use EnvironmentId::{SimVmxKvm, SimVmxQemuKvm, SimVmxXenPvh};
    matches!(id, SimVmxKvm | SimVmxQemuKvm | SimVmxXenPvh)
}

/// Who counts in one boot.
enum Counter {
    Plugin(Plugin),
    Debugger(Arc<Mutex<Reader>>),
}

impl Counter {
    /// The settings with which an environment has this counter in it.
    fn within(&self, settings: &Settings) -> Settings {
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
                let text = plugin.written().map_err(|error| error.to_string())?;
                wire::read(&text).map_err(|error| error.to_string())
            }
            Self::Debugger(reader) => {
                let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
                reader.take().map_err(|error| error.to_string())
            }
        }
    }
}

impl Counters {
    /// Counters for these environments, made of these settings; the plugin keeps call
    /// stacks if `stacks` says so.
    ///
    /// # Errors
    /// The plugin is needed, and is not there, or this QEMU cannot use it.
    pub fn find(
        settings: &Settings,
        environments: &[EnvironmentId],
        stacks: bool,
    ) -> Result<Self, EnvError> {
        let is_qemu = |id: &EnvironmentId| id.clock() == Clock::Insn;
        let plugin = match environments.iter().any(is_qemu) {
            true => Some(Plugin::find(settings, &wire::ready())?),
            false => None,
        };
        Ok(Self {
            settings: settings.clone(),
            plugin,
            stacks,
            counted: Mutex::default(),
        })
    }

    /// The environment of a boot, with a counter in it.
    ///
    /// # Errors
    /// There is no memory to count in, or no such environment.
    pub fn watch(&self, id: EnvironmentId) -> Result<Watched, EnvError> {
        let words = [(self.stacks, wire::STACKS), (id.is_xen(), wire::XEN)];
        let words = words.into_iter().filter(|(wanted, _)| *wanted);
        let words = words.map(|(_, word)| word.to_owned()).collect();
        let counter = match (&self.plugin, id.clock()) {
            (_, Clock::InsnVmx) => {
                let reader = Reader::new(machine_of(id), is_guest(id));
                Counter::Debugger(Arc::new(Mutex::new(reader)))
            }
            (Some(plugin), _) => Counter::Plugin(plugin.another()?.told(words)),
            (None, _) => return Err(EnvError::Missing(format!("nobody counts in {id}"))),
        };
        let settings = counter.within(&self.settings);
        let mut all = trapline_environments::all(&settings).into_iter();
        let environment = all.find(|environment| environment.id() == id);
        let missing = || EnvError::Missing("no such environment here".to_owned());
        Ok(Watched {
            environment: environment.ok_or_else(missing)?,
            counter,
        })
    }

    /// Keeps what was counted in a boot that is over.
    pub fn keep(&self, boot: &PlannedBoot, watched: &Watched) {
        let windows = watched.counter.windows();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.insert((boot.environment, boot.replicate), windows);
    }

    /// What was counted in a boot, once: it is large.
    ///
    /// # Errors
    /// It was not, or cannot be read.
    pub fn take(&self, environment: EnvironmentId, replicate: u32) -> Result<Vec<Window>, Failure> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let windows = counted.remove(&(environment, replicate));
        let windows = windows.unwrap_or_else(|| Err("nothing was counted".to_owned()));
        windows.map_err(|why| {
            let (why, help) = why.split_once("; ").unwrap_or((&why, MEND));
            Failure::new(format!("{environment}: {why}")).help(help)
        })
    }
}
