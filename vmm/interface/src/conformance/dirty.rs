//! Dirty tracking. The guest touches all pages first, because a hypervisor may mark a page at its first
//! read.

use super::{
    create, guest,
    guest::dirty::PAGES,
    guest::WINDOW,
    in_part,
    test_vm::{fill, TestVm},
    trace, Failure, Host, Trace,
};
use crate::{Access, Controllers, Entry, Error, Exit, Gpa, Hypervisor, IoAddr, Vm, PAGE};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub(super) const PART: &str = "dirty tracking";

/// Pages written before each query. The VMM's own write to page 2 is not logged.
const WRITTEN: [&[usize]; 3] = [&[1, 3, 4, 64, 69], &[], &[6]];
/// Pages written before tracking stops.
const WRITTEN_LAST: &[usize] = &[1, 65, 67];

pub(super) fn run<H: Hypervisor>(hypervisor: &H, host: &dyn Host) -> Result<Trace, Failure> {
    let vm = create(hypervisor, PART, Controllers::None)?;
    let mut test = TestVm::new(PART, &vm, host, guest::dirty::CODE, &[])?;
    let region = Arc::new(test.memory(PAGES * PAGE)?);
    let at = Gpa(WINDOW);
    test.attach(at, &region, Access::ReadWrite)?;
    test.track_dirty(at, true)?;
    let mut written = WRITTEN.into_iter();
    test.follow(trace::DIRTY, |test, exit| match exit {
        Exit::Read { .. } => Ok(Entry::Answer(0x5a)),
        Exit::Write {
            at: IoAddr::Port(0x604),
            ..
        } => {
            test.dirty_log(at).map_err(in_part(PART))?;
            Ok(Entry::Resume)
        }
        Exit::Write {
            at: IoAddr::Port(0x605),
            ..
        } => {
            test.written(written.next().unwrap_or_default())?;
            fill(&region, 2 * PAGE as u64, &[1])?;
            Ok(Entry::Resume)
        }
        Exit::Write {
            at: IoAddr::Port(0x606),
            ..
        } => {
            test.written(WRITTEN_LAST)?;
            test.track_dirty(at, false)?;
            let refused = matches!(test.dirty_log(at), Err(Error::NotTracked(_)));
            test.check(refused, "memory that is not tracked has a list of writes")?;
            Ok(Entry::Resume)
        }
        Exit::Write {
            at: IoAddr::Port(0x607),
            ..
        } => {
            test.track_dirty(at, true)?;
            Ok(Entry::Resume)
        }
        _ => Ok(Entry::Resume),
    })?;
    Ok(test.trace)
}

impl<M: Vm> TestVm<'_, M> {
    /// Checks that exactly these pages are dirty.
    fn written(&self, expected: &[usize]) -> Result<(), Failure> {
        let dirty = self.dirty_log(Gpa(WINDOW));
        let dirty = dirty.map_err(in_part(PART))?;
        let words = dirty.len() == PAGES.div_ceil(64);
        self.check(words, "there is not one bit for each page")?;
        let has = |page: &usize| dirty[page / 64] >> (page % 64) & 1 == 1;
        let found: Vec<_> = (0..dirty.len() * 64).filter(has).collect();
        let otherwise = format!("pages {found:?} were written to instead of {expected:?}");
        self.check(found == expected, &otherwise)
    }
}
