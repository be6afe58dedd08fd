//! Executes one planned boot.

use crate::environment::{Environment, Progress, Work};
use crate::observe::{BootInfo, Recorder};
use crate::window;
use std::path::Path;
use trapline_abi::job::WakePolicy;
use trapline_abi::Job;
use trapline_host::clock_check::{check_timers, ClockSampler, HostClocks};
use trapline_host::energy::{EnergySampler, POWERCAP};
use trapline_host::facts;
use trapline_host::host_noise::NoiseSampler;
use trapline_host::{Error, Facts, GuestImage, Limits, TscRate};
use trapline_model::expand::PlannedBoot;
use trapline_model::irq::Timers;
use trapline_model::{Clock, LeftOut, Observation, OperationResult, Outcome, ENERGY};

/// A boot that ended.
#[derive(Debug)]
pub struct Booted {
    /// Results. Operations that were not reached failed with the reason of `error`.
    pub observation: Observation,
    /// Reason why the boot failed, if it did.
    pub error: Option<Error>,
}

/// Boots `environment` as planned and waits for its end. The calling thread must outlive the guest: guests
/// die with the thread that started them.
///
/// # Errors
/// The guest could not be started. Once it has started, there is an observation.
pub fn boot(
    environment: &dyn Environment,
    image: &GuestImage,
    planned: &PlannedBoot,
    limits: &Limits,
    progress: &mut dyn FnMut(Progress),
) -> Result<Booted, Error> {
    if let Some(reason) = planned.unsupported_reason() {
        return Err(Error::unavailable(reason));
    }
    let planned = &window::without_unavailable(planned, facts::available_mib());
    let clock = environment.id().clock();
    let noise_sampler = (clock == Clock::Wall).then(NoiseSampler::begin);
    let mut guest = environment.launch(image, &planned.guest)?;
    let unit_per_tick = unit_per_tick(clock);
    let work = work(planned, unit_per_tick, environment.nonce());
    let samples_clocks = clock == Clock::Wall && Timers::of(&work.job).is_some();
    if samples_clocks {
        check_timers(planned.job.period)?;
    }
    guest.prepare(&work, limits)?;
    let info = BootInfo {
        config: planned.config.clone(),
        replicate: planned.replicate,
        unit_per_tick,
        memory_mib: planned.guest.memory_mib,
    };
    let facts = initial_facts(environment, planned, &work.job);
    let mut recorder = Recorder::new(info, planned.boot_job.run, facts, progress);
    let clock_sampler = samples_clocks.then(|| ClockSampler::begin(HostClocks));
    let energy = (clock == Clock::Wall).then(|| EnergySampler::begin(Path::new(POWERCAP)));
    guest.start(limits)?;
    let error = guest.collect(limits, &mut recorder).err();
    let energy = energy.and_then(EnergySampler::end);
    let clock_check = clock_sampler.map(ClockSampler::end);
    // The kernel adds the CPU time of a child to ours when it is reaped.
    drop(guest);
    let noise = noise_sampler.map(NoiseSampler::end);
    let has_loads = planned.conditions.loads.programs().next().is_some();
    match error {
        // The requested conditions did not hold.
        Some(error @ Error::Load { .. }) => return Err(error),
        Some(error @ Error::Machine(_)) if has_loads => return Err(error),
        _ => {}
    }
    let unreached = match &error {
        Some(error) => error.with_remedy(),
        None => "no launch reported this stage".to_owned(),
    };
    let mut observation = recorder.finish(&unreached);
    if let Some(check) = clock_check {
        observation.facts.extend(named(check.facts()));
        observation.problems.extend(check.flags());
    }
    observation.facts.extend(noise.into_iter().flatten());
    let energy = energy.map(|joules| (ENERGY.to_owned(), format!("{joules:.3} J")));
    observation.facts.extend(energy);
    if error.is_some() {
        fail_unreached(&mut observation, &planned.job, &unreached);
    }
    observation.operations.extend(skipped(&planned.left_out));
    Ok(Booted { observation, error })
}

/// Returns the jobs of a boot, with this number, and their conditions.
fn work(planned: &PlannedBoot, unit_per_tick: f64, nonce: u64) -> Work {
    let with_nonce = |job| Job { nonce, ..job };
    Work {
        job: with_nonce(in_ticks(planned.job, unit_per_tick)),
        boot_job: with_nonce(planned.boot_job),
        boot_launches: planned.boot_launches,
        guests: planned.guest.guests,
        conditions: planned.conditions.clone(),
        scheduling: planned.guest.scheduling,
    }
}

/// Returns the facts known before the guest starts.
fn initial_facts(environment: &dyn Environment, planned: &PlannedBoot, job: &Job) -> Facts {
    let mut facts = environment.facts();
    facts.extend(planned.guest.scheduling.facts());
    if let Some(asked) = Timers::of(job) {
        facts.extend(named(asked.facts()));
        facts.extend(named(planned.conditions.facts()));
        facts.extend(named(planned.guest.scheduling.irq_facts()));
    }
    facts
}

fn named<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> Facts {
    let facts = facts.into_iter();
    facts
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Adds a failure with `reason` for each operation of `job` without an outcome: a guest that sends no
/// record reports no failure either.
fn fail_unreached(observation: &mut Observation, job: &Job, reason: &str) {
    for op in job.run.iter() {
        let has_outcome = |operation: &OperationResult| operation.op == op;
        if !observation.operations.iter().any(has_outcome) {
            let outcome = Outcome::Failed(reason.to_owned());
            observation
                .operations
                .push(OperationResult::new(op, outcome));
        }
    }
}

/// Returns a skip for each operation that the guest was not asked to measure.
fn skipped(left_out: &[LeftOut]) -> impl Iterator<Item = OperationResult> + '_ {
    let reported = left_out.iter().filter(|left_out| left_out.is_reported);
    reported.flat_map(|left_out| {
        let skipped = || Outcome::Skipped(left_out.reason.clone());
        let operations = left_out.operations.iter();
        operations.map(move |op| OperationResult::new(op, skipped()))
    })
}

/// Converts the times of a job from nanoseconds or instructions to ticks of the guest's clock.
fn in_ticks(job: Job, unit_per_tick: f64) -> Job {
    let ticks = |time: u64| ((time as f64 / unit_per_tick).round() as u64).max(1);
    Job {
        period: ticks(job.period),
        wake: match job.wake {
            WakePolicy::Poll(time) => WakePolicy::Poll(ticks(time)),
            other => other,
        },
        ..job
    }
}

fn unit_per_tick(clock: Clock) -> f64 {
    if clock.is_exact() {
        1.0
    } else {
        TscRate::host().ns_per_tick()
    }
}
