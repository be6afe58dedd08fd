//! What sets one row of a study apart from others in the same environment: settings of its
//! machine, and files that stand in for the usual ones.
//!
//! A variant is written as people type it and as the store keeps it: `cpus=2,memory=1G`.
//! The usual one is the empty text.

use crate::contender::UnsupportedSetting;
use crate::cpus;
use crate::environment::EnvironmentId;
use crate::guest_config::MemoryPages;
use crate::placement::Pin;
use crate::sharing::Halt;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Settings that are not the usual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Variant {
    /// Virtual CPUs.
    pub cpus: Option<u32>,
    /// Guest memory in MiB.
    pub memory_mib: Option<u32>,
    /// Of which pages that is.
    pub pages: Option<MemoryPages>,
    /// Where the thread of the virtual CPU runs.
    pub pin: Option<Pin>,
    /// Where the guest halts.
    pub idle: Option<Halt>,
    /// What stands in for a usual file, or for the VMM of the environments that have one of
    /// the user's choice.
    pub given: BTreeMap<FileOverride, String>,
    /// The same as the usual one, a second time: what differs between the two is chance.
    pub again: bool,
}

/// A file of an environment that a configuration may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileOverride {
    /// The unikernel.
    Image,
    /// The Linux program.
    Agent,
    /// trapline-vmm, or in `custom` and `sim/custom` a command.
    Vmm,
    /// QEMU.
    Qemu,
    /// The Linux of the simulated machine.
    Kernel,
    /// The directory of its modules.
    Modules,
}

impl FileOverride {
    /// Everything there is.
    pub const ALL: [Self; 6] = [
        Self::Image,
        Self::Agent,
        Self::Vmm,
        Self::Qemu,
        Self::Kernel,
        Self::Modules,
    ];

    /// The name people type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Agent => "agent",
            Self::Vmm => "vmm",
            Self::Qemu => "qemu",
            Self::Kernel => "kernel",
            Self::Modules => "modules",
        }
    }
}

/// A text that is no variant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadVariant {
    /// It has no `=`, or names what cannot be set.
    #[error("'{0}' is no setting: choose from {1}")]
    Unknown(String, String),
    /// What follows the `=` makes no sense there.
    #[error("{key}={value}: {expected} is expected")]
    Value {
        /// The setting.
        key: String,
        /// What it was to be.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// The same is set two times.
    #[error("{0} is set twice: leave one out")]
    Twice(String),
}

const CPUS: &str = "cpus";
const MEMORY: &str = "memory";
const PAGES: &str = "pages";
const PIN: &str = "pin";
const IDLE: &str = "idle";
const AGAIN: &str = "again";

impl Variant {
    /// The names of all settings, in the order in which a variant is written.
    pub fn keys() -> Vec<&'static str> {
        let machine = [CPUS, MEMORY, PAGES, PIN, IDLE];
        machine
            .into_iter()
            .chain(FileOverride::ALL.map(FileOverride::name))
            .collect()
    }

    /// Whether nothing differs from what is usual.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// Sets one thing, as people type it.
    ///
    /// # Errors
    /// There is no such setting, or it cannot be that, or it was set before.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), BadVariant> {
        let bad = |expected| BadVariant::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let was_set = match key {
            CPUS => put(&mut self.cpus, cpus::from_text(value))
                .ok_or_else(|| bad("a number from 1 to 8")),
            MEMORY => put(&mut self.memory_mib, mebibytes(value))
                .ok_or_else(|| bad("a size like 512M or 2G")),
            PAGES => put(&mut self.pages, MemoryPages::from_name(value))
                .ok_or_else(|| bad("file, 4k or 2m")),
            PIN => put(&mut self.pin, Pin::from_name(value))
                .ok_or_else(|| bad("free, exclusive or shared")),
            IDLE => {
                put(&mut self.idle, Halt::from_name(value)).ok_or_else(|| bad("exits or in-guest"))
            }
            _ if value.is_empty() => Err(bad("a file")),
            _ => Ok(self.give(key, value)?),
        };
        match was_set? {
            true => Err(BadVariant::Twice(key.to_owned())),
            false => Ok(()),
        }
    }

    /// Lets a file stand in for the usual one; whether another one did already.
    fn give(&mut self, key: &str, value: &str) -> Result<bool, BadVariant> {
        let known = FileOverride::ALL
            .into_iter()
            .find(|given| given.name() == key);
        let given = known.ok_or_else(|| unknown(key))?;
        Ok(self.given.insert(given, value.to_owned()).is_some())
    }

    /// Returns the first setting that an environment does not support.
    pub fn unsupported_reason(&self, environment: EnvironmentId) -> Option<UnsupportedSetting> {
        let unsupported = |setting: &str, supports: fn(EnvironmentId) -> bool| {
            (!supports(environment)).then(|| UnsupportedSetting {
                environment,
                setting: setting.to_owned(),
                supported_by: EnvironmentId::names_of(supports),
            })
        };
        let cpus = self.cpus.and_then(|_| {
            unsupported(CPUS, |id| {
                id.supports_several_cpus() && id != EnvironmentId::HOST
            })
        });
        let memory = self
            .memory_mib
            .and_then(|_| unsupported(MEMORY, EnvironmentId::has_configurable_memory));
        let pages = self
            .pages
            .and_then(|_| unsupported(PAGES, EnvironmentId::has_trapline_vmm));
        let pin = self
            .pin
            .and_then(|_| unsupported(PIN, |id| !id.clock().is_exact()));
        let idle = self
            .idle
            .and_then(|_| unsupported(IDLE, |id| Halt::InGuest.is_supported_by(id)));
        let mut given = self.given.keys().map(|given| match given {
            FileOverride::Image => unsupported("image", |id| !id.has_processes()),
            FileOverride::Agent => {
                unsupported("agent", |id| id.has_processes() || id.has_machine_linux())
            }
            FileOverride::Vmm => unsupported("vmm", |id| id.has_trapline_vmm() || id.is_custom()),
            FileOverride::Qemu => unsupported("qemu", EnvironmentId::has_qemu),
            FileOverride::Kernel => unsupported("kernel", EnvironmentId::has_machine_linux),
            FileOverride::Modules => unsupported("modules", EnvironmentId::has_machine_linux),
        });
        cpus.or(memory)
            .or(pages)
            .or(pin)
            .or(idle)
            .or_else(|| given.find_map(|unfit| unfit))
    }

    /// What of it means something to an environment: of a matrix of settings each
    /// environment has only its own.
    pub fn fitting(&self, environment: EnvironmentId) -> Self {
        let mut fitting = Self::default();
        for (key, value) in self.pairs() {
            let mut one = Self::default();
            let set = one.set(key, &value);
            debug_assert_eq!(set, Ok(()), "a variant is written as it is read");
            if one.unsupported_reason(environment).is_none() {
                let set = fitting.set(key, &value);
                debug_assert_eq!(set, Ok(()), "no setting is there twice");
            }
        }
        fitting.again = self.again;
        fitting
    }

    /// All that is set but the repetition, as names and values.
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        let mut pair = |key, value: Option<String>| pairs.extend(value.map(|value| (key, value)));
        pair(CPUS, self.cpus.map(|cpus| cpus.to_string()));
        pair(MEMORY, self.memory_mib.map(|mib| format!("{mib}M")));
        pair(PAGES, self.pages.map(|pages| pages.name().to_owned()));
        pair(PIN, self.pin.map(|pin| pin.name().to_owned()));
        pair(IDLE, self.idle.map(|halt| halt.name().to_owned()));
        for (given, value) in &self.given {
            pair(given.name(), Some(value.clone()));
        }
        pairs
    }
}

