//! Files of the fake kernel, with a cache of whole pages and no read-ahead.

use super::Defect;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use trapline_abi::files::{File, PAGE};
use trapline_workloads::{CacheCounts, Files, Needed, Reason};

/// Size of the large file, in MiB.
const LARGE_MIB: u32 = 2;

/// Pages that are read or written without a defect.
const LATE: u64 = 100;

pub struct FakeFiles {
    defect: Defect,
    open: Vec<Option<File>>,
    cached: BTreeSet<(String, u64)>,
    counts: CacheCounts,
    emptied: u32,
    /// Changed pages of the one file that is written: their content, and whether it is on the disk.
    changed: BTreeMap<u64, (Vec<u8>, bool)>,
}

impl FakeFiles {
    pub fn new(defect: Defect) -> Self {
        Self {
            defect,
            open: Vec::new(),
            cached: BTreeSet::new(),
            counts: CacheCounts {
                fetched: 0,
                needed: Some(Needed::default()),
                written: Some(0),
            },
            emptied: 0,
            changed: BTreeMap::new(),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.open.iter().all(Option::is_none)
    }

    fn is_late(&self) -> bool {
        let needed = self.counts.needed.unwrap_or_default();
        needed.hits + needed.misses > LATE
    }

    fn add_written(&mut self, pages: u64) {
        *self.counts.written.get_or_insert(0) += pages;
    }

    fn need(&mut self, file: File, page: u64) {
        let Some(needed) = &mut self.counts.needed else {
            return;
        };
        let is_new = self.cached.insert((file.path().as_str().to_owned(), page));
        let total = needed.hits + needed.misses;
        if is_new || self.defect == Defect::ForgetCache && total > LATE {
            needed.misses += 1;
            self.counts.fetched += u64::from(self.defect != Defect::NeverCold);
        } else {
            needed.hits += 1;
        }
    }
}

impl Files for FakeFiles {
    fn open(&mut self, path: &CStr) -> Result<u32, Reason> {
        let wanted = path.to_str().map_err(|_| "not UTF-8")?;
        let file = File::all().find(|file| file.path().as_str() == wanted);
        self.open.push(Some(file.ok_or("no such file")?));
        Ok(self.open.len() as u32 - 1)
    }

    fn read(&mut self, file: u32, offset: u64, buffer: &mut [u8]) -> Result<usize, Reason> {
        let file = self.open[file as usize].ok_or("a closed file")?;
        let left = file.class.bytes(LARGE_MIB) - offset;
        let count = buffer.len().min(left as usize);
        file.fill(offset, &mut buffer[..count]);
        for page in offset / PAGE as u64..(offset + count as u64).div_ceil(PAGE as u64) {
            if let Some((content, _)) = self.changed.get(&page) {
                let start = (page * PAGE as u64 - offset) as usize;
                buffer[start..start + PAGE].copy_from_slice(content);
            }
            self.need(file, page);
        }
        match self.defect {
            Defect::WrongContent if self.is_late() => {
                buffer[0] ^= 1;
                Ok(count)
            }
            Defect::ShortRead => Ok(count - 1),
            _ => Ok(count),
        }
    }

    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Reason> {
        let file = self.open[file as usize].ok_or("a closed file")?;
        for (page, content) in (offset / PAGE as u64..).zip(bytes.chunks(PAGE)) {
            self.need(file, page);
            if self.defect == Defect::LoseWrite && self.is_late() {
                continue;
            }
            let is_written = self.defect == Defect::WriteThrough;
            self.changed.insert(page, (content.to_vec(), is_written));
            self.add_written(u64::from(is_written));
        }
        Ok(())
    }

    fn sync(&mut self, _: u32) -> Result<(), Reason> {
        if self.defect == Defect::IgnoreSync && self.is_late() {
            return Ok(());
        }
        let changed = self.changed.values_mut();
        let dirty: Vec<_> = changed.filter(|(_, is_written)| !is_written).collect();
        let count = dirty.len() as u64;
        dirty
            .into_iter()
            .for_each(|(_, is_written)| *is_written = true);
        self.add_written(count);
        Ok(())
    }

    fn close(&mut self, file: u32) {
        // Each operation begins with files as they were.
        self.changed.clear();
        let closed = self.open[file as usize].take();
        assert!(closed.is_some(), "closed twice");
    }

    fn empty_cache(&mut self, file: u32) -> Result<(), Reason> {
        let file = self.open[file as usize].ok_or("a closed file")?;
        self.emptied += 1;
        if self.defect != Defect::KeepCache || self.emptied == 1 {
            let path = file.path();
            self.cached.retain(|(name, _)| name != path.as_str());
            // Without a sync, changes are lost.
            self.changed.retain(|_, (_, is_written)| *is_written);
        }
        Ok(())
    }

    fn cache_counts(&mut self) -> Result<CacheCounts, Reason> {
        Ok(self.counts)
    }
}
