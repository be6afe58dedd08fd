//! Forked children. A lock may be held by a thread that a child does not have, so children only make
//! system calls and exit.

use crate::arch::fork::fork;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Child that waits for bytes, and exits when its pipe is closed.
pub struct Child {
    pid: libc::pid_t,
    /// Pipe to the child; closed to end it.
    to: Option<File>,
    from: File,
}

impl Child {
    /// Forks a child that runs `body` with a pipe from this process and one to it. `body` does not
    /// allocate or lock.
    pub fn start(body: impl FnOnce(&File, &File) -> Option<()>) -> Option<Self> {
        let (theirs, to) = trapline_spawn::pipe().ok()?;
        let (from, their_answers) = trapline_spawn::pipe().ok()?;
        // SAFETY: the child closes two descriptors and runs `body`, which does not allocate.
        let pid = unsafe { fork() }?;
        if pid == 0 {
            // Otherwise the child would keep its own pipe open.
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

    /// Sends `byte` and waits for the answer.
    #[inline(always)]
    pub fn ask(&self, byte: u8) -> Option<u8> {
        put(self.to.as_ref()?, byte)?;
        self.receive()
    }

    /// Waits for a byte of the child.
    #[inline(always)]
    pub fn receive(&self) -> Option<u8> {
        get(&self.from)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.to.take());
        wait(self.pid);
    }
}

/// Exits without exit handlers.
pub fn exit(status: u8) -> ! {
    // SAFETY: takes a number.
    unsafe { libc::_exit(status.into()) }
}

/// Waits until `child` exits. Returns its exit status; `None` if it was killed.
#[inline(always)]
pub fn wait(child: libc::pid_t) -> Option<u8> {
    let mut status = 0;
    // SAFETY: a local variable, and no usage is requested.
    let reaped = unsafe { libc::wait4(child, &raw mut status, 0, std::ptr::null_mut()) };
    let ended = reaped == child && libc::WIFEXITED(status);
    ended.then(|| libc::WEXITSTATUS(status) as u8)
}

/// Writes a byte.
#[inline(always)]
pub fn put(file: &File, byte: u8) -> Option<()> {
    put_bytes(file, [byte])
}

/// Waits for a byte and reads it.
#[inline(always)]
pub fn get(file: &File) -> Option<u8> {
    let [byte] = get_bytes(file)?;
    Some(byte)
}

/// Writes bytes by one system call.
#[inline(always)]
pub fn put_bytes<const N: usize>(file: &File, bytes: [u8; N]) -> Option<()> {
    // SAFETY: the array's bytes, and an open descriptor.
    let written = unsafe { libc::write(file.as_raw_fd(), (&raw const bytes).cast(), N) };
    (written == N as isize).then_some(())
}

/// Waits for bytes and reads them by one system call.
#[inline(always)]
pub fn get_bytes<const N: usize>(file: &File) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: room for the bytes, and an open descriptor.
    let read = unsafe { libc::read(file.as_raw_fd(), (&raw mut bytes).cast(), N) };
    (read == N as isize).then_some(bytes)
}
