//! Children that are copies of this process. Such a child may find a lock taken by a
//! thread that it does not have, so it only makes system calls, and ends.

use std::fs::File;
use std::os::fd::AsRawFd;

/// A child that waits for what it is told, and ends when nobody can tell it any more.
pub struct Child {
    pid: libc::pid_t,
    /// To it; taken only to end it.
    to: Option<File>,
    from: File,
}

impl Child {
    /// A child that does `body` with a pipe from this process and one to it. `body`
    /// allocates nothing and takes no lock.
    pub fn start(body: impl FnOnce(&File, &File) -> Option<()>) -> Option<Self> {
        let (theirs, to) = trapline_spawn::pipe().ok()?;
        let (from, their_answers) = trapline_spawn::pipe().ok()?;
        // SAFETY: the child closes two descriptors and does what it is given, which
        // allocates nothing.
        let pid = unsafe { fork() }?;
        if pid == 0 {
            // Otherwise it would wait for itself.
            drop((to, from));
            body(&theirs, &their_answers);
            exit(0);
        }
        Some(Self {
            pid,
            to: Some(to),
            from,
        })
    }

    /// Tells it `byte` and waits for its answer.
    #[inline(always)]
    pub fn ask(&self, byte: u8) -> Option<u8> {
        put(self.to.as_ref()?, byte)?;
        self.hear()
    }

    /// Waits for a byte of its.
    #[inline(always)]
    pub fn hear(&self) -> Option<u8> {
        get(&self.from)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.to.take());
        wait(self.pid);
    }
}

/// Makes a copy of this process; 0 in the copy.
///
/// # Safety
/// The copy has only this thread: it takes no lock, so it allocates nothing.
#[inline(always)]
pub unsafe fn fork() -> Option<libc::pid_t> {
    // SAFETY: takes no arguments; the caller knows what the copy does. Not libc's fork,
    // which does things of its own in both.
    let child = unsafe { libc::syscall(libc::SYS_fork) };
    (child >= 0).then_some(child as libc::pid_t)
}

/// Ends this process, and nothing else.
pub fn exit(status: u8) -> ! {
    // SAFETY: takes a number.
    unsafe { libc::_exit(status.into()) }
}

/// Waits until `child` has ended; its status if it ended by itself.
#[inline(always)]
pub fn wait(child: libc::pid_t) -> Option<u8> {
    let mut status = 0;
    // SAFETY: the status is ours to be written to, and no usage is asked for.
    let reaped = unsafe { libc::wait4(child, &raw mut status, 0, std::ptr::null_mut()) };
    let ended = reaped == child && libc::WIFEXITED(status);
    ended.then(|| libc::WEXITSTATUS(status) as u8)
}

/// Writes a byte.
#[inline(always)]
pub fn put(file: &File, byte: u8) -> Option<()> {
    // SAFETY: one byte of ours, and an open descriptor.
    let written = unsafe { libc::write(file.as_raw_fd(), (&raw const byte).cast(), 1) };
    (written == 1).then_some(())
}

/// Reads a byte, waiting for it.
#[inline(always)]
pub fn get(file: &File) -> Option<u8> {
    let mut byte = 0_u8;
    // SAFETY: room for one byte, and an open descriptor.
    let read = unsafe { libc::read(file.as_raw_fd(), (&raw mut byte).cast(), 1) };
    (read == 1).then_some(byte)
}
