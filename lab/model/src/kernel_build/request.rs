//! Expansion of a request to builds.
//!
//! Builds come in rounds. A round holds every cell of the table once, in a balanced order ([`Order`]) that the
//! seed decides.

use super::{Column, Place, Size};
use crate::clock::Clock;
use crate::cpus;
use crate::environment::EnvironmentId;
use crate::expand::Order;
use crate::named::each;
use std::fmt;
use std::str::FromStr;

/// A request for kernel builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildRequest {
    /// Environments. Order and repetition have no effect.
    pub environments: Vec<EnvironmentId>,
    /// Size of the kernel.
    pub size: Size,
    /// Numbers of virtual CPUs, and of jobs for make.
    pub cpus: Vec<u32>,
    /// CPUs of the virtual CPUs.
    pub places: Vec<Place>,
    /// Builds of each cell, if not the default.
    pub boots: Option<u32>,
    /// Seed of the order.
    pub seed: u64,
}

/// A planned build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlannedBuild {
    /// Index among the builds of its cell, from 0.
    pub round: u32,
    /// Environment.
    pub environment: EnvironmentId,
    /// CPUs.
    pub column: Column,
}

/// Invalid text of a [`BuildRequest`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid request of kernel builds: {0}")]
pub struct InvalidRequest(pub String);

/// First word of a request.
const COMMAND: &str = "kernel-build";

impl BuildRequest {
    /// Default environments: those of this host.
    pub const ENVIRONMENTS: [EnvironmentId; 5] = [
        EnvironmentId::HOST,
        EnvironmentId::KVM_LINUX,
        EnvironmentId::QEMU_KVM_LINUX,
        EnvironmentId::QEMU_TCG_LINUX,
        EnvironmentId::UML,
    ];

    /// Default numbers of CPUs.
    pub const CPUS: [u32; 2] = [1, 2];

    /// Default number of builds of a cell on the wall clock: the smallest whose percentages have an interval of 75%.
    pub const BUILDS: u32 = 3;

    /// Default number of builds of a cell on an exact clock: one for the figure, one for its proof.
    pub const BUILDS_EXACT: u32 = 2;

    /// Returns the builds in the order of their execution.
    pub fn expand(&self) -> Vec<PlannedBuild> {
        let environments = self.environments();
        let cells = environments.iter().flat_map(|id| {
            let columns = self.columns(*id).into_iter();
            columns.map(move |column| (*id, column))
        });
        let cells: Vec<_> = cells.collect();
        let rounds = environments.iter().map(|id| self.boots_of(*id)).max();
        let orders = Order::new(cells.len(), self.seed);
        let in_order = (0..rounds.unwrap_or(0)).zip(orders);
        let all = in_order.flat_map(|(round, order)| {
            let cells = order.into_iter().map(|place| cells[place]);
            cells.map(move |(environment, column)| PlannedBuild {
                round,
                environment,
                column,
            })
        });
        all.filter(|build| build.round < self.boots_of(build.environment))
            .collect()
    }

    /// Returns the environments in table order, without duplicates.
    pub fn environments(&self) -> Vec<EnvironmentId> {
        let mut all = self.environments.clone();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the columns of an environment. On simulated machines, which have one CPU, unsupported columns are
    /// dropped if any other is left.
    pub fn columns(&self, environment: EnvironmentId) -> Vec<Column> {
        let all = Column::all(&self.cpus, &self.places);
        let possible = |column: &Column| column.unsupported_reason(environment).is_none();
        let supported: Vec<_> = all.iter().copied().filter(possible).collect();
        match environment.clock() {
            Clock::Insn | Clock::InsnVmx if !supported.is_empty() => supported,
            _ => all,
        }
    }

    /// Returns whether the order of builds matters: it does on the wall clock.
    pub fn uses_seed(&self) -> bool {
        let mut environments = self.environments.iter();
        environments.any(|id| !id.clock().is_exact())
    }

    /// Returns the number of builds of each cell of an environment.
    pub fn boots_of(&self, environment: EnvironmentId) -> u32 {
        let usual = if environment.clock().is_exact() {
            Self::BUILDS_EXACT
        } else {
            Self::BUILDS
        };
        self.boots.unwrap_or(usual)
    }
}

/// Formats the words of a command line.
impl fmt::Display for BuildRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |words: Vec<String>| words.join(",");
        let environments = self.environments();
        let environments = environments.iter().map(|id| id.name().to_owned());
        write!(
            f,
            "{COMMAND} --env {} --size {} --cpus {} --place {}",
            list(environments.collect()),
            self.size,
            list(self.cpus.iter().map(u32::to_string).collect()),
            list(self.places.iter().map(|it| it.name().to_owned()).collect()),
        )?;
        if self.uses_seed() {
            write!(f, " --seed {}", self.seed)?;
        }
        self.boots
            .map_or(Ok(()), |boots| write!(f, " --boots {boots}"))
    }
}

