//! The thread of one disk.

use super::engine::{self, Engine, Kind};
use super::{BadDisk, DiskFile, Wanted};
use crate::linux::Worker;
use crate::sandbox::Role;
use crate::virtio::Slot;
use std::sync::Arc;
use trapline_monitor::virtio::block::Status;
use trapline_monitor::virtio::Block;

/// The threads that serve `slot` with `file`; the first one is the disk's own.
///
/// # Errors
/// There is nobody to do the work.
pub fn worker(
    wanted: &Wanted,
    name: &str,
    file: DiskFile,
    slot: Arc<Slot<Block>>,
) -> Result<Vec<Worker>, BadDisk> {
    let (kind, mut engine, mut workers) = engine::start(wanted, name, file, slot.bell())?;
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

/// Waits, gives back what has landed, and takes what is asked for: with one interrupt for
/// all. True if there is more.
pub fn turn(slot: &Slot<Block>, engine: &mut dyn Engine, more: bool) -> bool {
    if engine.wait(more) {
        slot.counters.wake();
    }
    slot.with(|disk| engine.reap(&mut |ticket, status| disk.landed(ticket, status)));
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
