//! Concurrent requests by threads, for kernels without io_uring. Each thread performs the next request
//! that no other thread has taken.

use super::one::single;
use super::{Buffers, Requests, NO_MEMORY};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use trapline_abi::block::DiskRequest;
use trapline_workloads::Reason;

/// Performs one request per slot, or as many as time allows. Returns their number.
pub fn run(requests: &Requests<'_>, slots: &mut [DiskRequest]) -> Result<usize, Reason> {
    let next = AtomicUsize::new(0);
    let worker = || work(requests, &next);
    let depth = requests.transfer.depth;
    let made = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..depth).map(|_| scope.spawn(worker)).collect();
        let results = workers.into_iter().map(|worker| match worker.join() {
            Ok(made) => made,
            Err(_) => Err("a thread for requests panicked"),
        });
        results.collect::<Result<Vec<_>, _>>()
    })?;
    let mut made: Vec<DiskRequest> = made.into_iter().flatten().collect();
    made.sort_by_key(|request| request.start);
    slots[..made.len()].copy_from_slice(&made);
    Ok(made.len())
}

fn work(requests: &Requests<'_>, next: &AtomicUsize) -> Result<Vec<DiskRequest>, Reason> {
    let mut buffers = Buffers::new(1, requests.transfer.bytes).ok_or(NO_MEMORY)?;
    let mut made = Vec::new();
    // The thread that takes an index performs its request.
    while requests.has_time() {
        let index = next.fetch_add(1, Relaxed);
        if index >= requests.count {
            break;
        }
        made.push(single(requests, &mut buffers, index)?);
    }
    Ok(made)
}
