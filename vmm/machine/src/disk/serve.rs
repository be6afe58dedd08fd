//! The thread of one disk.

use super::engine::{Engine, Kind};
use super::start;
use super::{failure, DiskConfig, DiskFile};
use crate::sandbox::Role;
use crate::threads::Worker;
use crate::virtio::Slot;
use crate::Failure;
use std::sync::Arc;
use trapline_monitor::virtio::block::Status;
use trapline_monitor::virtio::Block;

/// Returns the threads that serve `slot` with `file`; the first is the disk's own.
///
/// # Errors
/// No engine is available.
pub fn worker(
    wanted: &DiskConfig,
    name: &str,
    file: DiskFile,
    slot: Arc<Slot<Block>>,
) -> Result<Vec<Worker>, Failure> {
    let started = start::start(wanted, name, file, slot.bell());
    let (kind, mut engine, mut workers) = started.map_err(failure(wanted))?;
    let own = Worker {
        name: name.to_owned(),
        role: match kind {
            Kind::Uring => Role::DiskRing,
            Kind::Pool => Role::DiskPool,
        },
        work: Box::new(move || {
            let mut more = false;
            loop {
                more = turn(&slot, engine.as_mut(), more);
            }
        }),
    };
    workers.insert(0, own);
    Ok(workers)
}

/// Waits, completes finished requests, and submits new ones, with one interrupt for all. Returns true if more
/// work is pending.
pub fn turn(slot: &Slot<Block>, engine: &mut dyn Engine, more: bool) -> bool {
    if engine.wait(more) {
        slot.counters.wake();
    }
    slot.with(|disk| engine.reap(&mut |tag, status| disk.landed(tag, status)));
    slot.serve(|disk, rings, memory| {
        disk.serve(
            rings,
            memory,
            &mut |order| engine.submit(&order, memory),
            &mut |ended| {
                slot.counters.request(ended.read, ended.written);
                if ended.status == Status::Failed {
                    slot.counters.fail();
                }
            },
        )
    })
}
