//! What sets one row of a study apart from others in the same environment: settings of its
//! machine, and files that stand in for the usual ones.
//!
//! A variant is written as people type it and as the store keeps it: `cpus=2,memory=1G`.
//! The usual one is the empty text.

use crate::contender::Unfit;
use crate::cpus;
use crate::identity::{EnvironmentId, MemoryPages};
use crate::placement::Pin;
use crate::sharing::{names_of, Halt};
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
    pub given: BTreeMap<Given, String>,
    /// The same as the usual one, a second time: what differs between the two is chance.
    pub again: bool,
}

/// What a variant may have of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Given {
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

impl Given {
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
            .chain(Given::ALL.map(Given::name))
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
        let known = Given::ALL.into_iter().find(|given| given.name() == key);
        let given = known.ok_or_else(|| unknown(key))?;
        Ok(self.given.insert(given, value.to_owned()).is_some())
    }

    /// Why an environment cannot have it, and what to do about that.
    pub fn misfit(&self, environment: EnvironmentId) -> Option<Unfit> {
        let unfit = |setting: &str, fits: fn(EnvironmentId) -> bool| {
            (!fits(environment)).then(|| Unfit {
                environment,
                setting: setting.to_owned(),
                fits: names_of(fits),
            })
        };
        let cpus = self.cpus.and_then(|_| {
            unfit(CPUS, |id| {
                cpus::misfit(id, 2).is_none() && id != EnvironmentId::Host
            })
        });
        let memory = self.memory_mib.and_then(|_| unfit(MEMORY, has_memory));
        let pages = self.pages.and_then(|_| unfit(PAGES, has_our_vmm));
        let pin = self
            .pin
            .and_then(|_| unfit(PIN, |id| !id.clock().is_exact()));
        let idle = self
            .idle
            .and_then(|_| unfit(IDLE, |id| Halt::InGuest.fits(id)));
        let mut given = self.given.keys().map(|given| match given {
            Given::Image => unfit("image", |id| !id.has_processes()),
            Given::Agent => unfit("agent", |id| id.has_processes() || is_stacked(id)),
            Given::Vmm => unfit("vmm", has_vmm),
            Given::Qemu => unfit("qemu", has_qemu),
            Given::Kernel => unfit("kernel", is_stacked),
            Given::Modules => unfit("modules", is_stacked),
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
            if one.misfit(environment).is_none() {
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

/// Whether somebody gives a guest its memory.
fn has_memory(environment: EnvironmentId) -> bool {
    let is_process = environment.has_processes() && !environment.is_linux_guest();
    !is_process && !environment.starts_with_machine()
}

/// Whether it is a stack on a simulated machine's Linux or Xen, or that Linux itself.
fn is_stacked(environment: EnvironmentId) -> bool {
    environment.clock().is_exact()
        && !matches!(environment, EnvironmentId::Sim | EnvironmentId::SimVmx)
}

fn has_vmm(environment: EnvironmentId) -> bool {
    has_our_vmm(environment) || environment.is_custom()
}

fn has_our_vmm(environment: EnvironmentId) -> bool {
    use EnvironmentId::{Kvm, KvmLinux, SimKvm, SimKvmLinux, SimVmxKvm};
    matches!(
        environment,
        Kvm | KvmLinux | SimKvm | SimKvmLinux | SimVmxKvm
    )
}

fn has_qemu(environment: EnvironmentId) -> bool {
    use EnvironmentId::{QemuKvm, QemuKvmLinux, QemuTcg, QemuTcgLinux};
    let here = matches!(environment, QemuKvm | QemuKvmLinux | QemuTcg | QemuTcgLinux);
    here || environment.clock() == crate::Clock::Insn
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
        use EnvironmentId::{Host, Kvm, KvmLinux, Sim, SimKvm};
        let variant: Variant = "cpus=2,memory=1G,pin=shared,kernel=/k".parse().unwrap();
        let fitting = |id| variant.fitting(id).to_string();
        assert_eq!(fitting(Host), "pin=shared");
        assert_eq!(fitting(Kvm), "memory=1024M,pin=shared");
        assert_eq!(fitting(KvmLinux), "cpus=2,memory=1024M,pin=shared");
        assert_eq!(fitting(Sim), "");
        assert_eq!(fitting(SimKvm), "memory=1024M,kernel=/k");
        let told = variant.misfit(Kvm).unwrap().to_string();
        assert!(told.starts_with("kvm has no setting 'cpus'"), "{told}");
    }
}
