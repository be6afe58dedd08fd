//! Plan files: studies that can be repeated and resumed.
//!
//! A file names environments, workloads and settings of machines. Each combination of settings is a variant of
//! each environment, as far as the environment supports it. Defaults are those of the command line.

mod builds;
mod frames;
mod schema;

pub use schema::schema;

use crate::config::Config;
use crate::environment::EnvironmentId;
use crate::irq;
use crate::names;
use crate::operation::Operation;
use crate::overrides::Overrides;
use crate::packets;
use crate::preset::Preset;
use crate::request::{usual_operations, EXACT_BOOTS};
use crate::settings::{Options, Setting};
use crate::time;
use crate::vmms;
use serde::de::DeserializeOwned;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::{Spanned, Value};
use trapline_abi::OpSet;

/// A plan file.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// Description.
    pub about: String,
    /// Configurations.
    pub configs: Vec<Config>,
    /// Operations to measure.
    pub operations: OpSet,
    /// The subset that is named individually.
    pub named: OpSet,
    /// Samples per boot.
    pub preset: Preset,
    /// Boots of each config on the wall clock, if not the preset's.
    pub boots: Option<u32>,
    /// Boots of each config on an exact clock.
    pub exact_boots: u32,
    /// Seed of the order of boots and of resampling; drawn anew by each run if not given.
    pub seed: Option<u64>,
    /// No block starts after this time.
    pub budget: Option<Duration>,
    /// Settings of workload irq.
    pub irq: irq::Settings,
    /// Tables in place of the default ones.
    pub tables: Vec<Table>,
    /// Kernel builds or packets. A plan with one of them has nothing else.
    pub long: Vec<Operation>,
    /// Settings of trials of packets, without CPUs.
    pub packets: packets::Settings,
    /// Text of the file.
    pub text: String,
}

/// A table of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Title.
    pub title: String,
    /// Its rows.
    pub operations: OpSet,
}

/// An error in a plan file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct InvalidFile {
    /// Line, from 1.
    pub line: usize,
    /// Error and remedy.
    pub what: String,
}

/// The file as deserialized.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    about: String,
    #[serde(default)]
    environments: Vec<Spanned<String>>,
    #[serde(default, rename = "contenders")]
    configs: Vec<Spanned<String>>,
    #[serde(default)]
    workloads: Vec<Spanned<String>>,
    preset: Option<Spanned<String>>,
    boots: Option<Spanned<u32>>,
    #[serde(rename = "exact-boots")]
    exact_boots: Option<Spanned<u32>>,
    seed: Option<u64>,
    budget: Option<Spanned<String>>,
    vmm: Option<Spanned<Vmms>>,
    #[serde(default)]
    machine: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    irq: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    tables: Vec<WrittenTable>,
    #[serde(rename = "kernel-build")]
    builds: Option<Spanned<builds::Written>>,
    packets: Option<Spanned<frames::Written>>,
}

/// VMMs by name.
type Vmms = BTreeMap<String, vmms::Definition>;

/// The user's configuration as deserialized.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    vmm: Option<Spanned<Vmms>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTable {
    title: String,
    operations: Vec<Spanned<String>>,
}

/// Keys of `[irq]`.
pub(crate) const IRQ_KEYS: [&str; 10] = [
    "period",
    "samples",
    "between",
    "threshold",
    "require",
    "load",
    "pin",
    "sched",
    "halt",
    "vcpus-per-cpu",
];

/// Parses a plan file, and defines its VMMs.
///
/// # Errors
/// The text is not TOML, or a key or value is invalid.
pub fn read(text: &str) -> Result<Study, InvalidFile> {
    let reader = Reader { text };
    let written: Written = reader.deserialize()?;
    reader.define(written.vmm.as_ref())?;
    reader.study(&written)
}

/// Parses the user's configuration, and defines its VMMs.
///
/// # Errors
/// The same as those of [`read`].
pub fn read_configuration(text: &str) -> Result<(), InvalidFile> {
    let reader = Reader { text };
    let written: Configuration = reader.deserialize()?;
    reader.define(written.vmm.as_ref())
}

