//! Requests one at a time.

use super::{Buffers, Requests, FAILED, NO_MEMORY};
use std::io;
use std::os::unix::fs::FileExt;
use trapline_abi::block::{Kind, Request};
use trapline_workloads::{ticks, Reason};

/// Makes requests, as many as there are slots or time.
pub fn make(requests: &Requests<'_>, slots: &mut [Request]) -> Result<usize, Reason> {
    let mut buffers = Buffers::new(1, requests.transfer.bytes).ok_or(NO_MEMORY)?;
    for (index, slot) in slots.iter_mut().enumerate() {
        if !requests.goes_on(index) {
            return Ok(index);
        }
        *slot = single(requests, &mut buffers, index)?;
    }
    Ok(slots.len())
}

/// Makes one.
pub fn single(
    requests: &Requests<'_>,
    buffers: &mut Buffers,
    index: usize,
) -> Result<Request, Reason> {
    requests.before(buffers, 0, index);
    let at = requests.offset(index);
    let start = ticks();
    let done = transfer(requests, buffers, at);
    let end = ticks();
    done.map_err(|_| FAILED)?;
    requests.after(buffers, 0, index)?;
    Ok(Request { start, end })
}

#[inline(always)]
fn transfer(requests: &Requests<'_>, buffers: &mut Buffers, at: u64) -> io::Result<()> {
    let file = requests.file;
    match requests.transfer.kind {
        Kind::Read => file.read_exact_at(buffers.bytes_mut(0), at),
        Kind::Write => file.write_all_at(buffers.bytes(0), at),
        Kind::WriteSync => {
            file.write_all_at(buffers.bytes(0), at)?;
            file.sync_data()
        }
    }
}
