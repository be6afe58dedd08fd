use super::*;
use crate::cpu::affinity;
use crate::cpus::allowed;
use std::collections::BTreeMap;
use trapline_abi::arch::NATIVE;
use trapline_abi::job::WakePolicy;
use trapline_abi::{Decoder, Item, Need, Op, Workload};

/// Returns all records of `job` as text.
fn records(job: &Job) -> Vec<String> {
    let mut decoder = Decoder::new();
    let mut records = Vec::new();
    run(job, ticks(), &mut |frame| {
        decoder.feed(frame, &mut |item| match item {
            Item::Record(record, _) => records.push(format!("{record:?}")),
            // A fact.
            Item::Text(_) => {}
            other => panic!("no frame: {other:?}"),
        })
    });
    records
}

fn small() -> Job {
    let workloads = [
        Workload::Basic,
        Workload::System,
        Workload::Stream,
        Workload::Exits,
    ];
    let run = workloads.into_iter();
    let run = run.map(|it| it.set_on(NATIVE)).collect();
    let sizes = Job {
        blocks: 16,
        pages: 1024,
        doubles: 4096,
        ..Job::EMPTY
    };
    Job {
        run,
        batches: 3,
        batch_ticks: 10_000,
        ..sizes
    }
}

#[test]
fn every_operation_is_measured_or_skipped_with_a_reason() {
    let mut ends = BTreeMap::new();
    let said = records(&small());
    let failed = said.iter().find(|record| record.starts_with("Fail"));
    assert_eq!(failed, None);
    for record in said {
        let kind = record.split(' ').next().unwrap().to_string();
        if matches!(kind.as_str(), "End" | "Skip" | "Fail") {
            *ends.entry(kind).or_insert(0) += 1;
        }
    }
    let asked = small().run.len();
    let needs_machine = |op: &Op| {
        let is_instruction = matches!(op.need(), Need::X86_64 | Need::Aarch64);
        !(is_instruction || matches!(op.need(), Need::Nothing | Need::Timer))
    };
    let skipped = small().run & Workload::Exits.set();
    let skipped = skipped.iter().filter(needs_machine).count();
    assert_eq!(ends["Skip"], skipped);
    assert_eq!(ends["End"], asked - skipped);
}

#[test]
fn hello_is_the_first_record_and_done_the_last() {
    let said = records(&Job {
        run: Op::Getpid.into(),
        batches: 2,
        ..Job::EMPTY
    });
    assert!(said[0].starts_with("Hello"), "{said:?}");
    assert_eq!(said.last().unwrap(), "Done");
    assert_eq!(
        said.iter()
            .filter(|record| record.starts_with("Sample"))
            .count(),
        2
    );
}

#[test]
fn semaphores_between_threads_are_measured_and_mwait_is_skipped() {
    let job = Job {
        run: Workload::Ipc.set() | Workload::Smp.set(),
        wake: WakePolicy::Poll(1_000),
        passes: 3,
        ..small()
    };
    let count = |job: &Job, kind: &str| {
        let records = records(job);
        let of_kind = records.iter().filter(|record| record.starts_with(kind));
        of_kind.count()
    };
    let all = job.run.len();
    let of_kernels = Op::SmpIpi | Op::SmpStart;
    let measured = match affinity().map(|cpus| allowed(&cpus).len()) {
        Some(2..) => (job.run - of_kernels).len(),
        // Two threads of `ipc` share a CPU.
        _ => Workload::Ipc.set().len(),
    };
    let counts = ["End {", "Sample {", "Skip {"].map(|kind| count(&job, kind));
    assert_eq!(counts, [measured, measured * 3, all - measured]);
    // Not the init of a guest.
    for wake in [
        WakePolicy::Mwait,
        WakePolicy::HaltPoll,
        WakePolicy::IdlePoll,
    ] {
        assert_eq!(count(&Job { wake, ..job }, "Skip {"), all);
    }
}
