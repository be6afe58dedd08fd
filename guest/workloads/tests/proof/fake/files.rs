//! Files of the fake kernel, with a cache of whole pages and no read-ahead.

use super::Defect;
use std::collections::BTreeSet;
use std::ffi::CStr;
use trapline_abi::files::{File, PAGE};
use trapline_workloads::{CacheCounts, Files, Needed, Reason};

/// Size of the large file, in MiB.
const LARGE_MIB: u32 = 2;

/// Pages that are read without a defect.
const LATE: u64 = 100;

pub struct FakeFiles {
    defect: Defect,
    open: Vec<Option<File>>,
    cached: BTreeSet<(String, u64)>,
    counts: CacheCounts,
    emptied: u32,
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
            },
            emptied: 0,
        }
    }

    pub fn is_closed(&self) -> bool {
        self.open.iter().all(Option::is_none)
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
            self.need(file, page);
        }
        match (self.defect, self.counts.needed) {
            (Defect::WrongContent, Some(needed)) if needed.hits + needed.misses > LATE => {
                buffer[0] ^= 1;
                Ok(count)
            }
            (Defect::ShortRead, _) => Ok(count - 1),
            _ => Ok(count),
        }
    }

    fn close(&mut self, file: u32) {
        let closed = self.open[file as usize].take();
        assert!(closed.is_some(), "closed twice");
    }

    fn empty_cache(&mut self, file: u32) -> Result<(), Reason> {
        let file = self.open[file as usize].ok_or("a closed file")?;
        self.emptied += 1;
        if self.defect != Defect::KeepCache || self.emptied == 1 {
            let path = file.path();
            self.cached.retain(|(name, _)| name != path.as_str());
        }
        Ok(())
    }

    fn cache_counts(&mut self) -> Result<CacheCounts, Reason> {
        Ok(self.counts)
    }
}
