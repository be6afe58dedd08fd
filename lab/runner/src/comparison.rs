//! Measures both sides of a comparison in the same blocks.

use crate::context::RunContext;
use crate::failure::Failure;
use crate::options::BootOptions;
use crate::run;
use trapline_model::{expand, Config, Request};
use trapline_stats::compare::{boots_of, compare_all, Comparison, Row, SequentialTest};
use trapline_stats::verdict::{Design, Settings};
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
        let mut looks = self.looks.iter().peekable();
        while let Some(blocks) = looks.next() {
            self.request.boots = Some(*blocks);
            let plan = expand(&self.request);
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
        }
        unreachable!("a comparison has at least one look")
    }
}
