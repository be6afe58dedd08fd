//! Boots with operations that no guest repeats: builds of a kernel, and trials of packets.

use std::collections::btree_map::Entry;
use std::collections::BTreeMap;
use std::time::Duration;
use trapline_environments::kernel_build::{self, Built, Roots};
use trapline_environments::packets::{check, Forwarder, PacketPath};
use trapline_environments::{Booted, EnvError, Facts, Limits, NoiseSampler, Progress, Settings};
use trapline_model::kernel_build::{Column, Size, PROOF_FACTS};
use trapline_model::packets::{Direction, PacketOperation, Purpose, Queues, Trial};
use trapline_model::{
    Clock, Config, Observation, Operation, OperationResult, Outcome, PlannedBoot, Unavailable,
};
use trapline_stats::packets::{bounds, next, LoadTrial, Step, GOALS};

/// Returns why a configuration has none of some operations that no guest repeats, as far as that is known before a boot.
pub fn unavailable(
    settings: &Settings,
    config: &Config,
    long: &[Operation],
) -> Option<Unavailable> {
    if config.environment.forwarder().is_some() {
        let path = PacketPath::of(config.environment).map_err(EnvError::unavailable);
        let queues = Queues::of(config);
        let checked = path.and_then(|path| check(&path, &settings.parts, queues));
        return checked.err().map(Unavailable::from);
    }
    let column = Column::of(config)?;
    if let Some(reason) = kernel_build::unsupported_reason(config.environment, column) {
        return Some(Unavailable::new(reason));
    }
    long.iter().find_map(|operation| match operation {
        Operation::Build(size) => {
            let checked = kernel_build::check(&settings.cache, *size);
            checked.err().map(Unavailable::from)
        }
        Operation::Guest(_) | Operation::Packets(_) => None,
    })
}

/// Executes a boot whose operations no guest repeats.
///
/// # Errors
/// A requirement is missing, or the boot was stopped. What fails is an outcome.
pub fn boot(
    settings: &Settings,
    roots: &Roots,
    planned: &PlannedBoot,
    limits: &Limits,
    progress: &mut dyn FnMut(Progress),
) -> Result<Booted, EnvError> {
    // The ports of packets are load that is not of the measured process.
    let is_build = planned.config.environment.forwarder().is_none();
    let samples_noise = is_build && planned.config.clock() == Clock::Wall;
    let noise = samples_noise.then(NoiseSampler::begin);
    let mut observation = Observation {
        config: planned.config.clone(),
        clock: planned.config.clock(),
        replicate: planned.replicate,
        unit_per_tick: 1.0,
        operations: Vec::new(),
        launches: Vec::new(),
        facts: Facts::new(),
        log: String::new(),
        problems: Vec::new(),
        host: String::new(),
    };
    for operation in &planned.long {
        if let Operation::Build(size) = operation {
            progress(Progress::Operation(*operation));
            let (outcome, facts) = build(settings, roots, planned, *size, limits)?;
            let result = OperationResult::new(*operation, outcome);
            observation.operations.push(result);
            observation.facts.extend(facts);
        }
    }
    if planned.config.environment.forwarder().is_some() {
        let mut tester = Tester::start(settings, planned, limits, progress)?;
        observation.operations.extend(tester.all()?);
        if tester.incomparable > 0 {
            observation.problems.push(format!(
                "{} trials of a search with CPUs at another distance do not count",
                tester.incomparable
            ));
        }
    }
    let noise = noise.map(NoiseSampler::end);
    observation.facts.extend(noise.into_iter().flatten());
    Ok(Booted {
        observation,
        error: None,
    })
}

