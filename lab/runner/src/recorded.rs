//! The record of a run that is compared before the run is resumed: its request, and the facts of its conditions.

use crate::context::RunContext;
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::block;
use trapline_environments::disk;
use trapline_model::{irq, RecordedRequest, Request};

/// Fact that identifies the builds under test.
pub const PARTS: &str = "parts";

/// A request, and the facts that are recorded with it.
pub(crate) struct Recorded {
    pub request: RecordedRequest,
    /// Facts of the host, of the builds under test, and of the conditions.
    pub facts: BTreeMap<String, String>,
}

impl Recorded {
    /// Records a request with the facts of its conditions.
    pub fn of(request: &Request, context: &RunContext<'_>) -> Self {
        let configs = request.configs.iter();
        let inventories = configs.map(|it| context.inventory.with_files_of(&it.overrides));
        let parts = inventories.map(|it| it.settings().parts.fingerprint());
        let parts: Vec<String> = parts.collect::<BTreeSet<_>>().into_iter().collect();
        let mut recorded = Self {
            request: RecordedRequest::of(request),
            facts: context.host_facts.clone(),
        };
        recorded.facts.insert(PARTS.to_owned(), parts.join(" "));
        if request.operations.intersects(irq::operations()) {
            recorded.facts.extend(request.irq.facts());
        }
        if request.operations.intersects(block::operations()) {
            let (mib, _) = request.block.largest(&request.configs);
            // Other disks are in the memory of a simulated machine.
            let on_host = request.uses_seed();
            let settings = context.inventory.settings();
            recorded.facts.extend(disk::facts(settings, mib, on_host));
        }
        recorded
    }

    /// Returns the facts of a run: those of the user, and others.
    pub fn facts_with(&self, context: &RunContext<'_>) -> BTreeMap<String, String> {
        let mut facts = context.user_facts.clone();
        facts.extend(self.facts.clone());
        facts
    }
}