/// Parses the words of a command line.
impl FromStr for BuildRequest {
    type Err = InvalidRequest;

    fn from_str(text: &str) -> Result<Self, InvalidRequest> {
        parse(text).ok_or_else(|| InvalidRequest(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<BuildRequest> {
    let mut words = text.split(' ');
    if words.next() != Some(COMMAND) {
        return None;
    }
    let words: Vec<_> = words.collect();
    let mut request = BuildRequest {
        environments: Vec::new(),
        size: Size::Mini,
        cpus: Vec::new(),
        places: Vec::new(),
        boots: None,
        seed: 0,
    };
    for pair in words.chunks(2) {
        let [name, value] = pair else {
            return None;
        };
        match *name {
            "--env" => request.environments = each(value, EnvironmentId::from_name)?,
            "--size" => request.size = Size::from_name(value)?,
            "--cpus" => request.cpus = each(value, cpus::from_text)?,
            "--place" => request.places = each(value, Place::from_name)?,
            "--seed" => request.seed = value.parse().ok()?,
            "--boots" => request.boots = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn request() -> BuildRequest {
        BuildRequest {
            environments: vec![
                EnvironmentId::UML,
                EnvironmentId::SIM_LINUX,
                EnvironmentId::HOST,
                EnvironmentId::HOST,
                EnvironmentId::QEMU_TCG_LINUX,
            ],
            size: Size::Tiny,
            cpus: vec![1, 2],
            places: Place::ALL.to_vec(),
            boots: None,
            seed: 3,
        }
    }

    #[test]
    fn every_cell_is_built_in_every_round_and_once() {
        let three = BuildRequest {
            boots: Some(3),
            ..request()
        };
        let all = three.expand();
        let rounds: Vec<_> = all.iter().map(|build| build.round).collect();
        assert!(rounds.is_sorted());
        let cells: BTreeSet<_> = all.iter().collect();
        assert_eq!(cells.len(), all.len());
        // Four columns on the wall clock, one on the instruction clock.
        assert_eq!(all.len(), 3 * (3 * 4 + 1));
        assert_eq!(all, three.expand());
        let other = BuildRequest { seed: 4, ..three };
        assert_ne!(all, other.expand());
        let usual = request().expand();
        let counted = usual
            .iter()
            .filter(|build| build.environment == EnvironmentId::SIM_LINUX);
        assert_eq!(counted.count(), 2);
    }

    #[test]
    fn cells_of_the_wall_clock_are_built_three_times_by_default() {
        let usual = request();
        assert_eq!(
            (
                usual.boots_of(EnvironmentId::HOST),
                usual.boots_of(EnvironmentId::SIM_LINUX)
            ),
            (3, 2)
        );
        let once = BuildRequest {
            boots: Some(1),
            ..usual
        };
        assert_eq!(
            (
                once.boots_of(EnvironmentId::HOST),
                once.boots_of(EnvironmentId::SIM_LINUX)
            ),
            (1, 1)
        );
    }

    #[test]
    fn text_is_parsed_as_it_is_formatted() {
        let words = "kernel-build --env host,qemu-tcg/linux,uml,sim/linux --size tiny --cpus 1,2 \
                     --place same,disjoint --seed 3";
        assert_eq!(request().to_string(), words);
        let read: BuildRequest = format!("{words} --boots 2").parse().unwrap();
        assert_eq!(read.boots, Some(2));
        assert_eq!(read.environments, request().environments());
        for text in [
            "",
            "--env host",
            "kernel-build --env",
            "kernel-build --env no",
            "kernel-build --size x",
        ] {
            assert!(text.parse::<BuildRequest>().is_err(), "{text}");
        }
    }
}
