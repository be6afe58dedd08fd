//! The profiles of many operations from one pair of machine runs.
//!
//! Operations are measured as `trapline run` measures them, while a plugin of QEMU or the debugger of
//! Bochs counts every instruction between the marks around each batch ([`crate::counters`]). The
//! batches that a guest reports and the windows that are counted are the same batches in the same
//! order ([`crate::windows`]). All batches of an operation have one profile, whose total is the
//! figure; both runs must give the same one. Starts have windows from stage to stage instead
//! ([`boot`]).

mod boot;

use crate::boots;
use crate::context::RunContext;
use crate::counters::Counters;
use crate::failure::{Failure, Status};
use crate::options::BootOptions;
use crate::run;
use crate::sink::ObservationSink;
use crate::source_lines;
use crate::symbols::{self, machine_of, Components, Executed};
use crate::timeout;
use crate::windows::{self, MarkedOperation, Windows};
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::{marker, Op, OpSet, Unit, Workload};
use trapline_environments::Limits;
use trapline_model::kernel_build::Column;
use trapline_model::{expand, names, Config, Observation, Request};
use trapline_profile::source;
use trapline_profile::{AddressLayout, Batch, Function, Profile, Symbols, Window};

/// Profiles by configuration and operation.
pub type Profiles = BTreeMap<(Config, Op), Profile>;

/// Returns whether an operation has a profile: there are marks around its batches or at its stages, and
/// its figure is a number of instructions.
pub fn has_profile(op: Op) -> bool {
    let is_counted = op.has_markers() || op.workload() == Workload::Boot;
    is_counted && op.unit() == Unit::Time
}

/// Observations made only for their profiles; they are not stored.
#[derive(Default)]
pub struct ProfiledRun {
    /// The boots.
    pub observations: Vec<Observation>,
    /// Profiles of all measured operations that have one.
    pub profiles: Profiles,
}

impl ObservationSink for ProfiledRun {
    fn observed(&mut self, observation: Observation) -> Result<(), Failure> {
        self.observations.push(observation);
        Ok(())
    }

    fn skipped(&mut self, config: &Config, reason: &str) -> Result<(), Failure> {
        Err(Failure::new(format!("{config}: {reason}")))
    }
}

/// Makes profiles.
pub struct Profiler<'a> {
    /// Environments, cancellation and progress.
    pub context: RunContext<'a>,
    /// Record call stacks, which takes a fifth more time.
    pub stacks: bool,
    /// Count executions by offset in a function, for source lines.
    pub lines: bool,
    /// Boots of each configuration, whose profiles must agree.
    pub boots: u32,
}

impl Profiler<'_> {
    /// Runs `configs` and returns the profiles of `operations`.
    ///
    /// # Errors
    /// QEMU cannot load the plugin, an environment cannot be run, the run is cancelled, or
    /// [`Self::profiles`] fails.
    pub fn profile(&self, configs: &[Config], operations: OpSet) -> Result<ProfiledRun, Failure> {
        let (inventory, interrupt) = (self.context.inventory, self.context.interrupt);
        for config in configs {
            if let Some(unavailable) = inventory.unavailable_config(config, &[]) {
                return Err(Failure::from(&unavailable).about(&config.to_string()));
            }
        }
        let counters = Counters::find(inventory, configs, self.stacks)?;
        let request = Request {
            exact_boots: self.boots,
            ..run::exact_request(configs, &operations.into(), inventory)
        };
        let plan = expand(&request);
        let options = BootOptions {
            counters: Some(&counters),
            ..BootOptions::default()
        };
        let mut counted = ProfiledRun::default();
        boots::execute(&plan, &self.context, &options, &mut counted)?;
        interrupt.check()?;
        counted.profiles = self.profiles(&counted.observations, &counters)?;
        Ok(counted)
    }

    /// Adds source lines to `profiles`: of the functions that `shown` returns, and of executed instructions.
    ///
    /// # Errors
    /// The files of an environment cannot be located.
    pub fn add_source_lines(
        &self,
        profiles: &mut Profiles,
        shown: impl Fn(&Profile) -> BTreeSet<Function>,
    ) -> Result<(), Failure> {
        source_lines::add(&self.context, profiles, &self.limits(), shown)
    }

    fn limits(&self) -> Limits {
        Limits {
            timeout: timeout::EXACT,
            stop: self.context.interrupt.flag(),
        }
    }

    /// Returns the profiles of all operations in `observations`.
    ///
    /// # Errors
    /// Reports and counts do not match, symbols are unavailable, or two runs disagree
    /// ([`Status::Undetermined`]).
    pub fn profiles(
        &self,
        observations: &[Observation],
        counters: &Counters,
    ) -> Result<Profiles, Failure> {
        let watch = self.limits();
        let mut profiles = Profiles::new();
        // Builds have none.
        let of_guests = observations
            .iter()
            .filter(|run| Column::of(&run.config).is_none());
        let configs: BTreeSet<_> = of_guests.map(|run| run.config.clone()).collect();
        for config in configs {
            let runs = observations.iter().filter(|run| run.config == config);
            let runs: Vec<_> = runs.collect();
            let windows =
                |run: &&Observation| counters.take(&config, run.replicate).map(windows::split);
            let windows = runs.iter().map(windows).collect::<Result<Vec<_>, _>>()?;
            let measured = runs.iter().flat_map(|run| &run.operations);
            let operations = measured.filter_map(|it| it.op.guest()).collect();
            let executed = executed(&config, &windows);
            let named = |fetched: &Components| {
                let context = &self.context;
                let symbols =
                    symbols::of(context, &config, &watch, fetched, operations, &executed)?;
                let of_runs = runs.iter().zip(&windows);
                let of_runs =
                    of_runs.map(|(run, windows)| of_run(run, windows, &symbols, self.lines));
                agreed(&config, of_runs.collect::<Result<_, _>>()?)
            };
            let mut agreed = named(&Components::new())?;
            if self.context.inventory.settings().debug.fetch {
                agreed = named(&nameless(&agreed))?;
            }
            let of_config = agreed.into_iter();
            profiles.extend(of_config.map(|(op, profile)| ((config.clone(), op), profile)));
        }
        Ok(profiles)
    }
}

