//! Workload `kernel-build`: kernels of several sizes, built on several numbers of CPUs and with several
//! affinities.
//!
//! A build is one long run and not an operation that a guest repeats, so it has no number on the wire. The number of its
//! CPUs and their places are settings of its environment.

pub use crate::cpus::Place;

use crate::config::Config;
use crate::environment::EnvironmentId;
use crate::features::Feature;
use crate::named::named;
use std::fmt;

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

/// Default number of builds in a configuration on the wall clock: the smallest whose percentages have an interval of 75%.
pub const BUILDS: u32 = 3;

/// Facts about a build: number of object files, and the hash of their symbols.
pub const PROOF_FACTS: [&str; 2] = ["build-objects", "build-symbols"];

/// Size of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Size {
    /// 30 files of the kernel's library.
    Mini,
    /// `tinyconfig`.
    Tiny,
    /// `defconfig`.
    Def,
}

named!(Size { Mini "mini", Tiny "tiny", Def "def" });

impl Size {
    /// Returns a description.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Mini => "30 files of the kernel's library, from a prepared source",
            Self::Tiny => "bzImage of tinyconfig, from a configured source",
            Self::Def => "bzImage of defconfig, from a configured source",
        }
    }

    /// Returns the memory of a guest that builds it, in MiB.
    pub const fn memory_mib(self) -> u32 {
        match self {
            Self::Mini => 512,
            Self::Tiny => 1024,
            Self::Def => 4096,
        }
    }
}

/// A column of the table: a number of virtual CPUs, and their CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Column {
    /// Number of virtual CPUs, and of jobs of `make`.
    pub cpus: u32,
    /// CPUs of the virtual CPUs.
    pub place: Place,
}

impl Column {
    /// Baseline of the other columns of an environment.
    pub const BASE: Self = Self {
        cpus: 1,
        place: Place::Disjoint,
    };

    /// Returns all combinations, in the order of tables.
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

    /// Returns the column of a configuration in which kernels are built; `None` of another one.
    pub fn of(config: &Config) -> Option<Self> {
        let overrides = &config.overrides;
        Some(Self {
            cpus: overrides.value(JOBS)?.number(),
            place: Place::from_name(&overrides.text(PLACE)?)?,
        })
    }

    /// Returns the configuration of an environment with this column.
    pub fn config(self, environment: EnvironmentId) -> Config {
        let mut config = Config::new(environment);
        config.overrides.replace_text(JOBS, &self.cpus.to_string());
        config.overrides.replace_text(PLACE, self.place.name());
        config
    }

    /// Returns the CPU of a virtual CPU.
    pub const fn cpu_of(self, virtual_cpu: u32) -> u32 {
        match self.place {
            Place::Same => virtual_cpu,
            Place::Disjoint => virtual_cpu + 1,
        }
    }

    /// Returns the number of CPUs that a host needs.
    pub const fn host_cpus(self) -> u32 {
        self.cpu_of(self.cpus)
    }

    /// Returns why an environment does not support this column, with the remedy.
    pub fn unsupported_reason(self, environment: EnvironmentId) -> Option<String> {
        let cpus = format!("--cpus {}", self.cpus);
        let needed = [
            (Feature::KernelBuild, "a kernel build", true),
            (Feature::BuildJobs, &cpus, self.cpus > 1),
            (
                Feature::BuildPlace,
                "--place disjoint",
                self.place != Place::Same,
            ),
        ];
        let mut needed = needed.into_iter().filter(|(.., is_needed)| *is_needed);
        needed.find_map(|(feature, what, _)| feature.unsupported_reason(what, environment))
    }
}

/// Settings of a configuration in which kernels are built.
const JOBS: &str = "jobs";
const PLACE: &str = "place";

