//! Who counts in the boots of a plan: each boot gets a QEMU with a plugin of its
//! own, and what that counted is kept by boot.

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use trapline_environments::{EnvError, Environment, Plugin, Settings};
use trapline_ledger::{wire, Window};
use trapline_plan::{EnvironmentId, PlannedBoot};

/// A boot: where, and which repetition.
type Key = (EnvironmentId, u32);

/// What was counted in a boot, or why that cannot be known.
type Counted = Result<Vec<Window>, String>;

/// What helps where nothing better is known.
const MEND: &str = "'make build' makes the lab and the plugin anew";

/// The plugin, and what was counted so far.
pub struct Counters {
    settings: Settings,
    plugin: Plugin,
    stacks: bool,
    counted: Mutex<BTreeMap<Key, Counted>>,
}

/// An environment in which is counted, for one boot.
pub struct Watched {
    /// The environment.
    pub environment: Box<dyn Environment>,
    plugin: Plugin,
}

impl Counters {
    /// Counters for environments of these settings, which keep call stacks if
    /// `stacks` says so.
    ///
    /// # Errors
    /// The plugin is not there, or this QEMU cannot use it.
    pub fn find(settings: &Settings, stacks: bool) -> Result<Self, EnvError> {
        Ok(Self {
            settings: settings.clone(),
            plugin: Plugin::find(settings, &wire::ready())?,
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
        let plugin = self
            .plugin
            .another()?
            .told(words.map(|(_, word)| word).collect());
        let settings = Settings {
            plugin: Some(plugin.clone()),
            ..self.settings.clone()
        };
        let mut all = trapline_environments::all(&settings).into_iter();
        let environment = all.find(|environment| environment.id() == id);
        let missing = || EnvError::Missing("no such environment here".to_owned());
        Ok(Watched {
            environment: environment.ok_or_else(missing)?,
            plugin,
        })
    }

    /// Keeps what was counted in a boot that is over.
    pub fn keep(&self, boot: &PlannedBoot, watched: &Watched) {
        let text = watched.plugin.written().map_err(|error| error.to_string());
        let windows = text.and_then(|text| wire::read(&text).map_err(|error| error.to_string()));
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
