//! Start of several guests at the same time: each reports that it is ready, then waits for a byte of its standard input.

use crate::environment::Work;
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use trapline_abi::Job;

/// Batches of guests that run at the same time, as a multiple of those of a single one: guests do not start and end at
/// quite the same moment.
const BATCHES: u32 = 10;

/// Returns the jobs of several guests: for each operation of the first launch one in which they wait at a barrier, and those
/// of the further launches, which measure the start itself.
pub fn jobs(work: &Work) -> Vec<Job> {
    let job = &work.job;
    let single = job.run.iter().map(|op| Job {
        run: op.into(),
        wait_for_go: true,
        batches: BATCHES * job.batches,
        ..*job
    });
    single.chain(work.starts()).collect()
}

/// Barrier of the guests of one launch.
pub struct StartBarrier {
    /// Number of guests that have not arrived.
    missing: AtomicUsize,
    inputs: Vec<File>,
    /// Standard inputs of the guests, kept open for a guest that has ended.
    _guests: Vec<Arc<File>>,
}

impl StartBarrier {
    /// Creates a barrier. Returns it with the standard inputs of the guests.
    ///
    /// # Errors
    /// No pipe can be created.
    pub fn new(guests: usize) -> io::Result<(Self, Vec<Arc<File>>)> {
        let pipes: io::Result<Vec<_>> = (0..guests).map(|_| trapline_spawn::pipe()).collect();
        let (theirs, inputs): (Vec<_>, Vec<_>) = pipes?.into_iter().unzip();
        let theirs: Vec<_> = theirs.into_iter().map(Arc::new).collect();
        let barrier = Self {
            missing: AtomicUsize::new(guests),
            inputs,
            _guests: theirs.clone(),
        };
        Ok((barrier, theirs))
    }

    /// Records that a guest is ready, or has ended. The last one starts all. Called once for each.
    pub fn arrive(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            for mut input in &self.inputs {
                // An empty pipe has room.
                let _ = input.write_all(&[1]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use trapline_abi::Op;
    use trapline_model::Scheduling;

    #[test]
    fn each_operation_is_a_job_that_waits() {
        let job = Job {
            run: Op::Fork | Op::PortOut,
            batches: 3,
            ..Job::EMPTY
        };
        let boot_job = Job {
            run: Op::BootMain.into(),
            ..Job::EMPTY
        };
        let jobs = jobs(&Work {
            job,
            boot_job,
            boot_launches: 2,
            guests: 4,
            conditions: Default::default(),
            scheduling: Scheduling::DEFAULT,
        });
        let runs: Vec<_> = jobs.iter().map(|job| job.run).collect();
        assert_eq!(runs[..2], [Op::Fork.into(), Op::PortOut.into()]);
        let waiting = &jobs[..2];
        assert!(waiting
            .iter()
            .all(|job| job.wait_for_go && job.batches == 30));
        assert_eq!(jobs[2..], [boot_job, boot_job]);
    }

    #[test]
    fn guests_start_when_the_last_one_is_ready() {
        let (barrier, guests) = StartBarrier::new(2).unwrap();
        let mut byte = [0];
        for guest in &guests {
            rustix::fs::fcntl_setfl(guest, rustix::fs::OFlags::NONBLOCK).unwrap();
        }
        barrier.arrive();
        assert!((&*guests[0]).read(&mut byte).is_err(), "one is missing");
        barrier.arrive();
        for guest in &guests {
            assert_eq!((&**guest).read(&mut byte).unwrap(), 1);
        }
    }
}
