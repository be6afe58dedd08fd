//! The workload `kernel-build`: how much is built, on how many CPUs, and which they are.
//!
//! Its figures are seconds of one long run, whose conditions are a matrix of their own; so
//! it is not among the operations that a guest repeats, and has no number on the wire.
//! A [`Request`] is expanded into [`PlannedBuild`]s, and each yields a [`Build`].

mod observed;
mod request;

pub use observed::{Build, Done, Outcome, OF_ALL};
pub use request::{BadRequest, PlannedBuild, Request};

use crate::clock::Clock;
use crate::environment::EnvironmentId;
use std::fmt;

/// How much is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Size {
    /// A few dozen files.
    Mini,
    /// The smallest kernel.
    Tiny,
    /// One for common machines.
    Def,
}

impl Size {
    /// Every size, the smallest first.
    pub const ALL: [Self; 3] = [Self::Mini, Self::Tiny, Self::Def];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mini => "mini",
            Self::Tiny => "tiny",
            Self::Def => "def",
        }
    }

    /// The size that is called so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.name() == name)
    }

    /// What is built.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Mini => "30 files of the kernel's library, from a prepared source",
            Self::Tiny => "bzImage of tinyconfig, from a configured source",
            Self::Def => "bzImage of defconfig, from a configured source",
        }
    }

    /// Memory of a guest that builds it, in MiB.
    pub const fn memory_mib(self) -> u32 {
        match self {
            Self::Mini => 512,
            Self::Tiny => 1024,
            Self::Def => 4096,
        }
    }
}

/// On which CPUs virtual CPUs run. Everything else of a VMM runs on CPU 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Virtual CPU i on CPU i: the first shares its CPU with the VMM.
    Same,
    /// Virtual CPU i on CPU i + 1.
    Disjoint,
}

impl Place {
    /// Both, in the order in which tables show them.
    pub const ALL: [Self; 2] = [Self::Same, Self::Disjoint];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Disjoint => "disjoint",
        }
    }

    /// The place that is called so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|place| place.name() == name)
    }

    const fn letter(self) -> char {
        match self {
            Self::Same => 's',
            Self::Disjoint => 'd',
        }
    }
}

/// A column of the table: so many CPUs, in these places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Column {
    /// Virtual CPUs, and jobs that `make` gets.
    pub cpus: u32,
    /// Where they are.
    pub place: Place,
}

impl Column {
    /// What others in an environment are compared with.
    pub const BASE: Self = Self {
        cpus: 1,
        place: Place::Disjoint,
    };

    /// All that these numbers and places make, in the order in which tables show them.
    pub fn all(cpus: &[u32], places: &[Place]) -> Vec<Self> {
        let of = |cpus| {
            places.iter().map(move |place| Self {
                cpus,
                place: *place,
            })
        };
        let mut all: Vec<_> = cpus.iter().copied().flat_map(of).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The CPU of a virtual one.
    pub const fn cpu_of(self, virtual_cpu: u32) -> u32 {
        match self.place {
            Place::Same => virtual_cpu,
            Place::Disjoint => virtual_cpu + 1,
        }
    }

    /// How many CPUs a host must have for it.
    pub const fn host_cpus(self) -> u32 {
        self.cpu_of(self.cpus)
    }

    /// Returns why an environment does not support this column, with the remedy.
    pub fn unsupported_reason(self, environment: EnvironmentId) -> Option<String> {
        let one = Self {
            cpus: 1,
            place: Place::Same,
        };
        match (environment, environment.clock()) {
            (id, _) if !id.builds_kernels() => Some(format!(
                "{id} runs the image, which has no processes to build anything with: choose \
                 from {} with --env",
                EnvironmentId::names_of(EnvironmentId::builds_kernels)
            )),
            (_, Clock::Insn) if self != one => {
                Some("the machine that counts instructions has one CPU: only 1(s) is there".into())
            }
            _ => None,
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}({})", self.cpus, self.place.letter()))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_as_in_the_source_document() {
        let all = Column::all(&[2, 1, 2], &[Place::Disjoint, Place::Same]);
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["1(s)", "1(d)", "2(s)", "2(d)"]);
        let needed: Vec<_> = all.iter().map(|column| column.host_cpus()).collect();
        assert_eq!(needed, [1, 2, 2, 3]);
        assert_eq!(all[1], Column::BASE);
    }

    #[test]
    fn where_nothing_can_be_built_the_reason_is_told() {
        let two = Column::all(&[2], &[Place::Same])[0];
        assert_eq!(two.unsupported_reason(EnvironmentId::HOST), None);
        let image = two.unsupported_reason(EnvironmentId::QEMU_TCG).unwrap();
        assert!(image.contains("choose from host, "), "{image}");
        let counted = two.unsupported_reason(EnvironmentId::SIM_LINUX).unwrap();
        assert!(counted.contains("has one CPU"), "{counted}");
        let one = Column::all(&[1], &[Place::Same])[0];
        assert_eq!(one.unsupported_reason(EnvironmentId::SIM_KVM_LINUX), None);
    }
}