/// Builds a kernel. Returns the outcome and its facts.
fn build(
    settings: &Settings,
    roots: &Roots,
    planned: &PlannedBoot,
    size: Size,
    limits: &Limits,
) -> Result<(Outcome, Facts), EnvError> {
    let column = Column::of(&planned.config).unwrap_or(Column::BASE);
    let environment = planned.config.environment;
    if let Some(reason) = kernel_build::unsupported_reason(environment, column) {
        return Err(EnvError::unavailable(reason));
    }
    let root = roots.prepared(settings, size, limits)?;
    match kernel_build::build(settings, environment, &root, column, limits) {
        Ok(built) => Ok((outcome(&built), facts(&built))),
        Err(error @ (EnvError::Stopped | EnvError::Unavailable(_))) => Err(error),
        Err(error) => Ok((Outcome::Failed(error.with_remedy()), Facts::new())),
    }
}

fn outcome(built: &Built) -> Outcome {
    Outcome::of_build(built.own_ns, built.took, &built.proof.hash)
}

fn facts(built: &Built) -> Facts {
    let proof = [built.proof.objects.to_string(), built.proof.hash.clone()];
    let mut facts = built.facts.clone();
    facts.extend(PROOF_FACTS.map(str::to_owned).into_iter().zip(proof));
    facts
}

/// A search begins with this share of the largest rate that was seen.
const FIRST: f64 = 0.9;
/// And offers at most so many times that rate.
const MOST: f64 = 2.0;
/// Trials of a search, at most, with those that do not count.
const MOST_TRIALS: usize = 150;
/// Further trials with each load that a search found: 60 in five rounds, of which none loses a frame with a probability of
/// 5% if one in 20 does.
const CONFIRMATIONS: usize = 12;
/// Trials with such a load, at most, with those that do not count.
const MOST_CONFIRMATIONS: usize = 4 * CONFIRMATIONS;

/// Sends frames through a forwarder.
struct Tester<'a> {
    planned: &'a PlannedBoot,
    forwarder: Forwarder,
    limits: &'a Limits,
    progress: &'a mut dyn FnMut(Progress),
    /// Trials of searches with CPUs at another distance than the largest rate's, which do not count.
    incomparable: usize,
}

impl<'a> Tester<'a> {
    /// Starts the forwarder.
    fn start(
        settings: &Settings,
        planned: &'a PlannedBoot,
        limits: &'a Limits,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Self, EnvError> {
        let path = PacketPath::of(planned.config.environment).map_err(EnvError::unavailable)?;
        let queues = Queues::of(&planned.config);
        let forwarder = Forwarder::start(&path, &settings.parts, planned.packets.cpus, queues)?;
        Ok(Self {
            planned,
            forwarder,
            limits,
            progress,
            incomparable: 0,
        })
    }

    /// Executes the trials of all operations. What fails is a result, beside those of the trials before it.
    ///
    /// # Errors
    /// The boot was stopped.
    fn all(&mut self) -> Result<Vec<OperationResult>, EnvError> {
        let mut results = Vec::new();
        let mut known = Known::default();
        for operation in &self.planned.long {
            let Operation::Packets(of) = *operation else {
                continue;
            };
            (self.progress)(Progress::Operation(*operation));
            let mut trials = Vec::new();
            let ended = self.trials(of, &mut known, &mut trials);
            if let Some(first) = trials.first() {
                let of = of.at(first.distance());
                let outcome = Outcome::of_trials(of, trials);
                results.push(OperationResult::new(Operation::Packets(of), outcome));
            }
            match ended {
                Ok(()) => {}
                Err(error @ EnvError::Stopped) => return Err(error),
                Err(error) => {
                    let outcome = Outcome::Failed(error.with_remedy());
                    results.push(OperationResult::new(*operation, outcome));
                }
            }
        }
        Ok(results)
    }

