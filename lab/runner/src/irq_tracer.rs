//! Traces the interrupts of guests' own timers through a simulated machine: a plugin of QEMU that has
//! the addresses of the code on the interrupt path records the time of each stage that guest and host
//! cannot stamp.
//!
//! Lateness is measured the same without a tracer. Where interrupts cannot be traced, a fact of the
//! environment has the reason.

use crate::context::RunContext;
use crate::symbols::{self, machine_of};
use crate::timeout;
use std::collections::BTreeMap;
use trapline_abi::Op;
use trapline_environments::{EnvError, Environment, Limits, Plugin, Settings};
use trapline_model::{irq, Clock, EnvironmentId, Feature, Observation, Outcome};
use trapline_profile::format;
use trapline_profile::irq_path::{self, IrqPath};

/// Interrupt paths of environments, or the reason why they cannot be traced.
pub struct IrqTracers {
    settings: Settings,
    plugin: Option<Plugin>,
    paths: BTreeMap<EnvironmentId, Result<IrqPath, String>>,
}

/// An environment with a tracer, for one boot.
pub struct TracedEnvironment {
    /// The environment.
    pub environment: Box<dyn Environment>,
    plugin: Plugin,
}

impl IrqTracers {
    /// Creates tracers for those of `environments` whose interrupts can be traced.
    pub fn find(context: &RunContext<'_>, environments: &[EnvironmentId]) -> Self {
        let inventory = context.inventory;
        let settings = inventory.settings().clone();
        let is_exact =
            |id: &EnvironmentId| id.clock().is_exact() && inventory.unavailable(*id).is_none();
        let exact: Vec<_> = environments.iter().copied().filter(is_exact).collect();
        let is_any_traceable = exact.iter().any(|id| is_traceable(*id));
        let plugin = is_any_traceable.then(|| settings.load_plugin(&format::ready()));
        let (plugin, unusable) = match plugin.transpose() {
            Ok(plugin) => (plugin, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let path = |id: EnvironmentId| match &unusable {
            Some(reason) if is_traceable(id) => Err(reason.clone()),
            _ => irq_path(context, id),
        };
        Self {
            paths: exact.into_iter().map(|id| (id, path(id))).collect(),
            settings,
            plugin,
        }
    }

    /// Returns the environment `id` with a tracer, or `None` if its interrupts cannot be traced.
    ///
    /// # Errors
    /// Memory for the trace cannot be allocated.
    pub fn attach(&self, id: EnvironmentId) -> Result<Option<TracedEnvironment>, EnvError> {
        let (Some(plugin), Some(Ok(path))) = (&self.plugin, self.paths.get(&id)) else {
            return Ok(None);
        };
        let xen = id.is_xen().then(|| format::XEN.to_owned());
        let words = xen.into_iter().chain([path.argument()]).collect();
        let plugin = plugin.another()?.with_arguments(words);
        let settings = Settings {
            plugin: Some(plugin.clone()),
            ..self.settings.clone()
        };
        Ok(Some(TracedEnvironment {
            environment: trapline_environments::environment(id, &settings),
            plugin,
        }))
    }

    /// Adds the traced timestamps to `observation`, and how they were obtained or why not.
    pub fn annotate(&self, observation: &mut Observation, traced: Option<&TracedEnvironment>) {
        let stamped = match (traced, self.paths.get(&observation.config.environment)) {
            (Some(traced), _) => add_timestamps(observation, traced),
            (None, Some(Err(reason))) => Err(reason.clone()),
            (None, _) => return,
        };
        let stages = stamped.err().unwrap_or_else(|| irq::COUNTED.to_owned());
        observation.facts.insert(irq::STAGES.to_owned(), stages);
    }
}

fn is_traceable(id: EnvironmentId) -> bool {
    id.clock() == Clock::Insn && !id.is_native()
}

/// Locates the code on the path of interrupts in an environment.
fn irq_path(context: &RunContext<'_>, id: EnvironmentId) -> Result<IrqPath, String> {
    if let Some(why) = id.why_not(Feature::InterruptPath) {
        return Err(why.to_owned());
    }
    let watch = Limits {
        timeout: timeout::EXACT,
        stop: context.interrupt.flag(),
    };
    let symbols = if id.is_bare() {
        Ok(Default::default())
    } else {
        symbols::of_irq_path(context, id, &watch)
    };
    let symbols = symbols.map_err(|failure| failure.to_string())?;
    IrqPath::find(&symbols, machine_of(id)).map_err(|error| error.to_string())
}

fn add_timestamps(observation: &mut Observation, traced: &TracedEnvironment) -> Result<(), String> {
    let text = traced.plugin.written().map_err(|error| error.to_string())?;
    let passages = irq_path::read(&text).map_err(|error| error.to_string())?;
    let (mut interrupts, mut is_host_timer_measured) = (Vec::new(), false);
    // In the order in which the guest measures them.
    for operation in &mut observation.operations {
        let is_of_host = operation.op == Op::HostTimer;
        match &mut operation.outcome {
            Outcome::Skipped(_) => {}
            _ if is_of_host => is_host_timer_measured = true,
            Outcome::Measured {
                interrupts: of_one, ..
            } => interrupts.extend(of_one),
            // Its interrupts may be among the traced ones.
            Outcome::Failed(reason) => return Err(format!("a timer failed: {reason}")),
        }
    }
    if interrupts.is_empty() {
        return Err("no interrupts to trace".to_owned());
    }
    let count = interrupts.len();
    irq_path::stamp(interrupts, &passages, is_host_timer_measured)
        .map_err(|error| error.to_string())?;
    if let Some(entered) = irq_path::guest_entry_range(passages.iter().take(count)) {
        observation
            .facts
            .insert(irq::GUEST_ENTERED.to_owned(), entered);
    }
    Ok(())
}
