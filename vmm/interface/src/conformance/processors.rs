//! Two vCPUs, each run by a thread of its own: the first starts the second, interrupts it, and
//! has it forget a mapping.
//!
//! Either can wait for the other for ever, so somebody watches: when one strays or time is up,
//! both are kicked until they have ended, and that shows in their traces.

use super::guest::processors::{CODE, HANDLERS, MEMORY, REAL, REAL_CODE, WORDS};
use super::stand::{fill, memory, Stand};
use super::{in_part, trace, Failure, Trace, SPELL};
use crate::{Access, Controllers, Entry, Gpa, Hypervisor, Kicker, Vcpu, VcpuId, Vm, VmSpec};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const PART: &str = "processors";
/// Each vCPU, and what must be seen of it.
const VCPUS: [(&str, &str); 2] = [
    ("processors, vCPU 0", trace::FIRST_VCPU),
    ("processors, vCPU 1", trace::SECOND_VCPU),
];

/// After this they are stuck.
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
    let watched = Watched::default();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for id in 0..VCPUS.len() {
            let (vm, watched, tell) = (&vm, &watched, tell.clone());
            scope.spawn(move || tell.send((id, watched.follow(vm, id))));
        }
        watched.gather(&told)
    })
}

fn load(vm: &impl Vm) -> Result<(), Failure> {
    let memory = memory(MEMORY, CODE, &HANDLERS)?;
    fill(&memory, REAL, &REAL_CODE.concat())?;
    for (at, value) in WORDS {
        fill(&memory, at, &value.to_le_bytes())?;
    }
    vm.attach(Gpa(0), Arc::new(memory), Access::ReadWrite)
        .map_err(in_part(PART))
}

/// What both threads and their watchman share.
struct Watched {
    kickers: Mutex<Vec<Kicker>>,
    /// Nobody begins before both vCPUs exist.
    created: Barrier,
}

impl Default for Watched {
    fn default() -> Self {
        Self {
            kickers: Mutex::default(),
            created: Barrier::new(VCPUS.len()),
        }
    }
}

impl Watched {
    fn follow(&self, vm: &impl Vm, id: usize) -> Result<Trace, Failure> {
        let (part, expected) = VCPUS[id];
        let stand = Stand::of_vcpu(part, vm, VcpuId(id as u32));
        if let Ok(stand) = &stand {
            self.kickers().push(stand.vcpu.kicker());
        }
        self.created.wait();
        let mut stand = stand?;
        stand.follow(expected, |_, _| Ok(Entry::Resume))?;
        Ok(stand.trace)
    }

    /// The traces, or who failed first.
    fn gather(
        &self,
        told: &Receiver<(usize, Result<Trace, Failure>)>,
    ) -> Result<Vec<Trace>, Failure> {
        let mut traces = VCPUS.map(|_| None);
        let (mut failure, mut left) = (None, VCPUS.len());
        let mut deadline = Instant::now() + LIMIT;
        while left > 0 {
            let wait = deadline.saturating_duration_since(Instant::now());
            match told.recv_timeout(wait.max(SPELL)) {
                Ok((id, Ok(trace))) => traces[id] = Some(trace),
                Ok((_, Err(strayed))) => {
                    failure.get_or_insert(strayed);
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
