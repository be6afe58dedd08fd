//! Who follows the interrupts of guests' own timers on their way through a simulated
//! machine: a plugin in its QEMU that knows which code the way leads over. What it saw
//! becomes the stages that nobody there can stamp.
//!
//! Nothing of it is needed to measure how late interrupts are, and nothing is changed by
//! it: where interrupts cannot be followed, a fact of the environment says why.

use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::ledgers::{machine_of, symbols};
use crate::measure::PATIENCE_INSN;
use std::collections::BTreeMap;
use trapline_abi::Op;
use trapline_environments::{EnvError, Environment, Plugin, Settings, Watch};
use trapline_model::{irq, Clock, EnvironmentId, Observation, Outcome};
use trapline_profile::way::{self, Way};
use trapline_profile::wire;

/// The ways of environments, or why there is none.
pub struct Followers {
    settings: Settings,
    plugin: Option<Plugin>,
    ways: BTreeMap<EnvironmentId, Result<Way, String>>,
}

/// An environment in which interrupts are followed, for one boot.
pub struct Followed {
    /// The environment.
    pub environment: Box<dyn Environment>,
    plugin: Plugin,
}

impl Followers {
    /// Followers for those of `environments` in which interrupts can be followed.
    pub fn find(lab: &Lab, environments: &[EnvironmentId], interrupt: &Interrupt) -> Self {
        let settings = lab.settings().clone();
        let exact = environments.iter().filter(|id| id.clock().is_exact());
        let exact: Vec<_> = exact.filter(|id| lab.why_not(**id).is_none()).collect();
        let has_ways = exact.iter().any(|id| can_be_followed(**id));
        let plugin = has_ways.then(|| Plugin::find(&settings, &wire::ready()));
        let (plugin, refused) = match plugin.transpose() {
            Ok(plugin) => (plugin, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let way = |id: EnvironmentId| match &refused {
            Some(why) if can_be_followed(id) => Err(why.clone()),
            _ => way_of(lab, id, interrupt),
        };
        Self {
            ways: exact.into_iter().map(|id| (*id, way(*id))).collect(),
            settings,
            plugin,
        }
    }

    /// The environment `id` with a follower in it, if there is a way there.
    ///
    /// # Errors
    /// There is no memory to write to.
    pub fn watch(&self, id: EnvironmentId) -> Result<Option<Followed>, EnvError> {
        let (Some(plugin), Some(Ok(way))) = (&self.plugin, self.ways.get(&id)) else {
            return Ok(None);
        };
        let xen = id.is_xen().then(|| wire::XEN.to_owned());
        let words = xen.into_iter().chain([way.word()]).collect();
        let plugin = plugin.another()?.told(words);
        let settings = Settings {
            plugin: Some(plugin.clone()),
            ..self.settings.clone()
        };
        let mut all = trapline_environments::all(&settings).into_iter();
        let environment = all.find(|environment| environment.id() == id);
        Ok(environment.map(|environment| Followed {
            environment,
            plugin,
        }))
    }

    /// Stamps what was observed with what was seen, and keeps how the stages were found.
    pub fn stamp(&self, seen: &mut Observation, followed: Option<&Followed>) {
        let stamped = match (followed, self.ways.get(&seen.environment)) {
            (Some(followed), _) => stamp(seen, followed),
            (None, Some(Err(why))) => Err(why.clone()),
            (None, _) => return,
        };
        let stages = match stamped {
            Ok(()) => irq::COUNTED.to_owned(),
            Err(why) => why,
        };
        seen.facts.insert(irq::STAGES.to_owned(), stages);
    }
}

fn can_be_followed(id: EnvironmentId) -> bool {
    id.clock() == Clock::Insn && !id.is_bare() && id != EnvironmentId::SimLinux
}

/// Why nobody follows the timer of a program.
const A_PROGRAM: &str = "what wakes one program cannot be told from what wakes another";

/// The way of interrupts in an environment.
fn way_of(lab: &Lab, id: EnvironmentId, interrupt: &Interrupt) -> Result<Way, String> {
    if id.clock() != Clock::Insn {
        return Err("no plugin follows interrupts on this machine".to_owned());
    }
    if id == EnvironmentId::SimLinux {
        return Err(A_PROGRAM.to_owned());
    }
    let watch = Watch {
        patience: PATIENCE_INSN,
        stop: interrupt.flag(),
    };
    let symbols = match id.is_bare() {
        true => Ok(Default::default()),
        false => symbols::of_way(lab, id, &watch, interrupt),
    };
    let symbols = symbols.map_err(|failure| failure.to_string())?;
    Way::of(&symbols, machine_of(id)).map_err(|why| why.to_string())
}

fn stamp(seen: &mut Observation, followed: &Followed) -> Result<(), String> {
    let text = followed
        .plugin
        .written()
        .map_err(|error| error.to_string())?;
    let passages = way::read(&text).map_err(|error| error.to_string())?;
    let others = seen
        .operations
        .iter()
        .any(|other| other.op == Op::HostTimer && !matches!(other.outcome, Outcome::Skipped(_)));
    let own = seen.operations.iter_mut().find(|o| o.op == Op::OwnTimer);
    let Some(Outcome::Measured { interrupts, .. }) = own.map(|own| &mut own.outcome) else {
        return Err("there were no interrupts to be followed".to_owned());
    };
    way::stamp(interrupts, &passages, others).map_err(|error| error.to_string())?;
    let of_own = passages.iter().take(interrupts.len());
    if let Some(entered) = way::guest_entered(of_own) {
        seen.facts.insert(irq::GUEST_ENTERED.to_owned(), entered);
    }
    Ok(())
}