/// Returns the profiles that all runs of a configuration agree on.
fn agreed(
    config: &Config,
    runs: Vec<BTreeMap<Op, Profile>>,
) -> Result<BTreeMap<Op, Profile>, Failure> {
    let mut runs = runs.into_iter();
    let first = runs.next().unwrap_or_default();
    let difference = runs.find_map(|other| {
        let mut operations = first.keys().chain(other.keys());
        let differing = operations.find(|op| first.get(op) != other.get(op));
        differing.copied()
    });
    match difference {
        None => Ok(first),
        Some(op) => Err(Failure::new(format!(
            "not deterministic: two runs of {} in {config} gave different profiles",
            names::path(op)
        ))
        .status(Status::Undetermined)),
    }
}

/// Returns the components in which functions without a name were executed.
fn nameless(profiles: &BTreeMap<Op, Profile>) -> Components {
    let items = profiles.values().flat_map(|profile| &profile.items);
    let functions = items.map(|item| &item.function);
    let nameless = functions.filter(|function| function.is_nameless());
    nameless
        .map(|function| function.component.clone())
        .collect()
}

/// Returns the address spaces of all instructions.
fn executed(config: &Config, runs: &[Windows]) -> Executed {
    let layout = machine_of(config.environment);
    let windows = runs
        .iter()
        .flat_map(|(batches, stages)| batches.iter().chain(stages));
    let insns = windows.flat_map(|window| &window.insns);
    insns
        .map(|insn| layout.space(insn.level, insn.address))
        .collect()
}

/// Returns the profiles of one run.
fn of_run(
    run: &Observation,
    (batches, stages): &Windows,
    symbols: &Symbols,
    lines: bool,
) -> Result<BTreeMap<Op, Profile>, Failure> {
    let machine = machine_of(run.config.environment);
    let assigned = windows::assign(run, batches)?;
    let with_profile = assigned.iter().filter(|marked| has_profile(marked.op));
    let profile = |marked| profile(marked, symbols, machine, lines);
    let profiles = with_profile.filter_map(|marked| Some((marked.op, profile(marked)?)));
    let mut profiles: BTreeMap<_, _> = profiles.collect();
    profiles.extend(boot::profiles(run, stages, (symbols, machine))?);
    Ok(profiles)
}

/// Returns the profile of all batches of an operation; `None` if there are none.
fn profile(
    marked: &MarkedOperation<'_>,
    symbols: &Symbols,
    machine: AddressLayout,
    lines: bool,
) -> Option<Profile> {
    let all = Batch::merge(&marked.batches)?;
    let window = Window::merge(marked.windows);
    let around = marked.batches.len() as u64 * marker::OVERHEAD;
    let mut profile = Profile::new(&all, &window, symbols, machine, around);
    if lines {
        profile.executed = source::executed(&window, symbols, machine);
    }
    Some(profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_model::EnvironmentId;

    fn profile(total: f64, residual: i64) -> Profile {
        Profile {
            total,
            residual,
            operations: 1,
            ..Profile::default()
        }
    }

    #[test]
    fn runs_with_different_profiles_are_not_deterministic() {
        let run = |residual| BTreeMap::from([(Op::PortOut, profile(5.0, residual))]);
        let id = &EnvironmentId::SIM_KVM.into();
        assert_eq!(agreed(id, vec![run(0), run(0)]), Ok(run(0)));
        let failures = [run(1), BTreeMap::new()].map(|other| {
            let failure = agreed(id, vec![run(0), other]).unwrap_err();
            assert!(failure.status == Status::Undetermined, "{failure}");
            failure.to_string()
        });
        expect![[r#"
            not deterministic: two runs of exits/port-out in sim/kvm gave different profiles
            not deterministic: two runs of exits/port-out in sim/kvm gave different profiles"#]]
        .assert_eq(&failures.join("\n"));
        assert_eq!(agreed(id, vec![run(0)]), Ok(run(0)));
        assert!(agreed(id, vec![run(0), run(0), run(1)]).is_err());
    }
}