/// Parses a text, and names lines in errors.
struct Reader<'a> {
    text: &'a str,
}

impl Reader<'_> {
    fn bad(&self, at: usize, what: impl ToString) -> InvalidFile {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        InvalidFile {
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            what: what.to_string(),
        }
    }

    fn deserialize<T: DeserializeOwned>(&self) -> Result<T, InvalidFile> {
        toml::from_str(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.bad(at, error.message())
        })
    }

    fn define(&self, vmms: Option<&Spanned<Vmms>>) -> Result<(), InvalidFile> {
        let Some(vmms) = vmms else { return Ok(()) };
        let define =
            |(name, it): (&String, &vmms::Definition)| EnvironmentId::define_vmm(name, Some(it));
        let defined = vmms.get_ref().iter().try_for_each(define);
        defined.map_err(|error| self.bad(vmms.span().start, error))
    }

    fn study(&self, written: &Written) -> Result<Study, InvalidFile> {
        if let Some(packets) = &written.packets {
            return self.packets(written, packets);
        }
        let configs = self.configs(written)?;
        match &written.builds {
            Some(builds) => self.builds(written, builds, &configs),
            None => {
                let (operations, named) = self.operations(&written.workloads)?;
                let study = self.common(written, operations)?;
                Ok(Study {
                    configs,
                    named,
                    ..study
                })
            }
        }
    }

    /// Returns what all studies have; without configurations.
    fn common(&self, written: &Written, operations: OpSet) -> Result<Study, InvalidFile> {
        Ok(Study {
            about: written.about.clone(),
            configs: Vec::new(),
            operations,
            named: OpSet::EMPTY,
            long: Vec::new(),
            packets: packets::Settings::default(),
            preset: self.preset(written.preset.as_ref())?,
            boots: self.boots(written.boots.as_ref())?,
            exact_boots: self.exact_boots(written.exact_boots.as_ref())?,
            seed: written.seed,
            budget: self.budget(written.budget.as_ref())?,
            irq: self.irq(&written.irq)?,
            tables: self.tables(&written.tables, operations)?,
            text: self.text.to_owned(),
        })
    }

    /// Parses a text, and adds the line to an error.
    fn each<T, E: ToString>(
        &self,
        text: &Spanned<String>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, InvalidFile> {
        parse(text.get_ref()).map_err(|error| self.bad(text.span().start, error.to_string()))
    }

    /// Returns each environment in every variant, and the configurations of `contenders`, in table order without
    /// duplicates.
    fn configs(&self, written: &Written) -> Result<Vec<Config>, InvalidFile> {
        let mut all = Vec::new();
        let variants = self.variants(&written.machine)?;
        for name in &written.environments {
            let environment: EnvironmentId = self.each(name, names::environment)?;
            all.extend(variants.iter().map(|overrides| Config {
                environment,
                overrides: overrides.supported_by(environment),
            }));
        }
        for text in &written.configs {
            all.push(self.each(text, str::parse::<Config>)?);
        }
        if all.is_empty() {
            let what = "no environments: add environments = [\"host\", \"kvm\"], or others \
                        that 'trapline list' has";
            return Err(self.bad(0, what));
        }
        all.sort();
        all.dedup();
        Ok(all)
    }

    /// Returns all combinations of values.
    fn variants(
        &self,
        machine: &BTreeMap<String, Spanned<Value>>,
    ) -> Result<Vec<Overrides>, InvalidFile> {
        let mut variants = vec![Overrides::default()];
        for (key, values) in machine {
            let mut more = Vec::new();
            for value in words(values.get_ref()) {
                for overrides in &variants {
                    let of_command = Setting::from_name(key)
                        .is_some_and(|setting| setting.options == Options::Command);
                    if of_command {
                        let what = format!("'{key}' is a setting of [kernel-build] or [packets]");
                        return Err(self.bad(values.span().start, what));
                    }
                    let mut with = overrides.clone();
                    with.set(key, &value)
                        .map_err(|error| self.bad(values.span().start, error))?;
                    more.push(with);
                }
            }
            variants = more;
        }
        Ok(variants)
    }

    fn operations(&self, workloads: &[Spanned<String>]) -> Result<(OpSet, OpSet), InvalidFile> {
        let (mut all, mut named) = (OpSet::EMPTY, OpSet::EMPTY);
        for name in workloads {
            let set = self.each(name, names::operations)?;
            all |= set;
            if name.get_ref().contains('/') {
                named |= set;
            }
        }
        Ok(match workloads {
            [] => (usual_operations(), OpSet::EMPTY),
            _ => (all, named),
        })
    }

    fn preset(&self, name: Option<&Spanned<String>>) -> Result<Preset, InvalidFile> {
        name.map_or(Ok(Preset::Quick), |name| self.each(name, names::preset))
    }

    fn boots(&self, boots: Option<&Spanned<u32>>) -> Result<Option<u32>, InvalidFile> {
        let boots = boots.map(|boots| self.number("boots", boots, 1..=10_000));
        boots.transpose()
    }

    fn exact_boots(&self, boots: Option<&Spanned<u32>>) -> Result<u32, InvalidFile> {
        boots.map_or(Ok(EXACT_BOOTS), |boots| {
            self.number("exact-boots", boots, 1..=100)
        })
    }

    fn number(
        &self,
        name: &str,
        written: &Spanned<u32>,
        range: RangeInclusive<u32>,
    ) -> Result<u32, InvalidFile> {
        let value = *written.get_ref();
        if range.contains(&value) {
            Ok(value)
        } else {
            let [least, most] = [range.start(), range.end()];
            let what = format!("{name}: expected a number from {least} to {most}");
            Err(self.bad(written.span().start, what))
        }
    }

    fn budget(&self, budget: Option<&Spanned<String>>) -> Result<Option<Duration>, InvalidFile> {
        let parse = |text: &str| {
            time::positive_from_text(text).map_err(|error| format!("budget = '{text}': {error}"))
        };
        budget.map(|text| self.each(text, parse)).transpose()
    }

    /// Parses settings of interrupts. Their names are those of a run's facts.
    fn irq(
        &self,
        written: &BTreeMap<String, Spanned<String>>,
    ) -> Result<irq::Settings, InvalidFile> {
        let mut facts = BTreeMap::new();
        for (key, value) in written {
            let (name, text) = (format!("irq-{key}"), value.get_ref());
            let bad = |what: String| Err(self.bad(value.span().start, what));
            if !IRQ_KEYS.contains(&key.as_str()) {
                let known = IRQ_KEYS.join(", ");
                return bad(format!(
                    "unknown setting '{key}' in [irq]: choose from {known}"
                ));
            }
            let alone = irq::Settings::from_facts(&[(name.clone(), text.clone())].into());
            let usual = irq::Settings::default();
            if alone == usual && usual.facts().get(&name) != Some(text) {
                return bad(format!(
                    "{key} = '{text}': unsupported value, see 'trapline irq --help'"
                ));
            }
            if key == "period" && !irq::PERIODS.contains(&alone.period.0) {
                return bad(format!("{key} = '{text}': {}", irq::EXPECTED_PERIOD));
            }
            facts.insert(name, text.clone());
        }
        Ok(irq::Settings::from_facts(&facts))
    }

    fn tables(&self, written: &[WrittenTable], measured: OpSet) -> Result<Vec<Table>, InvalidFile> {
        let mut tables = Vec::new();
        for table in written {
            let mut operations = OpSet::EMPTY;
            for name in &table.operations {
                let set = self.each(name, names::operations)?;
                if !set.is_subset(measured) {
                    let what = format!("'{}' is not among the workloads above", name.get_ref());
                    return Err(self.bad(name.span().start, what));
                }
                operations |= set;
            }
            tables.push(Table {
                title: table.title.clone(),
                operations,
            });
        }
        Ok(tables)
    }
}

/// Returns the values as text.
fn words(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.iter().flat_map(words).collect(),
        Value::String(text) => vec![text.clone()],
        Value::Integer(number) => vec![number.to_string()],
        // No setting has this type.
        other => vec![other.type_str().to_owned()],
    }
}

#[cfg(test)]
mod tests;
