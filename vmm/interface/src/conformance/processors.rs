//! Two vCPUs on two threads: the first starts the second, interrupts it, and shoots down its TLB.
//!
//! Either may wait forever for the other. On the first failure, or after a time limit, both are kicked until
//! they end.

use super::guest::processors::{CODE, HANDLERS, MEMORY, REAL, REAL_CODE, WORDS};
use super::test_vm::{fill, memory, TestVm};
use super::{in_part, trace, Failure, Process, Trace, DELAY};
use crate::{Access, Controllers, Entry, Gpa, Hypervisor, Kicker, Vcpu, VcpuId, Vm, VmSpec};
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const PART: &str = super::PROCESSORS;
/// Name and expected trace of each vCPU.
const VCPUS: [(&str, &str); 2] = [
    ("processors, vCPU 0", trace::FIRST_VCPU),
    ("processors, vCPU 1", trace::SECOND_VCPU),
];

/// Time limit.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn run<H: Hypervisor>(hypervisor: &H) -> Result<Vec<Trace>, Failure>
where
    H::Vm: Sync,
{
    let spec = VmSpec {
        cpus: VCPUS.len() as u32,
        ..VmSpec::with(Controllers::Full)
    };
    let vm = hypervisor.create_vm(&spec).map_err(in_part(PART))?;
    load(&vm)?;
    let supervisor = Supervisor::default();
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for id in 0..VCPUS.len() {
            let (vm, supervisor, sender) = (&vm, &supervisor, sender.clone());
            scope.spawn(move || sender.send((id, supervisor.follow(vm, id))));
        }
        supervisor.gather(&results)
    })
}

fn load(vm: &impl Vm) -> Result<(), Failure> {
    let memory = memory(&Process, MEMORY, CODE, &HANDLERS)?;
    fill(&memory, REAL, &REAL_CODE.concat())?;
    for (at, value) in WORDS {
        fill(&memory, at, &value.to_le_bytes())?;
    }
    vm.attach(Gpa(0), Arc::new(memory), Access::ReadWrite)
        .map_err(in_part(PART))
}

/// State shared by both threads and the caller.
struct Supervisor {
    kickers: Mutex<Vec<Kicker>>,
    /// Both vCPUs exist.
    created: Barrier,
}

impl Default for Supervisor {
    fn default() -> Self {
        Self {
            kickers: Mutex::default(),
            created: Barrier::new(VCPUS.len()),
        }
    }
}

impl Supervisor {
    fn follow(&self, vm: &impl Vm, id: usize) -> Result<Trace, Failure> {
        let (part, expected) = VCPUS[id];
        let test = TestVm::with_vcpu(part, vm, &Process, VcpuId(id as u32));
        if let Ok(test) = &test {
            self.kickers().push(test.vcpu.kicker());
        }
        self.created.wait();
        let mut test = test?;
        test.follow(expected, |_, _| Ok(Entry::Resume))?;
        Ok(test.trace)
    }

    /// Returns the traces, or the first failure.
    fn gather(
        &self,
        results: &Receiver<(usize, Result<Trace, Failure>)>,
    ) -> Result<Vec<Trace>, Failure> {
        let mut traces = VCPUS.map(|_| None);
        let (mut failure, mut left) = (None, VCPUS.len());
        let mut deadline = Instant::now() + LIMIT;
        while left > 0 {
            let wait = deadline.saturating_duration_since(Instant::now());
            match results.recv_timeout(wait.max(DELAY)) {
                Ok((id, Ok(trace))) => traces[id] = Some(trace),
                Ok((_, Err(mismatch))) => {
                    failure.get_or_insert(mismatch);
                    deadline = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.kickers().iter().for_each(Kicker::kick);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            left -= 1;
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(traces.into_iter().flatten().collect()),
        }
    }

    fn kickers(&self) -> MutexGuard<'_, Vec<Kicker>> {
        self.kickers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
