//! Sets of operations that exact figures are of: those of guests, and builds of kernels.

use crate::config::Config;
use crate::environment::EnvironmentId;
use crate::kernel_build::{self, Column, Place, Size};
use crate::names::{self, UnknownName};
use crate::operation::Operation;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use trapline_abi::OpSet;

/// A set of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Operations that guests measure.
    pub guest: OpSet,
    /// Builds of kernels.
    pub builds: BTreeSet<Size>,
}

impl Operations {
    /// Returns whether an operation is a member.
    pub fn contains(&self, operation: Operation) -> bool {
        match operation {
            Operation::Guest(op) => self.guest.contains(op),
            Operation::Build(size) => self.builds.contains(&size),
            Operation::Packets(_) => false,
        }
    }

    /// Returns those that no guest repeats.
    pub fn long(&self) -> Vec<Operation> {
        self.builds.iter().copied().map(Operation::Build).collect()
    }

    /// Returns the configurations of environments that measure them: the default ones, and those with one job for builds.
    pub fn configs(&self, environments: &[EnvironmentId]) -> Vec<Config> {
        let guests = environments.iter().filter(|_| !self.guest.is_empty());
        let builds = kernel_build::configs(environments, &[1], &[Place::Same]);
        let builds = builds.into_iter().filter(|_| !self.builds.is_empty());
        guests.map(|id| (*id).into()).chain(builds).collect()
    }

    /// Returns those that a configuration measures: builds, or operations of guests.
    pub fn of(&self, config: &Config) -> Vec<Operation> {
        if Column::of(config).is_some() {
            self.long()
        } else {
            self.guest.iter().map(Operation::Guest).collect()
        }
    }
}

impl From<OpSet> for Operations {
    fn from(guest: OpSet) -> Self {
        Self {
            guest,
            builds: BTreeSet::new(),
        }
    }
}

/// Parses a list like `basic,exits/port-out,kernel-build/mini`.
impl FromStr for Operations {
    type Err = UnknownName;

    fn from_str(list: &str) -> Result<Self, UnknownName> {
        names::split(list).map(named).collect()
    }
}

/// Returns the builds or operations of guests with a name.
fn named(name: &str) -> Result<Operations, UnknownName> {
    let is_named = |size: &Size| Operation::Build(*size).is_named(name);
    let builds: BTreeSet<_> = Size::ALL.into_iter().filter(is_named).collect();
    let guest = if builds.is_empty() {
        names::operations(name)?
    } else {
        OpSet::EMPTY
    };
    Ok(Operations { guest, builds })
}

/// Returns the union.
impl FromIterator<Operations> for Operations {
    fn from_iter<I: IntoIterator<Item = Self>>(sets: I) -> Self {
        sets.into_iter().fold(Self::default(), |mut all, set| {
            all.guest |= set.guest;
            all.builds.extend(set.builds);
            all
        })
    }
}

/// Formats the list that is parsed.
impl fmt::Display for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guest = Some(names::describe(self.guest)).filter(|list| !list.is_empty());
        let builds = self.long().into_iter().map(Operation::path);
        let all: Vec<_> = guest.into_iter().chain(builds).collect();
        f.write_str(&all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;

    #[test]
    fn text_is_parsed_as_it_is_formatted() {
        for text in [
            "exits/port-out",
            "kernel-build/mini",
            "basic,exits/port-out,kernel-build/mini,kernel-build/def",
        ] {
            let parsed: Operations = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
        }
        let all: Operations = "kernel-build".parse().unwrap();
        assert_eq!(all.builds, BTreeSet::from(Size::ALL));
        for unknown in ["", "kernel-build/huge", "packets/rate", "exit"] {
            assert!(unknown.parse::<Operations>().is_err(), "{unknown}");
        }
    }

    #[test]
    fn configurations_of_builds_measure_builds_only() {
        let all: Operations = "exits/port-out,kernel-build/mini".parse().unwrap();
        let (port_out, mini) = (Operation::Guest(Op::PortOut), Operation::Build(Size::Mini));
        let configs = all.configs(&[EnvironmentId::SIM_LINUX]);
        let names: Vec<_> = configs.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["sim/linux", "sim/linux:jobs=1,place=same"]);
        assert_eq!(all.of(&configs[0]), [port_out]);
        assert_eq!(all.of(&configs[1]), [mini]);
        assert!(all.contains(mini) && all.contains(port_out));
        assert!(!all.contains(Operation::Build(Size::Tiny)));
    }
}
