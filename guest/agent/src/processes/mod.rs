//! [`Processes`] on Linux, by direct system calls.
//!
//! During an operation this process and its children run on one CPU, as in a guest with one CPU. The
//! resources of an operation are released at its end.

mod child;
pub mod program;
mod step;

use crate::arch::fork::fork;
use crate::cpu::{affinity, pin_to_current_cpu, set_affinity};
use child::{exit, get, put, wait, Child};
use program::Executable;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use step::Step;
use trapline_abi::platform::PAGE;
use trapline_abi::Op;
use trapline_workloads::system::MAPPED_PAGES;
use trapline_workloads::{Block, Processes, Reason};

/// Length of a mapping, in bytes.
const MAPPED: usize = (MAPPED_PAGES * PAGE) as usize;

/// Resources of an operation.
#[derive(Default)]
pub struct ProcessFamily {
    /// Affinity to restore.
    cpus: Option<libc::cpu_set_t>,
    executable: Option<Executable>,
    step: Option<Step>,
    pipe: Option<(File, File)>,
    /// Child that answers bytes, or shares pages.
    child: Option<Child>,
    pages: Option<File>,
    /// Page whose protection changes.
    page: Option<Block>,
}

impl ProcessFamily {
    fn make(&mut self, op: Op) -> Result<(), Reason> {
        const NO_CHILD: Reason = "no child can be started";
        const NO_PIPE: Reason = "a pipe cannot be created";
        match op {
            Op::Exec => {
                self.executable = Some(Executable::new(program::exit())?);
                let one = self.exec(1);
                one.filter(|status| *status == 1).ok_or(program::REFUSED)?;
            }
            Op::Make => self.step = Some(Step::new()?),
            Op::ContextSwitch => self.child = Some(Child::start(complement_bytes).ok_or(NO_CHILD)?),
            Op::Pipe => self.pipe = Some(trapline_spawn::pipe().map_err(|_| NO_PIPE)?),
            Op::PageTableUpdate => {
                self.pipe = Some(trapline_spawn::pipe().map_err(|_| NO_PIPE)?);
                self.page = Some(touched_page().ok_or("a page cannot be mapped")?);
            }
            Op::Mmap => {
                self.pages = Some(numbered_pages().ok_or("a memory file cannot be created")?)
            }
            _ => {}
        }
        Ok(())
    }
}

impl Processes for ProcessFamily {
    fn prepare(&mut self, op: Op) -> Result<(), Reason> {
        self.cpus = affinity();
        pin_to_current_cpu().ok_or("processes cannot be pinned to one CPU")?;
        self.make(op).inspect_err(|_| self.finish())
    }

    fn finish(&mut self) {
        let Self { cpus, page, .. } = std::mem::take(self);
        if let Some(cpus) = cpus {
            set_affinity(&cpus);
        }
        if let Some(page) = page {
            // SAFETY: mapped by `touched_page`, and no longer used.
            unsafe { libc::munmap(page.start.as_ptr().cast(), page.length) };
        }
    }

    #[inline(always)]
    fn fork(&mut self, status: u8) -> Option<u8> {
        // SAFETY: the child only exits.
        match unsafe { fork() }? {
            0 => exit(status),
            child => wait(child),
        }
    }

    #[inline(always)]
    fn exec(&mut self, status: u8) -> Option<u8> {
        let executable = self.executable.as_ref()?;
        // SAFETY: the child only executes a program, or exits.
        match unsafe { fork() }? {
            0 => {
                executable.execute(status);
                exit(!status)
            }
            child => wait(child),
        }
    }

    #[inline(always)]
    fn step(&mut self, number: u64, status: u8) -> Option<u64> {
        self.step.as_ref()?.run(number, status)
    }

    #[inline(always)]
    fn pipe(&mut self, byte: u8) -> Option<u8> {
        let (from, to) = self.pipe.as_ref()?;
        put(to, byte)?;
        get(from)
    }

    #[inline(always)]
    fn ping(&mut self, byte: u8) -> Option<u8> {
        self.child.as_ref()?.ask(byte)
    }

    fn switch_count(&mut self) -> u64 {
        // SAFETY: an all-zero rusage is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: a local variable.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        // Waking the other process may preempt this one at once.
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
        // SAFETY: by contract a mapping of `map`, still mapped and no longer used.
        unsafe { libc::munmap(mapped.start.as_ptr().cast(), mapped.length) == 0 }
    }

