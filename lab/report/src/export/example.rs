//! A run of two boots with every property of samples.

use std::collections::BTreeMap;
use trapline_abi::{Interrupt, Op};
use trapline_model::{Clock, EnvironmentId, Observation, OperationResult, Outcome, Sample};

fn measured(samples: Vec<Sample>, interrupts: Vec<Interrupt>, host: Option<u64>) -> Outcome {
    Outcome::Measured {
        clock_cost: 40,
        loop_cost: 1024,
        samples,
        interrupts,
        trials: Vec::new(),
        check: u64::MAX,
        exits: host,
        host_cpu_ns: host,
        idle: None,
        elapsed: None,
    }
}

fn batches(from: u64, host: Option<u64>) -> Vec<Sample> {
    let batch = |number: u64| Sample {
        start: from + number * 2_000,
        end: from + number * 2_000 + 1_040,
        count: 10,
        host_ns: host.map(|ns| ns + number),
        excluded: 0,
    };
    (0..5).map(batch).collect()
}

fn boot(
    replicate: u32,
    environment: EnvironmentId,
    operations: Vec<OperationResult>,
) -> Observation {
    Observation {
        config: environment.into(),
        clock: Clock::Wall,
        replicate,
        unit_per_tick: 0.5,
        operations,
        launches: vec![],
        facts: BTreeMap::new(),
        log: String::new(),
        problems: vec![],
        host: String::new(),
    }
}

/// Batches that the host stamped and counted, and one that is no measurement; interrupts;
/// a skip and a failure. 13 samples.
pub fn boots() -> Vec<Observation> {
    let operation = |op, outcome| OperationResult::new(op, outcome);
    // Moments beyond what is a positive number to Parquet.
    let mut late = batches(u64::MAX - 20_000, Some(7));
    late[4].count = 0;
    let interrupt = |due: u64| Interrupt {
        due,
        entered: due + 300,
        ..Interrupt::default()
    };
    let interrupts = vec![interrupt(1_000), interrupt(2_000), interrupt(3_000)];
    let mut second = boot(
        1,
        EnvironmentId::KVM,
        vec![
            operation(Op::PortOut, measured(late, vec![], Some(50))),
            operation(Op::OwnTimer, measured(vec![], interrupts, None)),
        ],
    );
    second
        .config
        .overrides
        .set(
            "vmm",
            "a \"b\";
,c",
        )
        .expect("the setting is valid");
    let first = boot(
        0,
        EnvironmentId::HOST,
        vec![
            operation(Op::Getpid, measured(batches(0, None), vec![], None)),
            operation(Op::PortOut, Outcome::Skipped("no ports".to_owned())),
            operation(Op::Yield, Outcome::Failed("it did not switch".to_owned())),
        ],
    );
    vec![first, second]
}

/// Number of samples in [`boots`].
pub const SAMPLES: u64 = 13;
