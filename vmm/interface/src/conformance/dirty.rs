//! Which pages a guest has written to. It touches all of them first: what it only reads for the
//! first time a kernel may take for written.

use super::{
    create, guest, guest::dirty::PAGES, guest::WINDOW, in_part, stand::Stand, trace, Failure, Trace,
};
use crate::{Access, Controllers, Entry, Error, Exit, Gpa, Hypervisor, IoAddr, Region, Vm, PAGE};
use std::sync::Arc;

pub(super) const PART: &str = "dirty tracking";

/// What the guest wrote to before it asks; the VMM's own write to page 2 is none of it.
const WRITTEN: [&[usize]; 3] = [&[1, 3, 4, 64, 69], &[], &[6]];
/// Before tracking ends.
const WRITTEN_LAST: &[usize] = &[1, 65, 67];

pub(super) fn run<H: Hypervisor>(hypervisor: &H) -> Result<Trace, Failure> {
    let vm = create(hypervisor, PART, Controllers::None)?;
    let mut stand = Stand::new(PART, &vm, guest::dirty::CODE, &[])?;
    let region = Arc::new(Region::new(PAGES * PAGE)?);
    let at = Gpa(WINDOW);
    stand.attach(at, &region, Access::ReadWrite)?;
    stand.track(at, true)?;
    let mut written = WRITTEN.into_iter();
    stand.follow(trace::DIRTY, |stand, exit| match exit {
        Exit::Read { .. } => Ok(Entry::Answer(0x5a)),
        Exit::Write {
            at: IoAddr::Port(0x604),
            ..
        } => {
            stand.dirty(at).map_err(in_part(PART))?;
            Ok(Entry::Resume)
        }
        Exit::Write {
            at: IoAddr::Port(0x605),
            ..
        } => {
            stand.written(written.next().unwrap_or_default())?;
            region.write(2 * PAGE as u64, &[1])?;
            Ok(Entry::Resume)
        }
        Exit::Write {
            at: IoAddr::Port(0x606),
            ..
        } => {
            stand.written(WRITTEN_LAST)?;
            stand.track(at, false)?;
            let refused = matches!(stand.dirty(at), Err(Error::NotTracked(_)));
            stand.check(refused, "memory that is not tracked has a list of writes")?;
            Ok(Entry::Resume)
        }
        Exit::Write {
            at: IoAddr::Port(0x607),
            ..
        } => {
            stand.track(at, true)?;
            Ok(Entry::Resume)
        }
        _ => Ok(Entry::Resume),
    })?;
    Ok(stand.trace)
}

impl<M: Vm> Stand<'_, M> {
    /// The guest has written to these pages, and to no others.
    fn written(&self, expected: &[usize]) -> Result<(), Failure> {
        let dirty = self.dirty(Gpa(WINDOW));
        let dirty = dirty.map_err(in_part(PART))?;
        let words = dirty.len() == PAGES.div_ceil(64);
        self.check(words, "there is not one bit for each page")?;
        let has = |page: &usize| dirty[page / 64] >> (page % 64) & 1 == 1;
        let found: Vec<_> = (0..dirty.len() * 64).filter(has).collect();
        let otherwise = format!("pages {found:?} were written to instead of {expected:?}");
        self.check(found == expected, &otherwise)
    }
}