fn unknown(key: &str) -> BadVariant {
    BadVariant::Unknown(key.to_owned(), Variant::keys().join(", "))
}

/// Puts what there is into its place; whether something was there already.
fn put<T>(place: &mut Option<T>, value: Option<T>) -> Option<bool> {
    Some(place.replace(value?).is_some())
}

/// A whole number of MiB; without a unit it is one, too.
fn mebibytes(text: &str) -> Option<u32> {
    let (digits, factor) = match text.strip_suffix('G') {
        Some(digits) => (digits, 1024),
        None => (text.strip_suffix('M').unwrap_or(text), 1),
    };
    let number: u32 = digits.parse().ok()?;
    number.checked_mul(factor).filter(|mib| *mib > 0)
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.pairs().into_iter();
        let mut words: Vec<_> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
        if self.again {
            words.push(AGAIN.to_owned());
        }
        f.pad(&words.join(","))
    }
}

impl FromStr for Variant {
    type Err = BadVariant;

    fn from_str(text: &str) -> Result<Self, BadVariant> {
        let mut variant = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((key, value)) => variant.set(key, value)?,
                None if word == AGAIN => variant.again = true,
                None => return Err(unknown(word)),
            }
        }
        Ok(variant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_read_as_they_are_written() {
        for text in [
            "",
            "cpus=2",
            "cpus=8,memory=1024M,pages=2m,pin=shared,idle=in-guest,image=/a,vmm=b c,modules=d",
            "pin=free,again",
        ] {
            let variant: Variant = text.parse().unwrap();
            assert_eq!(variant.to_string(), text);
            assert_eq!(variant.is_usual(), text.is_empty());
        }
        let variant: Variant = "memory=2G".parse().unwrap();
        assert_eq!(variant.memory_mib, Some(2048));
    }

    #[test]
    fn what_is_no_variant_is_told_with_what_would_be() {
        let told = |text: &str| text.parse::<Variant>().unwrap_err().to_string();
        assert!(told("cpu=2").contains("'cpu' is no setting: choose from cpus, memory, pages"));
        assert!(told("fast").contains("'fast' is no setting"));
        assert_eq!(told("cpus=9"), "cpus=9: a number from 1 to 8 is expected");
        assert_eq!(
            told("memory=0"),
            "memory=0: a size like 512M or 2G is expected"
        );
        assert_eq!(
            told("memory=9999999G"),
            "memory=9999999G: a size like 512M or 2G is expected"
        );
        assert_eq!(told("image="), "image=: a file is expected");
        assert_eq!(told("pin=free,pin=free"), "pin is set twice: leave one out");
    }

    #[test]
    fn an_environment_has_only_what_means_something_to_it() {
        let variant: Variant = "cpus=2,memory=1G,pin=shared,kernel=/k".parse().unwrap();
        let fitting = |id| variant.fitting(id).to_string();
        assert_eq!(fitting(EnvironmentId::HOST), "pin=shared");
        assert_eq!(fitting(EnvironmentId::KVM), "memory=1024M,pin=shared");
        assert_eq!(
            fitting(EnvironmentId::KVM_LINUX),
            "cpus=2,memory=1024M,pin=shared"
        );
        assert_eq!(fitting(EnvironmentId::SIM), "");
        assert_eq!(fitting(EnvironmentId::SIM_KVM), "memory=1024M,kernel=/k");
        let told = variant
            .unsupported_reason(EnvironmentId::KVM)
            .unwrap()
            .to_string();
        assert!(
            told.starts_with("setting 'cpus' is not supported by kvm"),
            "{told}"
        );
    }
}
