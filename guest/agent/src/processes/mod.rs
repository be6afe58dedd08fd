//! [`Processes`] over Linux: children, the program that one of them executes, pipes and
//! mappings, by the system calls that do these things and no library around them.
//!
//! While something is measured all of the family runs on one CPU, as it does in a guest
//! with one. What is made for an operation is gone when it ends.

mod child;
mod program;

use crate::cpu::{affinity, pin_to_current_cpu, set_affinity};
use child::{exit, fork, get, put, wait, Child};
use program::Executable;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use trapline_abi::platform::PAGE;
use trapline_abi::Op;
use trapline_workloads::system::MAPPED_PAGES;
use trapline_workloads::{Block, Processes, Reason};

/// Of [`Family::map`], in bytes.
const MAPPED: usize = (MAPPED_PAGES * PAGE) as usize;

/// This process with what it has made for an operation.
#[derive(Default)]
pub struct Family {
    /// Where it may run when nothing is measured.
    cpus: Option<libc::cpu_set_t>,
    executable: Option<Executable>,
    pipe: Option<(File, File)>,
    /// The partner that answers, or who holds pages.
    child: Option<Child>,
    pages: Option<File>,
}

impl Family {
    fn make(&mut self, op: Op) -> Result<(), Reason> {
        const NO_CHILD: Reason = "no child can be started";
        match op {
            Op::Exec => {
                self.executable = Some(Executable::new()?);
                let one = self.exec(1);
                one.filter(|status| *status == 1).ok_or(program::REFUSED)?;
            }
            Op::ContextSwitch => self.child = Some(Child::start(answer).ok_or(NO_CHILD)?),
            Op::Pipe => self.pipe = Some(trapline_spawn::pipe().map_err(|_| "there is no pipe")?),
            Op::Mmap => self.pages = Some(numbered_pages().ok_or("no file in memory can be made")?),
            _ => {}
        }
        Ok(())
    }
}

impl Processes for Family {
    fn begin(&mut self, op: Op) -> Result<(), Reason> {
        self.cpus = affinity();
        pin_to_current_cpu().ok_or("processes cannot be bound to one CPU")?;
        self.make(op).inspect_err(|_| self.end())
    }

    fn end(&mut self) {
        let Self { cpus, .. } = std::mem::take(self);
        if let Some(cpus) = cpus {
            set_affinity(&cpus);
        }
    }

    #[inline(always)]
    fn fork(&mut self, status: u8) -> Option<u8> {
        // SAFETY: the child only ends.
        match unsafe { fork() }? {
            0 => exit(status),
            child => wait(child),
        }
    }

    #[inline(always)]
    fn exec(&mut self, status: u8) -> Option<u8> {
        let executable = self.executable.as_ref()?;
        // SAFETY: the child only executes a program, or ends.
        match unsafe { fork() }? {
            0 => {
                executable.execute(status);
                exit(!status)
            }
            child => wait(child),
        }
    }

    #[inline(always)]
    fn pipe(&mut self, byte: u8) -> Option<u8> {
        let (from, to) = self.pipe.as_ref()?;
        put(to, byte)?;
        get(from)
    }

    #[inline(always)]
    fn answer(&mut self, byte: u8) -> Option<u8> {
        self.child.as_ref()?.ask(byte)
    }

    fn switches(&mut self) -> u64 {
        // SAFETY: an all-zero rusage is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: it is ours to be written to.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        // Who wakes its partner may have to give way to it at once.
        (usage.ru_nvcsw + usage.ru_nivcsw).max(0) as u64
    }

