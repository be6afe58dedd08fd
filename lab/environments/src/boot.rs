//! One boot from its plan to its observation.

use crate::environment::{Environment, Progress, Work};
use crate::observe::{Recorder, Setting};
use crate::window;
use trapline_abi::{Job, Op};
use trapline_host::clock_check::{check_timers, ClockSampler, HostClocks};
use trapline_host::facts;
use trapline_host::host_noise::NoiseSampler;
use trapline_host::{Error, GuestImage, Limits, TscRate};
use trapline_model::expand::PlannedBoot;
use trapline_model::irq::Timers;
use trapline_model::{Clock, LeftOut, Observation, Operation, Outcome};

/// A boot that is over.
#[derive(Debug)]
pub struct Booted {
    /// All that was observed. Operations that were not reached have failed for
    /// the reason of the trouble.
    pub observation: Observation,
    /// Why the boot did not end well, if it did not.
    pub trouble: Option<Error>,
}

/// Boots `environment` as planned and hears it to its end. Must be called from a
/// thread that lives as long: guests die with the thread that started them.
///
/// # Errors
/// Nothing could be started. Once a guest has started there is an observation.
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
    let planned = &window::fit(planned, facts::available_mib());
    let on_the_wall = environment.id().clock() == Clock::Wall;
    let noise_sampler = on_the_wall.then(NoiseSampler::begin);
    let mut guest = environment.launch(image, &planned.guest)?;
    let unit_per_tick = unit_per_tick(environment.id().clock());
    let job = in_ticks(planned.job, unit_per_tick);
    let asks_for_interrupts = Timers::of(&job).is_some();
    let on_this_host = asks_for_interrupts && on_the_wall;
    if on_this_host {
        check_timers(planned.job.period)?;
    }
    let work = Work {
        job,
        boot_job: planned.boot_job,
        boot_launches: planned.boot_launches,
        conditions: planned.conditions.clone(),
        scheduling: planned.guest.scheduling,
    };
    guest.ready(&work, limits)?;
    let setting = Setting {
        environment: environment.id(),
        replicate: planned.replicate,
        unit_per_tick,
    };
    let mut facts = environment.facts();
    facts.extend(planned.guest.scheduling.facts());
    let asked = Timers::of(&job).map(|asked| asked.facts());
    let asked = asked.into_iter().flatten();
    let conditions = planned.conditions.facts();
    let conditions = conditions.chain(planned.guest.scheduling.irq_facts());
    let asked = asked.chain(conditions.filter(|_| asks_for_interrupts));
    facts.extend(asked.map(|(name, value)| (name.to_owned(), value)));
    let mut recorder = Recorder::new(setting, planned.boot_job.run, facts, progress);
    let clock_sampler = on_this_host.then(|| ClockSampler::begin(HostClocks));
    guest.go(limits)?;
    let trouble = guest.collect(limits, &mut recorder).err();
    let clock_check = clock_sampler.map(ClockSampler::end);
    // Its time is counted as ours once it was waited for.
    drop(guest);
    let noise = noise_sampler.map(NoiseSampler::end);
    let pressed = planned.conditions.loads.programs().next().is_some();
    match trouble {
        // Whatever was measured was not measured under the conditions asked for.
        Some(error @ Error::Load { .. }) => return Err(error),
        Some(error @ Error::Machine(_)) if pressed => return Err(error),
        _ => {}
    }
    let unreached = match &trouble {
        Some(error) => error.to_string(),
        None => "no launch told when it got there".to_owned(),
    };
    let mut observation = recorder.finish(&unreached);
    observation.overrides = planned.overrides.clone();
    if let Some(check) = clock_check {
        let facts = check.facts().into_iter();
        let facts = facts.map(|(name, value)| (name.to_owned(), value));
        observation.facts.extend(facts);
        observation.problems.extend(check.flags());
    }
    observation.facts.extend(noise.into_iter().flatten());
    if trouble.is_some() {
        fail_unreached(&mut observation, &planned.job, &unreached);
    }
    observation.operations.extend(skipped(&planned.left_out));
    Ok(Booted {
        observation,
        trouble,
    })
}

/// Of a guest that never began nothing was heard, not even that it failed: what it
/// should have measured failed for the same reason.
fn fail_unreached(observation: &mut Observation, job: &Job, reason: &str) {
    for op in Op::ALL.into_iter().filter(|op| job.selects(*op)) {
        let is_told = |operation: &Operation| operation.op == op;
        if !observation.operations.iter().any(is_told) {
            let outcome = Outcome::Failed(reason.to_owned());
            observation.operations.push(Operation { op, outcome });
        }
    }
}

/// What was not asked of the guest, with the reasons.
fn skipped(left_out: &[LeftOut]) -> impl Iterator<Item = Operation> + '_ {
    left_out.iter().flat_map(|left_out| {
        let asked = |op: &Op| left_out.operations & op.bit() != 0;
        Op::ALL.into_iter().filter(asked).map(|op| Operation {
            op,
            outcome: Outcome::Skipped(left_out.reason.clone()),
        })
    })
}

/// The job with its period in ticks of the guest's clock.
fn in_ticks(job: Job, unit_per_tick: f64) -> Job {
    let ticks = (job.period as f64 / unit_per_tick).round();
    Job {
        period: (ticks as u64).max(1),
        ..job
    }
}

fn unit_per_tick(clock: Clock) -> f64 {
    match clock {
        Clock::Wall => TscRate::host().ns_per_tick(),
        Clock::Insn | Clock::InsnVmx => 1.0,
    }
}
