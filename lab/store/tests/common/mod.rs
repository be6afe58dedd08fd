//! Boots to store.

use std::collections::BTreeMap;
use trapline_abi::{CpuState, Interrupt, Op};
use trapline_model::{Clock, EnvironmentId, Launch, Observation, OperationResult, Outcome, Sample};

/// Returns a boot with all operations and many samples. All values depend on `replicate`.
pub fn full_boot(replicate: u32) -> Observation {
    let base = u64::from(replicate) << 32;
    let sample = |number: u64| Sample {
        start: base + 1000 * number,
        end: base + 1000 * number + 900,
        count: 10,
        host_ns: Some(number),
        excluded: 0,
    };
    let operation = |op: Op| OperationResult {
        op: op.into(),
        outcome: Outcome::Measured {
            clock_cost: 20,
            loop_cost: 1024,
            samples: (0..100).map(sample).collect(),
            interrupts: Vec::new(),
            trials: Vec::new(),
            check: u64::MAX - base,
            exits: None,
            host_cpu_ns: Some(base),
            idle: None,
            elapsed: Some((base, 1)),
        },
    };
    Observation {
        config: EnvironmentId::KVM.into(),
        clock: Clock::Wall,
        replicate,
        unit_per_tick: 0.4,
        operations: Op::ALL.into_iter().map(operation).collect(),
        launches: vec![Launch::default()],
        facts: BTreeMap::from([("image".to_owned(), replicate.to_string())]),
        log: "hello\n".repeat(20),
        problems: vec![],
        host: String::new(),
    }
}

/// Returns a boot with interrupts of a timer.
#[allow(dead_code, reason = "used by some of the tests")]
pub fn boot_with_interrupts() -> Observation {
    let mut boot = full_boot(9);
    let interrupt = |sequence| Interrupt {
        sequence,
        due: 1000 * sequence,
        entered: 1000 * sequence + 40,
        done: 1000 * sequence + 50,
        resumed: 1000 * sequence + 60,
        found: CpuState::Code,
        ..Interrupt::default()
    };
    for operation in &mut boot.operations {
        if let Outcome::Measured {
            samples,
            interrupts,
            ..
        } = &mut operation.outcome
        {
            samples.clear();
            *interrupts = (0..100).map(interrupt).collect();
        }
    }
    boot
}
