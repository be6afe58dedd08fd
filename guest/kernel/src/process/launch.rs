//! Start and end of process 1.

use super::address_space::{AddressSpace, STACK};
use super::calls::wait;
use super::isolated::Isolated;
use super::resources::{allocate_resources, resources};
use super::ring::Ring;
use super::ring0::Ring0;
use super::ring3::Ring3;
use super::switch::{start, table, UserFrame};
use super::{hostile, pool, user, Entry};
use crate::cpu::{ring, Global};
use crate::memory;
use trapline_abi::job::Isolation;
use trapline_abi::Job;
use trapline_workloads::Reason;

const NO_MEMORY: Reason = "not enough memory for processes";
const NO_ISOLATION: Reason =
    "the image's kernel is at ring 3 here, where page tables do not isolate it from programs";

/// Measures workload `system` in process 1.
///
/// # Errors
/// The reason why there are no processes.
pub fn measure(job: &Job, has_ports: bool) -> Result<(), Reason> {
    let status = match (ring(), job.isolation) {
        (0, Isolation::None) => run::<Ring0>(user::measure::<Ring0>, job, has_ports),
        (0, Isolation::Kpti) => run::<Isolated>(user::measure::<Ring0>, job, has_ports),
        (_, Isolation::None) => run::<Ring3>(user::measure::<Ring3>, job, has_ports),
        (_, Isolation::Kpti) => Err(NO_ISOLATION),
    }?;
    assert!(
        status == 0,
        "the measured process ended with status {status}"
    );
    Ok(())
}

/// Runs programs that misbehave, and panics unless each is ended or refused as expected.
pub fn contain_programs(job: &Job) {
    let status = match (ring(), job.isolation) {
        (0, Isolation::None) => run::<Ring0>(hostile::run::<Ring0>, job, false),
        (0, Isolation::Kpti) => run::<Isolated>(hostile::run::<Ring0>, job, false),
        _ => run::<Ring3>(hostile::run::<Ring3>, job, job.ports),
    };
    match status {
        Ok(0) => {}
        Ok(number) => panic!("misbehaviour {number} of a program is not contained"),
        Err(reason) => panic!("{reason}"),
    }
}

/// Runs `entry` as process 1, with a copy of `job`. Returns its status when it ends. Other processes
/// end with it.
fn run<R: Ring>(entry: Entry, job: &Job, has_ports: bool) -> Result<u64, Reason> {
    let first = frames().ok_or(NO_MEMORY)?;
    table().clear();
    // SAFETY: the run is used for processes only, which do not exist yet, and RAM is identity-mapped.
    unsafe { table().pool.open(first) };
    R::open(has_ports)?;
    let child = allocate_resources::<R>(has_ports).and_then(|()| add_first::<R>(entry, job));
    // A wait fails if all processes wait.
    let status = child.map(|child| loop {
        if let Some(status) = wait::<R>(child) {
            break status;
        }
    });
    R::close();
    table().clear();
    status.ok_or(NO_MEMORY)
}

/// Returns the frames of processes, allocated at the first call and never freed.
fn frames() -> Option<u64> {
    static FIRST: Global<Option<u64>> = Global::new(None);
    // SAFETY: no other reference.
    let first = unsafe { FIRST.get() };
    *first = first.or_else(|| memory::take_last_frames(pool::BYTES));
    *first
}

/// Adds process 1, with `job` at the end of its stack.
fn add_first<R: Ring>(entry: Entry, job: &Job) -> Option<usize> {
    let table = table();
    let mut space = AddressSpace::new(resources().kernel_part, &mut table.pool)?;
    const { assert!(size_of::<Job>() <= 1024 && align_of::<Job>() <= 1024) };
    let at = STACK.end - 1024;
    let (copy, _) = space.translate(at, true, table.zeros, &mut table.pool)?;
    // SAFETY: the end of the stack has room for a job, by the assertion above.
    unsafe { (copy as *mut Job).write(*job) };
    let child = table.add(space).ok()?;
    start::<R>(child, &UserFrame::first::<R>(entry, at));
    Some(child)
}
