//! Measures both sides of a comparison in the same blocks.

use crate::context::RunContext;
use crate::failure::Failure;
use crate::options::BootOptions;
use crate::run;
use trapline_model::{expand, Config, PlannedBoot, Request};
use trapline_stats::compare::{boots_of, compare_all, Comparison, Row, SequentialTest};
use trapline_stats::verdict::{Design, Settings, Verdict};
use trapline_store::{Run, Store};

/// A comparison to be measured.
pub struct MeasuredComparison<'a> {
    /// Baseline and candidate.
    pub sides: [&'a Config; 2],
    /// Request for both sides.
    pub request: Request,
    /// Numbers of blocks after which verdicts are computed, ascending.
    pub looks: Vec<u32>,
    /// Stop at the first look at which every operation has a verdict.
    pub is_sequential: bool,
    /// Error rate and margin of verdicts.
    pub settings: Settings,
}

impl MeasuredComparison<'_> {
    /// Measures blocks until the last look, the deadline, or cancellation. Returns the run and the
    /// verdicts of the last look.
    ///
    /// # Errors
    /// The store cannot be written or read.
    pub fn measure(
        mut self,
        store: &mut Store,
        context: &RunContext<'_>,
        options: &BootOptions<'_>,
    ) -> Result<(Run, Vec<Row>), Failure> {
        let [a, b] = self.sides;
        let plan = expand(&self.request);
        let number = run::begin(store, &self.request, &plan, None, context)?;
        let mut sequential = SequentialTest::new(&self.settings);
        let mut factor = None;
        let mut looks = self.looks.iter().peekable();
        while let Some(blocks) = looks.next() {
            self.request.boots = Some(*blocks);
            let mut plan = expand(&self.request);
            // What is stored already is not measured again.
            let scaled = |boot| scale(boot, factor.unwrap_or(1.0));
            plan.boots.iter_mut().for_each(scaled);
            let run = run::continue_run(store, number, plan, context, options)?;
            let is_last =
                looks.peek().is_none() || options.is_expired() || context.interrupt.is_requested();
            let of_a = [boots_of(&run.observations, a)];
            let of_b = [boots_of(&run.observations, b)];
            let blocks = of_a[0].len().max(of_b[0].len());
            let comparison = Comparison {
                a: &of_a,
                b: &of_b,
                design: Design::Blocked,
                repeated: &[],
            };
            let verdicts = if self.is_sequential {
                sequential.look(&comparison, blocks, is_last)
            } else {
                compare_all(&[comparison], &self.settings)
            };
            if is_last || sequential.is_settled() {
                return Ok((run, verdicts));
            }
            // Once: the components are of boots with as many batches.
            factor = factor.or_else(|| batches_factor(&verdicts));
        }
        unreachable!("a comparison has at least one look")
    }
}

/// Fewest and most batches of further boots, as multiples of those that are usual.
const BATCHES: (f64, f64) = (0.25, 4.0);

/// Returns the number of batches with which further boots decide soonest, as a multiple of those of the boots so far: of all
/// operations without a verdict, that of the one that needs most. `None` if no noise is known.
fn batches_factor(rows: &[Row]) -> Option<f64> {
    let is_open = |row: &&Row| {
        let verdict = row.outcome.as_ref().map(|assessment| assessment.verdict);
        verdict == Ok(Verdict::Unsure)
    };
    let figures = rows.iter().filter(is_open).flat_map(|row| [&row.a, &row.b]);
    let components = figures.filter_map(|cell| cell.value.figure()?.components);
    let factors = components.filter_map(|it| Some(it.advised? as f64 / it.batches as f64));
    factors
        .reduce(f64::max)
        .map(|factor| factor.clamp(BATCHES.0, BATCHES.1))
}

/// Changes the batches of a boot, and the time for them.
fn scale(boot: &mut PlannedBoot, factor: f64) {
    let job = &mut boot.job;
    job.batches = (f64::from(job.batches) * factor).ceil() as u32;
    job.budget_ticks = (job.budget_ticks as f64 * factor.max(1.0)) as u64;
    boot.further
        .iter_mut()
        .for_each(|start| scale(start, factor));
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;
    use trapline_model::EnvironmentId;

    #[test]
    fn further_boots_have_other_batches_and_time_for_more_of_them() {
        let config = Config::from(EnvironmentId::KVM);
        let request = Request {
            configs: vec![config.clone()],
            ready: vec![config],
            operations: Op::PortOut.into(),
            ..Request::default()
        };
        let planned = expand(&request).boots.remove(0);
        let scaled = |factor| {
            let mut boot = planned.clone();
            scale(&mut boot, factor);
            boot.job
        };
        let usual = planned.job.batches;
        assert_eq!(scaled(1.0), planned.job);
        assert_eq!(scaled(3.0).batches, 3 * usual);
        assert_eq!(scaled(3.0).budget_ticks, 3 * planned.job.budget_ticks);
        assert_eq!(scaled(0.25).batches, usual.div_ceil(4));
        assert_eq!(scaled(0.25).budget_ticks, planned.job.budget_ticks);
    }
}
