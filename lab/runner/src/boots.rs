//! Executes the boots of a plan. First those on exact clocks, which nothing disturbs: one per CPU, and their figures
//! are there within seconds. Then those on the wall clock, one after the other, because a second guest would disturb
//! the first.

use crate::affinity::pin_to_one_cpu;
use crate::boot::{BootResult, Execution};
use crate::concurrent;
use crate::context::RunContext;
use crate::event::{EventHandler, RunEvent};
use crate::failure::Failure;
use crate::lengths::LengthCounters;
use crate::options::BootOptions;
use crate::sink::ObservationSink;
use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use trapline_environments::kernel_build::Roots;
use trapline_model::{Clock, Config, Observation, Plan, PlannedBoot};

/// Executes all boots of `plan` and passes their observations to `sink`.
///
/// # Errors
/// The sink fails.
pub fn execute(
    plan: &Plan,
    context: &RunContext<'_>,
    options: &BootOptions<'_>,
    sink: &mut dyn ObservationSink,
) -> Result<(), Failure> {
    let boots = plan.boots.len();
    context.events.handle(RunEvent::Started { boots });
    let events = context.events;
    let execution = Execution {
        context,
        options,
        roots: &Roots::default(),
        lengths: &LengthCounters::default(),
    };
    let executed = execution.execute(plan, &mut Announcing { events, sink });
    context.events.handle(RunEvent::Finished);
    executed
}

/// A sink that announces each observation as an event before it passes it on.
struct Announcing<'a> {
    events: &'a dyn EventHandler,
    sink: &'a mut dyn ObservationSink,
}

impl ObservationSink for Announcing<'_> {
    fn observed(&mut self, observation: Observation) -> Result<(), Failure> {
        self.events.handle(RunEvent::Observed(&observation));
        self.sink.observed(observation)
    }

    fn skipped(&mut self, config: &Config, reason: &str) -> Result<(), Failure> {
        self.sink.skipped(config, reason)
    }
}

impl Execution<'_> {
    fn execute(&self, plan: &Plan, sink: &mut dyn ObservationSink) -> Result<(), Failure> {
        let on_wall_clock = |boot: &&PlannedBoot| boot.config.environment.clock() == Clock::Wall;
        let (wall, exact): (Vec<_>, Vec<_>) = plan.boots.iter().partition(on_wall_clock);
        // A kernel is built in the memory of its machine, for which there may be none beside another one's.
        let (long, exact): (Vec<_>, Vec<_>) =
            exact.into_iter().partition(|boot| !boot.long.is_empty());
        self.in_parallel(&exact, sink)?;
        self.sequentially(&long, sink)?;
        if self.options.concurrent {
            concurrent::execute(self, &wall, sink)
        } else {
            self.sequentially(&wall, sink)
        }
    }

    fn sequentially(
        &self,
        boots: &[&PlannedBoot],
        sink: &mut dyn ObservationSink,
    ) -> Result<(), Failure> {
        let mut given_up = BTreeSet::new();
        let mut block = None;
        for &boot in boots {
            let is_first_of_block = block.replace(boot.block) != Some(boot.block);
            if is_first_of_block && self.options.is_expired() {
                break;
            }
            if given_up.contains(&boot.config) {
                self.context.events.handle(RunEvent::BootDone(boot));
                continue;
            }
            let result = self.boot(boot);
            if result.is_hopeless() {
                given_up.insert(boot.config.clone());
            }
            if !result.store(sink)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs one worker per CPU. A guest stays on the thread that started it; only its observation is
    /// sent.
    fn in_parallel(
        &self,
        boots: &[&PlannedBoot],
        sink: &mut dyn ObservationSink,
    ) -> Result<(), Failure> {
        let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for number in 0..workers.min(boots.len()) {
                let (sender, next) = (sender.clone(), &next);
                let worker = {
                    let sender = sender.clone();
                    move || {
                        pin_to_one_cpu(number);
                        self.work(boots, next, &sender);
                    }
                };
                let started = thread::Builder::new().spawn_scoped(scope, worker);
                if started.is_err() && number == 0 {
                    // Without threads the boots are one after the other here.
                    self.work(boots, next, &sender);
                }
            }
            drop(sender);
            let mut stored = Ok(());
            for result in receiver {
                // After a failure, later results are received but not stored.
                if stored.is_ok() {
                    stored = result.store(sink).map(drop);
                    if stored.is_err() {
                        self.context.interrupt.request();
                    }
                }
            }
            stored
        })
    }

    fn work(&self, boots: &[&PlannedBoot], next: &AtomicUsize, sender: &Sender<BootResult>) {
        while let Some(boot) = boots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = self.boot(boot);
            let is_cancelled = matches!(result, BootResult::Cancelled);
            if sender.send(result).is_err() || is_cancelled {
                return;
            }
        }
    }
}
