//! Many requests at a time where the kernel has no io_uring: as many threads, each of which
//! makes the next request that nobody has made.

use super::one::single;
use super::{Buffers, Requests, NO_MEMORY};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use trapline_abi::block::Request;
use trapline_workloads::Reason;

/// Makes requests, as many as there are slots or time.
pub fn make(requests: &Requests<'_>, slots: &mut [Request]) -> Result<usize, Reason> {
    let next = AtomicUsize::new(0);
    let worker = || work(requests, &next);
    let depth = requests.transfer.depth;
    let made = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..depth).map(|_| scope.spawn(worker)).collect();
        let told = workers.into_iter().map(|worker| match worker.join() {
            Ok(made) => made,
            Err(_) => Err("a thread that makes requests has panicked"),
        });
        told.collect::<Result<Vec<_>, _>>()
    })?;
    let mut made: Vec<Request> = made.into_iter().flatten().collect();
    made.sort_by_key(|request| request.start);
    slots[..made.len()].copy_from_slice(&made);
    Ok(made.len())
}

fn work(requests: &Requests<'_>, next: &AtomicUsize) -> Result<Vec<Request>, Reason> {
    let mut buffers = Buffers::new(1, requests.transfer.bytes).ok_or(NO_MEMORY)?;
    let mut made = Vec::new();
    // Whoever has taken an index makes its request, so that none is left out.
    while requests.has_time() {
        let index = next.fetch_add(1, Relaxed);
        if index >= requests.count {
            break;
        }
        made.push(single(requests, &mut buffers, index)?);
    }
    Ok(made)
}
