//! Requests one at a time.

use super::{Buffers, Requests, FAILED, NO_MEMORY};
use std::io;
use std::os::unix::fs::FileExt;
use trapline_abi::block::{Access, DiskRequest};
use trapline_workloads::block::timed;
use trapline_workloads::{ticks, Reason};

/// Performs one request per slot, or as many as time allows. Returns their number.
pub fn run(requests: &Requests<'_>, slots: &mut [DiskRequest]) -> Result<usize, Reason> {
    let mut buffers = Buffers::new(1, requests.transfer.bytes).ok_or(NO_MEMORY)?;
    for (index, slot) in slots.iter_mut().enumerate() {
        if !requests.continues_at(index) {
            return Ok(index);
        }
        requests.before(&mut buffers, 0, index);
        let at = requests.offset(index);
        let (times, done) = timed(|| transfer(requests, &mut buffers, at));
        done.map_err(|_| FAILED)?;
        requests.after(&buffers, 0, index)?;
        *slot = times;
    }
    Ok(slots.len())
}

/// Performs one of several concurrent requests.
pub fn single(
    requests: &Requests<'_>,
    buffers: &mut Buffers,
    index: usize,
) -> Result<DiskRequest, Reason> {
    requests.before(buffers, 0, index);
    let at = requests.offset(index);
    let start = ticks();
    let done = transfer(requests, buffers, at);
    let end = ticks();
    done.map_err(|_| FAILED)?;
    requests.after(buffers, 0, index)?;
    Ok(DiskRequest { start, end })
}

#[inline(always)]
fn transfer(requests: &Requests<'_>, buffers: &mut Buffers, at: u64) -> io::Result<()> {
    let file = requests.file;
    match requests.transfer.access {
        Access::Read => file.read_exact_at(buffers.bytes_mut(0), at),
        Access::Write => file.write_all_at(buffers.bytes(0), at),
        Access::WriteSync => {
            file.write_all_at(buffers.bytes(0), at)?;
            file.sync_data()
        }
    }
}