    #[inline(always)]
    fn protect(&mut self, writable: bool) -> bool {
        let Some(page) = self.page else {
            return false;
        };
        let access = if writable {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        // SAFETY: the page is mapped until `finish`, and only the kernel writes to it.
        unsafe { libc::mprotect(page.start.as_ptr().cast(), page.length, access) == 0 }
    }

    fn is_writable(&mut self) -> Option<bool> {
        let (page, (from, to)) = (self.page?, self.pipe.as_ref()?);
        put(to, 1)?;
        // SAFETY: the page is mapped until `finish`. If it is read-only, the kernel returns EFAULT.
        let read = unsafe { libc::read(from.as_raw_fd(), page.start.as_ptr().cast(), 1) };
        if read != 1 {
            get(from)?;
        }
        Some(read == 1)
    }

    fn fork_with_copy(&mut self, block: Block) -> Result<(), Reason> {
        let child = Child::start(move |from, to| send_sum(&block, from, to));
        let child = child.ok_or("no child can be started")?;
        child.receive().ok_or("the child does not answer")?;
        // The child, on the same CPU, runs until it waits.
        // SAFETY: takes no arguments.
        unsafe { libc::sched_yield() };
        self.child = Some(child);
        Ok(())
    }

    fn copy_sum(&mut self) -> Result<u64, Reason> {
        let child = self.child.take().ok_or("there is no child")?;
        let bytes: Option<Vec<u8>> = (0..size_of::<u64>() as u8)
            .map(|at| child.ask(at))
            .collect();
        let sum = bytes.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        sum.ok_or("the child did not send the sum of its pages")
    }
}

/// Answers each byte with its complement.
fn complement_bytes(from: &File, to: &File) -> Option<()> {
    loop {
        put(to, !get(from)?)?;
    }
}

/// Sends one byte when ready. Then answers each index with that byte of the sum of the first words of
/// all pages of `block`.
fn send_sum(block: &Block, from: &File, to: &File) -> Option<()> {
    put(to, 0)?;
    let mut at = get(from)?;
    let mut sum = 0_u64;
    for page in (0..block.length).step_by(PAGE as usize) {
        let word = block.start.as_ptr().wrapping_add(page).cast::<u64>();
        // SAFETY: `word` is the first of a page of the block, of which this process has
        // an exclusive copy.
        sum = sum.wrapping_add(unsafe { word.read_volatile() });
    }
    loop {
        put(to, *sum.to_le_bytes().get(usize::from(at))?)?;
        at = get(from)?;
    }
}

/// Creates a memory file whose pages begin with their index.
fn numbered_pages() -> Option<File> {
    let file = program::in_memory(c"trapline-pages", 0)?;
    file.set_len(MAPPED as u64).ok()?;
    for page in 0..MAPPED_PAGES {
        file.write_all_at(&page.to_le_bytes(), page * PAGE).ok()?;
    }
    Some(file)
}

/// Maps a page of fresh memory and writes to it.
fn touched_page() -> Option<Block> {
    let length = PAGE as usize;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), length, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = NonNull::new(start.cast::<u8>())?;
    // SAFETY: a writable page, mapped above.
    unsafe { start.write(1) };
    Some(Block { start, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the resources of `op`.
    fn family(op: Op) -> ProcessFamily {
        let mut family = ProcessFamily::default();
        family.prepare(op).unwrap();
        family
    }

    #[test]
    fn children_exit_with_the_given_status() {
        for status in [0, 1, 255] {
            assert_eq!(family(Op::Fork).fork(status), Some(status));
            assert_eq!(family(Op::Exec).exec(status), Some(status));
        }
        assert_eq!(
            ProcessFamily::default().exec(1),
            None,
            "nothing is prepared"
        );
    }

    #[test]
    fn a_step_writes_the_sum_of_its_memory() {
        let mut family = family(Op::Make);
        for (number, status) in [(0, 0), (7, 1), (u64::MAX, 255)] {
            let sum = trapline_workloads::script::sum(number);
            assert_eq!(family.step(number, status), Some(sum));
        }
        family.finish();
        assert_eq!(family.step(1, 1), None);
    }

    #[test]
    fn each_answer_of_a_child_is_a_switch() {
        let mut family = family(Op::ContextSwitch);
        let before = family.switch_count();
        for byte in 0..100 {
            assert_eq!(family.ping(byte), Some(!byte));
        }
        assert!(family.switch_count() >= before + 100);
        family.finish();
        assert_eq!(family.ping(1), None);
    }

    #[test]
    fn a_pipe_returns_the_written_byte() {
        assert_eq!(family(Op::Pipe).pipe(7), Some(7));
    }

    #[test]
    fn mapped_pages_begin_with_their_index() {
        let mut family = family(Op::Mmap);
        let mapped = family.map().unwrap();
        let last = mapped.start.as_ptr().wrapping_add(MAPPED - PAGE as usize);
        // SAFETY: the last page of a valid mapping.
        assert_eq!(unsafe { *last.cast::<u64>() }, MAPPED_PAGES - 1);
        // SAFETY: no longer used.
        assert!(unsafe { family.unmap(mapped) });
    }

    #[test]
    fn protection_of_a_page_applies_to_the_kernel() {
        let mut family = family(Op::PageTableUpdate);
        for writable in [false, true, false] {
            assert!(family.protect(writable));
            assert_eq!(family.is_writable(), Some(writable));
        }
        family.finish();
        assert!(!family.protect(true));
        assert_eq!(family.is_writable(), None);
    }

    #[test]
    fn a_child_keeps_its_copy() {
        let mut family = family(Op::PageFaultCow);
        let mut words = vec![3_u64; 2 * PAGE as usize / size_of::<u64>()];
        let block = Block {
            start: NonNull::new(words.as_mut_ptr().cast()).unwrap(),
            length: 2 * PAGE as usize,
        };
        family.fork_with_copy(block).unwrap();
        words.fill(4);
        assert_eq!(family.copy_sum(), Ok(6));
        assert!(family.copy_sum().is_err(), "the child has exited");
    }
}
