//! A report of interrupts that are made up: two environments on the wall clock, one on
//! the instruction clock, some of them late.

use trapline_abi::{CpuState, Interrupt, Op};
use trapline_model::irq::{self, Settings, Timers};
use trapline_model::{EnvironmentId, Observation, OperationResult, Outcome};
use trapline_report::Report;
use trapline_stats::irq::summarise;

const EXPIRIES: u32 = 3_000;

/// By the number of its expiry: mostly 20 us and a little, every 500th far more.
fn late(sequence: u64) -> u64 {
    match sequence % 500 {
        499 => 40_000 + 37 * sequence,
        spread => 20_000 + 13 * spread,
    }
}

fn interrupt(sequence: u64, raised: bool) -> Interrupt {
    let due = 10_000_000 * (sequence + 1);
    let entered = due + late(sequence);
    Interrupt {
        sequence,
        due,
        uncertainty: if raised { 0 } else { 150 + sequence % 7 },
        woke: raised.then_some(due + 9_000),
        marked: raised.then_some(due + 11_500),
        entered,
        done: entered + 60,
        resumed: entered + 1_300,
        found: CpuState::ALL[usize::from(sequence.is_multiple_of(4))],
    }
}

fn operation(op: Op, missing: &[u64]) -> OperationResult {
    let value = (0..u64::from(EXPIRIES)).filter(|number| !missing.contains(number));
    let interrupts = value.map(|number| interrupt(number, op == Op::HostTimer));
    let outcome = Outcome::Measured {
        clock_cost: 20,
        loop_cost: 0,
        samples: vec![],
        interrupts: interrupts.collect(),
        trials: Vec::new(),
        check: 1,
        exits: Some(9_000),
        host_cpu_ns: Some(60_000_000),
        idle: None,
        elapsed: None,
    };
    OperationResult::new(op, outcome)
}

fn boot(
    environment: EnvironmentId,
    replicate: u32,
    operations: Vec<OperationResult>,
) -> Observation {
    let asked = Timers {
        expiries: EXPIRIES,
        period: 10_000_000,
    };
    let facts = asked.facts().map(|(name, value)| (name.to_owned(), value));
    Observation {
        config: environment.into(),
        clock: environment.clock(),
        replicate,
        unit_per_tick: 1.0,
        operations,
        launches: vec![],
        facts: facts.into(),
        log: String::new(),
        problems: vec![],
        host: String::new(),
    }
}

pub fn report(require: &str) -> Report {
    let both = || {
        let own = operation(Op::OwnTimer, &[3, 2_999]);
        vec![own, operation(Op::HostTimer, &[])]
    };
    let skipped = Outcome::Skipped("ring 3 cannot halt".into());
    let skipped = OperationResult::new(Op::OwnTimer, skipped);
    let observations = [
        boot(EnvironmentId::HOST, 0, both()),
        boot(EnvironmentId::KVM, 0, both()),
        boot(EnvironmentId::QEMU_KVM, 0, vec![skipped]),
        boot(EnvironmentId::SIM_KVM, 0, both()),
        boot(EnvironmentId::SIM_KVM, 1, both()),
    ];
    let summary = trapline_stats::summarise(&observations);
    let settings = Settings {
        require: require.parse().ok(),
        ..Settings::default()
    };
    Report {
        version: "0.1.0".into(),
        interrupts: summarise(&observations, &summary, &settings),
        irq: settings,
        summary,
        operations: irq::operations(),
        ..Report::default()
    }
}