    #[inline(always)]
    fn map(&mut self) -> Option<Block> {
        let pages = self.pages.as_ref()?.as_raw_fd();
        let kind = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), MAPPED, libc::PROT_READ, kind, pages, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        Some(Block {
            start: NonNull::new(start.cast())?,
            length: MAPPED,
        })
    }

    #[inline(always)]
    unsafe fn unmap(&mut self, mapped: Block) -> bool {
        // SAFETY: the caller says that it is a mapping made by `map`, still mapped and no
        // longer used.
        unsafe { libc::munmap(mapped.start.as_ptr().cast(), mapped.length) == 0 }
    }

    fn share(&mut self, block: Block) -> Result<(), Reason> {
        let child = Child::start(move |from, to| hold(&block, from, to));
        let child = child.ok_or("no child can be started")?;
        child.hear().ok_or("the child does not speak")?;
        // On this CPU it goes on now, until it waits.
        // SAFETY: takes no arguments.
        unsafe { libc::sched_yield() };
        self.child = Some(child);
        Ok(())
    }

    fn shared(&mut self) -> Result<u64, Reason> {
        let child = self.child.take().ok_or("there is no child")?;
        let bytes: Option<Vec<u8>> = (0..size_of::<u64>() as u8)
            .map(|at| child.ask(at))
            .collect();
        let sum = bytes.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        sum.ok_or("the child did not tell what its pages hold")
    }
}

/// Answers each byte with its complement.
fn answer(from: &File, to: &File) -> Option<()> {
    loop {
        put(to, !get(from)?)?;
    }
}

/// Says that it is there. Asked for a byte by its number, tells that of the sum of the
/// first words of all pages of `block`.
fn hold(block: &Block, from: &File, to: &File) -> Option<()> {
    put(to, 0)?;
    let mut at = get(from)?;
    let mut sum = 0_u64;
    for page in (0..block.length).step_by(PAGE as usize) {
        let word = block.start.as_ptr().wrapping_add(page).cast::<u64>();
        // SAFETY: `word` is the first of a page of the block, of which this process has
        // a copy that nobody else knows.
        sum = sum.wrapping_add(unsafe { word.read_volatile() });
    }
    loop {
        put(to, *sum.to_le_bytes().get(usize::from(at))?)?;
        at = get(from)?;
    }
}

/// A file in memory, each of whose pages begins with its number.
fn numbered_pages() -> Option<File> {
    let file = program::in_memory(c"trapline-pages", 0)?;
    file.set_len(MAPPED as u64).ok()?;
    for page in 0..MAPPED_PAGES {
        file.write_all_at(&page.to_le_bytes(), page * PAGE).ok()?;
    }
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The family, made ready for `op`.
    fn family(op: Op) -> Family {
        let mut family = Family::default();
        family.begin(op).unwrap();
        family
    }

    #[test]
    fn children_end_with_the_status_that_they_are_told() {
        for status in [0, 1, 255] {
            assert_eq!(family(Op::Fork).fork(status), Some(status));
            assert_eq!(family(Op::Exec).exec(status), Some(status));
        }
        assert_eq!(Family::default().exec(1), None, "nothing was made ready");
    }

    #[test]
    fn a_partner_answers_and_each_answer_is_a_switch() {
        let mut family = family(Op::ContextSwitch);
        let before = family.switches();
        for byte in 0..100 {
            assert_eq!(family.answer(byte), Some(!byte));
        }
        assert!(family.switches() >= before + 100);
        family.end();
        assert_eq!(family.answer(1), None);
    }

    #[test]
    fn a_pipe_gives_what_was_written() {
        assert_eq!(family(Op::Pipe).pipe(7), Some(7));
    }

    #[test]
    fn mapped_pages_have_their_numbers() {
        let mut family = family(Op::Mmap);
        let mapped = family.map().unwrap();
        let last = mapped.start.as_ptr().wrapping_add(MAPPED - PAGE as usize);
        // SAFETY: the last page of a mapping that is there.
        assert_eq!(unsafe { *last.cast::<u64>() }, MAPPED_PAGES - 1);
        // SAFETY: not used any more.
        assert!(unsafe { family.unmap(mapped) });
    }

    #[test]
    fn a_child_keeps_what_its_parent_changes() {
        let mut family = family(Op::PageFaultCow);
        let mut words = vec![3_u64; 2 * PAGE as usize / size_of::<u64>()];
        let block = Block {
            start: NonNull::new(words.as_mut_ptr().cast()).unwrap(),
            length: 2 * PAGE as usize,
        };
        family.share(block).unwrap();
        words.fill(4);
        assert_eq!(family.shared(), Ok(6));
        assert!(family.shared().is_err(), "it is gone");
    }
}
