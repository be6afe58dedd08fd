//! System calls of programs. All code here runs at ring 3.

use super::number::{self, FAILED};
use super::ring::Ring;
use core::marker::PhantomData;
use core::ptr;

/// Makes a system call; see entry.s. `None` if it fails.
#[inline(always)]
pub fn call<R: Ring>(number: u64, first: u64, second: u64, third: u64) -> Option<u64> {
    // SAFETY: the arguments name memory of this program only.
    let result = unsafe { R::call(number, first, second, third) };
    (result != FAILED).then_some(result)
}

/// Forks. Returns 0 in the child.
#[inline(always)]
pub fn fork<R: Ring>() -> Option<u64> {
    call::<R>(number::FORK, 0, 0, 0)
}

/// Executes a program, which exits with `status`.
#[inline(always)]
pub fn execute<R: Ring>(program: u64, status: &u8) -> ! {
    call::<R>(number::EXEC, ptr::from_ref(status) as u64, program, 0);
    exit::<R>(!status)
}

/// Ends this process.
pub fn exit<R: Ring>(status: u8) -> ! {
    loop {
        call::<R>(number::EXIT, status.into(), 0, 0);
    }
}

/// Waits until `child` ends. Returns its status.
#[inline(always)]
pub fn wait<R: Ring>(child: u64) -> Option<u64> {
    call::<R>(number::WAIT, child, 0, 0)
}

/// Open pipe.
pub struct Pipe<R>(u64, PhantomData<R>);

impl<R> Clone for Pipe<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Pipe<R> {}

impl<R: Ring> Pipe<R> {
    /// Creates a pipe.
    pub fn new() -> Option<Self> {
        call::<R>(number::PIPE, 0, 0, 0).map(|number| Self(number, PhantomData))
    }

    /// Returns its number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Writes a byte.
    #[inline(always)]
    pub fn put(self, byte: u8) -> Option<()> {
        self.put_bytes([byte])
    }

    /// Waits for a byte; `None` if no other process can write one.
    #[inline(always)]
    pub fn get(self) -> Option<u8> {
        let [byte] = self.get_bytes()?;
        Some(byte)
    }

    /// Writes bytes by one system call.
    #[inline(always)]
    pub fn put_bytes<const N: usize>(self, bytes: [u8; N]) -> Option<()> {
        let written = call::<R>(number::WRITE, self.0, &raw const bytes as u64, N as u64);
        (written? == N as u64).then_some(())
    }

    /// Waits for bytes and reads them by one system call.
    #[inline(always)]
    pub fn get_bytes<const N: usize>(self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let read = call::<R>(number::READ, self.0, &raw mut bytes as u64, N as u64);
        (read? == N as u64).then_some(bytes)
    }

    /// Closes the pipe.
    pub fn close(self) {
        call::<R>(number::CLOSE, self.0, 0, 0);
    }
}
