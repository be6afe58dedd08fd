//! Page whose frame changes while other threads read it: one of the two pages of a file in memory, which mmap(2) replaces.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::OnceLock;
use trapline_workloads::Reason;

/// Size of a page in bytes.
const PAGE: usize = 4096;

/// A mapped page and its two frames.
struct SharedPage {
    file: File,
    /// Mapping of one of the pages.
    page: usize,
    /// Mapping of both.
    frames: usize,
    /// Number of the mapped page.
    mapped: AtomicUsize,
}

fn shared() -> Result<&'static SharedPage, Reason> {
    static SHARED: OnceLock<Result<SharedPage, Reason>> = OnceLock::new();
    let shared =
        SHARED.get_or_init(|| SharedPage::new().ok_or("two pages of memory cannot be mapped"));
    shared.as_ref().map_err(|reason| *reason)
}

/// Returns the first word of the page.
///
/// # Errors
/// It cannot be mapped.
pub fn word() -> Result<&'static AtomicU64, Reason> {
    Ok(word_at(shared()?.page))
}

/// Maps the other frame, with `value` in its first word. The kernel invalidates the old translation on all CPUs that run a
/// thread of this process before it returns.
///
/// # Errors
/// It cannot be mapped.
#[inline(always)]
pub fn remap(value: u64) -> Result<(), Reason> {
    let shared = shared()?;
    let next = 1 - shared.mapped.load(SeqCst);
    word_at(shared.frames + next * PAGE).store(value, SeqCst);
    shared.mapped.store(next, SeqCst);
    let mapped = map(&shared.file, shared.page as *mut u8, next, 1);
    mapped.map(drop).ok_or("the page cannot be mapped again")
}

impl SharedPage {
    fn new() -> Option<Self> {
        // SAFETY: a name, and a new descriptor, which the file owns.
        let file = unsafe {
            let file = libc::memfd_create(c"page".as_ptr(), libc::MFD_CLOEXEC);
            (file >= 0).then(|| File::from_raw_fd(file))?
        };
        file.set_len(2 * PAGE as u64).ok()?;
        Some(Self {
            page: map(&file, ptr::null_mut(), 0, 1)?,
            frames: map(&file, ptr::null_mut(), 0, 2)?,
            mapped: AtomicUsize::new(0),
            file,
        })
    }
}

/// Maps `count` pages of the file from `first`, with their translations: in place of a page of [`SharedPage`], or at a new
/// address if `at` is null.
#[inline(always)]
fn map(file: &File, at: *mut u8, first: usize, count: usize) -> Option<usize> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let kind = libc::MAP_SHARED | libc::MAP_POPULATE | fixed;
    let offset = (first * PAGE) as libc::off_t;
    // SAFETY: a new mapping, or one that replaces a page of this module, which is accessed by atomic operations only.
    let mapped = unsafe {
        libc::mmap(
            at.cast(),
            count * PAGE,
            access,
            kind,
            file.as_raw_fd(),
            offset,
        )
    };
    (mapped != libc::MAP_FAILED).then_some(mapped as usize)
}

fn word_at(page: usize) -> &'static AtomicU64 {
    // SAFETY: a mapping that is never removed, only replaced.
    unsafe { AtomicU64::from_ptr(page as *mut u64) }
}
