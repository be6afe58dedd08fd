//! Executes trials of packets. Each is stored when it is over.

use crate::context::RunContext;
use crate::event::RunEvent;
use crate::failure::Failure;
use crate::request_text::RecordedRequest;
use crate::run;
use std::collections::BTreeSet;
use std::time::Duration;
use trapline_environments::packets::{Forwarder, PacketPath};
use trapline_environments::EnvError;
use trapline_model::packets::{
    Direction, PacketRequest, PlannedTrial, Purpose, Trial, TrialFigures, TrialOutcome,
};
use trapline_stats::packets::{next, LoadTrial, Step, GOALS};
use trapline_store::{Run, RunId, Store};

/// A search begins with this share of the largest rate that was seen.
const FIRST: f64 = 0.9;
/// And offers at most so many times that rate.
const MOST: f64 = 2.0;
/// Trials of a search, at most: those with CPUs at another distance do not count.
const MOST_TRIALS: usize = 150;

/// Executes the trials of `request` through `paths`, which are those it names. `plan` is the text of its plan file.
///
/// # Errors
/// The store cannot be written or read.
pub fn perform(
    store: &mut Store,
    request: &PacketRequest,
    paths: &[PacketPath],
    plan: Option<&str>,
    context: &RunContext<'_>,
) -> Result<Run, Failure> {
    let recorded = RecordedRequest::of_packets(request, context);
    let number = run::create(store, request.seed, recorded, plan, context)?;
    let planned = request.expand();
    let boots = planned.len();
    context.events.handle(RunEvent::Started { boots });
    let mut tester = Tester {
        store,
        number,
        request,
        context,
        hopeless: BTreeSet::new(),
    };
    let done = planned.into_iter().try_for_each(|planned| {
        if context.interrupt.is_requested() {
            return Ok(());
        }
        let path = paths.iter().find(|path| path.name == planned.path);
        context.events.handle(RunEvent::TrialStarted(&planned));
        let done = path.map_or(Ok(()), |path| tester.test(path, planned));
        context.events.handle(RunEvent::StepDone);
        done
    });
    context.events.handle(RunEvent::Finished);
    done?;
    run::finish(store, number, context)
}

struct Tester<'a> {
    store: &'a mut Store,
    number: RunId,
    request: &'a PacketRequest,
    context: &'a RunContext<'a>,
    /// Paths that are not tried again.
    hopeless: BTreeSet<String>,
}

/// A load, and why it is offered.
type Offer = (Purpose, Option<f64>);

impl Tester<'_> {
    /// Executes all trials of a cell and round.
    fn test(&mut self, path: &PacketPath, planned: PlannedTrial) -> Result<(), Failure> {
        if !path.supports(&planned.frames) || self.hopeless.contains(&planned.path) {
            return Ok(());
        }
        let settings = self.context.inventory.settings();
        let (parts, frames) = (&settings.parts, planned.frames);
        let forwarder = match Forwarder::start(path, parts, self.request.cpus, frames) {
            Ok(forwarder) => forwarder,
            Err(EnvError::Stopped) => return Ok(()),
            Err(error) => {
                self.hopeless.insert(planned.path.clone());
                let outcome = TrialOutcome::Skipped(error.with_remedy());
                return self.add(&planned, (Purpose::Maximum, None), outcome);
            }
        };
        if let Some(rate) = self.request.rate {
            self.trial(&forwarder, &planned, (Purpose::Given, Some(rate)))?;
            return Ok(());
        }
        let Some(most) = self.trial(&forwarder, &planned, (Purpose::Maximum, None))? else {
            return Ok(());
        };
        let senders = match planned.frames.direction {
            Direction::Both => 2.0,
            Direction::One | Direction::Half => 1.0,
        };
        let rate = most.rate() / senders;
        if planned.frames.direction != Direction::Half && rate >= 2.0 {
            self.trial(&forwarder, &planned, (Purpose::HalfLoad, Some(rate / 2.0)))?;
            // One search a cell: it repeats its trials by itself.
            if self.request.search && planned.round == 0 {
                self.search(&forwarder, &planned, &most, rate)?;
            }
        }
        Ok(())
    }

    /// Searches the rates of all goals. `most` are the figures with the maximum load, `rate` that of each sender.
    fn search(
        &mut self,
        forwarder: &Forwarder,
        planned: &PlannedTrial,
        most: &TrialFigures,
        rate: f64,
    ) -> Result<(), Failure> {
        let mut trials = Vec::new();
        let mut count = 0;
        for goal in GOALS {
            while let Step::Try(load) = next(&trials, goal, rate * FIRST, rate * MOST) {
                let offer = (Purpose::Search, Some(load));
                let figures = match self.trial(forwarder, planned, offer)? {
                    Some(figures) if count < MOST_TRIALS => figures,
                    _ => return Ok(()),
                };
                count += 1;
                if figures.distance() == most.distance() {
                    let loss = figures.loss();
                    trials.push(LoadTrial { load, loss });
                }
            }
        }
        Ok(())
    }

    /// Executes and stores one trial. Returns what it has counted.
    fn trial(
        &mut self,
        forwarder: &Forwarder,
        planned: &PlannedTrial,
        offer: Offer,
    ) -> Result<Option<TrialFigures>, Failure> {
        let duration = Duration::from_millis(self.request.milliseconds.into());
        let outcome = match forwarder.trial(offer.1, duration) {
            Ok(figures) => TrialOutcome::Done(figures),
            Err(EnvError::Stopped) => return Ok(None),
            Err(error) => TrialOutcome::Failed(error.with_remedy()),
        };
        let figures = match &outcome {
            TrialOutcome::Done(figures) => Some(*figures),
            _ => None,
        };
        self.add(planned, offer, outcome)?;
        Ok(figures)
    }

    fn add(
        &mut self,
        planned: &PlannedTrial,
        (purpose, offered): Offer,
        outcome: TrialOutcome,
    ) -> Result<(), Failure> {
        let trial = Trial {
            planned: planned.clone(),
            purpose,
            offered,
            outcome,
        };
        Ok(self.store.add_trial(self.number, &trial)?)
    }
}
