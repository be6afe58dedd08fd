//! Processes of the fake kernel.

use super::{Defect, Fake};
use std::ptr::NonNull;
use trapline_abi::Op;
use trapline_workloads::system::MAPPED_PAGES;
use trapline_workloads::{script, Block, Processes, Reason};

/// Returns the sum of the first words of all pages of a block.
fn sum(block: &Block) -> u64 {
    let words = (0..block.length).step_by(4096).map(|page| {
        let word = block.start.as_ptr().wrapping_add(page).cast::<u64>();
        // SAFETY: the first word of a page of a block that `allocate` gave and that is
        // not released yet.
        unsafe { word.read_volatile() }
    });
    words.sum()
}

impl Processes for Fake {
    fn prepare(&mut self, _: Op) -> Result<(), Reason> {
        self.begun = true;
        Ok(())
    }
    fn finish(&mut self) {
        self.begun = false;
    }
    fn fork(&mut self, status: u8) -> Option<u8> {
        Some(status ^ u8::from(self.defect == Defect::WrongStatus))
    }
    fn exec(&mut self, status: u8) -> Option<u8> {
        self.fork(status)
    }
    fn step(&mut self, number: u64, status: u8) -> Option<u64> {
        (self.fork(status)? == status).then_some(())?;
        match self.defect {
            Defect::WrongAnswer => Some(number),
            _ => Some(script::sum(number)),
        }
    }
    fn pipe(&mut self, byte: u8) -> Option<u8> {
        (self.defect != Defect::LosePipe).then_some(byte)
    }
    fn ping(&mut self, byte: u8) -> Option<u8> {
        self.answers += u64::from(self.defect != Defect::NoSwitch);
        match self.defect {
            Defect::WrongAnswer => Some(byte),
            _ => Some(!byte),
        }
    }
    fn switch_count(&mut self) -> u64 {
        self.answers
    }
    fn map(&mut self) -> Option<Block> {
        let words_of_a_page = 4096 / 8;
        let right = self.defect != Defect::WrongPages;
        self.mapped = vec![0; MAPPED_PAGES as usize * words_of_a_page];
        for (page, number) in self.mapped.chunks_mut(words_of_a_page).zip(0..) {
            page[0] = number * u64::from(right);
        }
        Some(Block {
            start: NonNull::new(self.mapped.as_mut_ptr().cast())?,
            length: self.mapped.len() * 8,
        })
    }
    unsafe fn unmap(&mut self, _: Block) -> bool {
        self.defect != Defect::KeepMapping
    }
    fn protect(&mut self, writable: bool) -> bool {
        self.writable = writable || self.defect == Defect::IgnoreProtection;
        true
    }
    fn is_writable(&mut self) -> Option<bool> {
        Some(self.writable)
    }
    fn fork_with_copy(&mut self, block: Block) -> Result<(), Reason> {
        self.shared = Some((block, sum(&block)));
        Ok(())
    }
    fn copy_sum(&mut self) -> Result<u64, Reason> {
        let (block, then) = self.shared.take().ok_or("nothing was shared")?;
        match self.defect {
            Defect::ShareForEver => Ok(sum(&block)),
            _ => Ok(then),
        }
    }
}