    /// Appends the trials of an operation. Those with a part of the largest rate are behind it, and those that confirm a
    /// search behind that.
    fn trials(
        &mut self,
        of: PacketOperation,
        known: &mut Known,
        trials: &mut Vec<Trial>,
    ) -> Result<(), EnvError> {
        let for_purpose = |purpose| PacketOperation { purpose, ..of };
        let maximum = for_purpose(Purpose::Maximum);
        let mut largest = || match known.largest.entry(maximum) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(unknown) => self.trial(maximum, None).map(|it| *unknown.insert(it)),
        };
        match of.purpose {
            Purpose::Maximum => trials.push(largest()?),
            Purpose::Given(load) => trials.push(self.trial(of, Some(load.into()))?),
            Purpose::HalfLoad => {
                let rate = (rate_of_sender(of, &largest()?) / 2.0).max(1.0);
                trials.push(self.trial(of, Some(rate))?);
            }
            Purpose::Search => {
                let largest = largest()?;
                let searched = known.searched.entry(of).or_default();
                self.search(of, &largest, searched, trials)?;
            }
            Purpose::Confirm => {
                let largest = largest()?;
                let searched = known.searched.get(&for_purpose(Purpose::Search));
                let searched = searched.map_or(&[][..], Vec::as_slice);
                self.confirm(of, &largest, searched, trials)?;
            }
        }
        Ok(())
    }

    /// Searches the rates of all goals.
    fn search(
        &mut self,
        of: PacketOperation,
        largest: &Trial,
        searched: &mut Vec<LoadTrial>,
        trials: &mut Vec<Trial>,
    ) -> Result<(), EnvError> {
        let rate = rate_of_sender(of, largest).max(1.0);
        let mut tried = 0;
        for goal in GOALS {
            while let Step::Try(load) = next(searched, goal, rate * FIRST, rate * MOST) {
                if tried == MOST_TRIALS {
                    return Ok(());
                }
                tried += 1;
                if let Some(trial) = self.comparable_trial(of, load, largest)? {
                    let loss = trial.loss();
                    searched.push(LoadTrial { load, loss });
                    trials.push(trial);
                }
            }
        }
        Ok(())
    }

    /// Repeats trials with the loads that a search found.
    fn confirm(
        &mut self,
        of: PacketOperation,
        largest: &Trial,
        searched: &[LoadTrial],
        trials: &mut Vec<Trial>,
    ) -> Result<(), EnvError> {
        let loads = GOALS
            .iter()
            .filter_map(|goal| bounds(searched, *goal).lower);
        let mut loads: Vec<f64> = loads.collect();
        loads.dedup();
        for load in loads {
            let mut further = Vec::new();
            for _ in 0..MOST_CONFIRMATIONS {
                if further.len() < CONFIRMATIONS {
                    further.extend(self.comparable_trial(of, load, largest)?);
                }
            }
            trials.append(&mut further);
        }
        Ok(())
    }

    /// Returns a trial with CPUs at the distance of the largest rate, or `None` if they were at another one.
    fn comparable_trial(
        &mut self,
        of: PacketOperation,
        load: f64,
        largest: &Trial,
    ) -> Result<Option<Trial>, EnvError> {
        let trial = self.trial(of, Some(load))?;
        let is_comparable = trial.distance() == largest.distance();
        self.incomparable += usize::from(!is_comparable);
        Ok(is_comparable.then_some(trial))
    }

    fn trial(&self, of: PacketOperation, offered: Option<f64>) -> Result<Trial, EnvError> {
        self.limits.check(Duration::ZERO, String::new)?;
        let duration = Duration::from_millis(self.planned.packets.milliseconds.into());
        self.forwarder.trial(of, offered, duration)
    }
}

/// Results of the trials of a boot, from which its further trials follow.
#[derive(Default)]
struct Known {
    /// Trials with as many frames as arrive.
    largest: BTreeMap<PacketOperation, Trial>,
    /// Trials of searches.
    searched: BTreeMap<PacketOperation, Vec<LoadTrial>>,
}

/// Returns the frames a second of each sender.
fn rate_of_sender(of: PacketOperation, trial: &Trial) -> f64 {
    let senders = match of.direction {
        Direction::Both => 2.0,
        Direction::One | Direction::Half => 1.0,
    };
    trial.rate() / senders
}