/// Returns the configurations of some environments with all combinations of columns. On simulated machines, which have one
/// CPU, unsupported columns are left out if any other is left.
pub fn configs(environments: &[EnvironmentId], cpus: &[u32], places: &[Place]) -> Vec<Config> {
    let columns = Column::all(cpus, places);
    let of = |id: &EnvironmentId| {
        let is_supported = |column: &Column| column.unsupported_reason(*id).is_none();
        let supported: Vec<Column> = columns.iter().copied().filter(is_supported).collect();
        let chosen = match id.clock() {
            clock if clock.is_exact() && !supported.is_empty() => supported,
            _ => columns.clone(),
        };
        chosen
            .into_iter()
            .map(|column| column.config(*id))
            .collect::<Vec<_>>()
    };
    environments.iter().flat_map(of).collect()
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
    use expect_test::expect;

    #[test]
    fn columns_are_ordered_by_cpus_and_place() {
        let all = Column::all(&[2, 1, 2], &[Place::Disjoint, Place::Same]);
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["1(s)", "1(d)", "2(s)", "2(d)"]);
        let needed: Vec<_> = all.iter().map(|column| column.host_cpus()).collect();
        assert_eq!(needed, [1, 2, 2, 3]);
        assert_eq!(all[1], Column::BASE);
    }

    #[test]
    fn unsupported_columns_have_a_reason() {
        let two = Column::all(&[2], &[Place::Same])[0];
        assert_eq!(two.unsupported_reason(EnvironmentId::HOST), None);
        let image = two.unsupported_reason(EnvironmentId::QEMU_TCG).unwrap();
        let counted = two.unsupported_reason(EnvironmentId::SIM_LINUX).unwrap();
        expect![[r#"
            a kernel build is not supported by qemu-tcg, as it runs the image, which is not Linux: leave it out, or choose from host, kvm/linux, qemu-kvm/linux, qemu-tcg/linux, uml, sim/linux, sim/kvm/linux, sim/qemu-kvm/linux, sim/nova/linux with --env
            --cpus 2 is not supported by sim/linux, as its machine has one CPU: leave it out, or choose from host, kvm/linux, qemu-kvm/linux, qemu-tcg/linux with --env"#]].assert_eq(&format!("{image}\n{counted}"));
        let one = Column::all(&[1], &[Place::Same])[0];
        assert_eq!(one.unsupported_reason(EnvironmentId::SIM_KVM_LINUX), None);
    }

    #[test]
    fn several_jobs_are_for_the_host_and_for_linux_guests() {
        let [one, two] = [1, 2].map(|cpus| Column {
            cpus,
            place: Place::Same,
        });
        let reason = |column: Column, id| column.unsupported_reason(id);
        let several = EnvironmentId::BUILT_IN.into_iter();
        let several = several.filter(|id| reason(two, *id).is_none());
        let several: Vec<_> = several.map(EnvironmentId::name).collect();
        let expected = ["host", "kvm/linux", "qemu-kvm/linux", "qemu-tcg/linux"];
        assert_eq!(several, expected);
        let mut builders = EnvironmentId::all().filter(|id| id.has(Feature::KernelBuild));
        assert!(builders.all(|id| reason(one, id).is_none()));
        let uml = reason(two, EnvironmentId::UML).unwrap();
        expect!["--cpus 2 is not supported by uml, as user-mode Linux has one CPU: leave it out, or choose from host, kvm/linux, qemu-kvm/linux, qemu-tcg/linux with --env"].assert_eq(&uml);
    }

    #[test]
    fn configurations_have_supported_columns() {
        let environments = [EnvironmentId::HOST, EnvironmentId::SIM_LINUX];
        let all = configs(&environments, &[1, 2], &Place::ALL);
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        let expected = [
            "host:jobs=1,place=same",
            "host:jobs=1,place=disjoint",
            "host:jobs=2,place=same",
            "host:jobs=2,place=disjoint",
            "sim/linux:jobs=1,place=same",
        ];
        assert_eq!(names, expected);
        let columns: Vec<_> = all.iter().filter_map(Column::of).collect();
        assert_eq!(columns[..4], Column::all(&[1, 2], &Place::ALL));
        assert_eq!(Column::of(&EnvironmentId::HOST.into()), None);
        // Why none is possible is said of each.
        assert_eq!(
            configs(&[EnvironmentId::SIM_LINUX], &[2], &Place::ALL).len(),
            2
        );
    }
}
