//! Runs both sides of a comparison concurrently, one per CPU, so that host noise affects both equally.
//! The sides swap CPUs after every block, which cancels differences between CPUs; the order of starts
//! within a block follows the plan.

use crate::affinity::pin_to_one_cpu;
use crate::boot::{BootResult, Execution};
use crate::failure::Failure;
use crate::sink::ObservationSink;
use std::thread;
use trapline_abi::{block, files, OpSet, Workload};
use trapline_model::observed::HOST_NOISE;
use trapline_model::{irq, names, populate, PlannedBoot};

/// Checks that two boots of `operations` can run concurrently on `cpus` CPUs.
///
/// # Errors
/// stream, memory, irq, populate, block, files, net and smp share a resource (memory bandwidth, caches, interrupts, disk, the CPU
/// of the peer, all CPUs); each side needs a CPU of its own.
pub fn check_concurrent(operations: OpSet, cpus: usize) -> Result<(), Failure> {
    let shared = Workload::Stream.set()
        | Workload::Memory.set()
        | irq::operations()
        | populate::operations()
        | block::operations()
        | files::operations()
        | Workload::Net.set()
        | Workload::Smp.set();
    if operations.intersects(shared) {
        return Err(Failure::usage(
            format!("--concurrent is not supported by {}", names::describe(operations & shared)),
            "name other operations with --workload: memory bandwidth, interrupts, disks and CPUs of peers are shared",
        ));
    }
    if cpus < 2 {
        return Err(Failure::usage(
            "--concurrent needs one CPU per side: this process may use one",
            "leave it out: sequential boots need one CPU",
        ));
    }
    Ok(())
}

/// Runs the boots of each block concurrently.
///
/// # Errors
/// The sink fails, or a boot panics.
pub(crate) fn execute(
    execution: &Execution<'_>,
    boots: &[&PlannedBoot],
    sink: &mut dyn ObservationSink,
) -> Result<(), Failure> {
    for pair in boots.chunk_by(|one, other| one.block == other.block) {
        if execution.options.is_expired() {
            break;
        }
        let results: std::io::Result<Vec<_>> = thread::scope(|scope| {
            let mut started = Vec::new();
            for boot in pair {
                let side = move || boot_side(execution, boot, pair);
                started.push(thread::Builder::new().spawn_scoped(scope, side)?);
            }
            let ended = started.into_iter().map(|thread| thread.join());
            Ok(ended.flatten().collect())
        });
        let results = results.map_err(|error| {
            Failure::new(format!("cannot start a thread for each side: {error}"))
                .help("allow more processes (ulimit -u), or leave out --concurrent")
        })?;
        let is_complete = results.len() == pair.len();
        for result in results {
            if !result.store(sink)? {
                return Ok(());
            }
        }
        if !is_complete {
            return Err(Failure::new("a boot panicked: please report it"));
        }
    }
    Ok(())
}

/// Boots one side on its CPU, which follows from the order of names and the number of the block.
fn boot_side(execution: &Execution<'_>, boot: &PlannedBoot, pair: &[&PlannedBoot]) -> BootResult {
    let before = pair.iter().filter(|other| other.config < boot.config);
    pin_to_one_cpu(before.count() + boot.block as usize);
    let mut result = execution.boot(boot);
    if let Some(observation) = result.observation() {
        // The other side is not host noise.
        observation.facts.remove(&format!("{HOST_NOISE}others"));
        let others = pair.iter().filter(|other| other.config != boot.config);
        let others: Vec<_> = others.map(|other| other.config.to_string()).collect();
        observation
            .facts
            .insert("beside".to_owned(), others.join(" "));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_abi::Op;

    #[test]
    fn operations_that_share_a_resource_are_rejected() {
        assert_eq!(check_concurrent(Op::PortOut | Op::Getpid, 2), Ok(()));
        let failure =
            |operations, cpus| check_concurrent(operations, cpus).unwrap_err().to_string();
        let failures = [
            failure(Op::Triad | Op::Getpid, 2),
            failure(Op::OwnTimer.into(), 2),
            failure(Op::Getpid.into(), 1),
        ];
        expect![[r#"
            --concurrent is not supported by stream/triad
            --concurrent is not supported by irq/own-timer
            --concurrent needs one CPU per side: this process may use one"#]]
        .assert_eq(&failures.join("\n"));
    }
}
