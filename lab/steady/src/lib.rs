//! Preload library that keeps the clock of a QEMU with `-icount` exact, and that drops interrupts which
//! QEMU delivers twice ([`injection`]).
//!
//! Under `-icount sleep=off` the main loop advances the clock to the next timer once the CPU is
//! halted (`icount_start_warp_timer`). The CPU's thread halts first and adds its last
//! instructions to the clock afterwards. A main loop that runs in between, which happens only if
//! the host preempts the CPU's thread there, computes the time to the next timer from a clock
//! that lags, so the timer fires late by those instructions. Without this library that affects a
//! few of a million halts, most often on a loaded host.
//!
//! The main loop reads the CPU's state after its ppoll(2) returns. So this library replaces
//! `ppoll`: in the main thread it returns only when the CPU's thread sleeps, either halted, with
//! all instructions counted, or waiting for QEMU's global lock, which it takes only between two
//! instructions. No instruction of the machine is added, moved or omitted.

mod code;
mod injection;

use libc::{c_int, nfds_t, pollfd, sigset_t, timespec};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

/// Prefix of the name of QEMU's only CPU thread, with `-name debug-threads=on`.
const CPU_THREAD: &str = "ALL CPUs";

/// Number of yields before sleeping. Main thread and CPU thread usually share a host CPU, so one
/// mostly suffices.
const YIELDS: u32 = 8;

/// First and longest pause, and the sum of pauses. A CPU that runs for longer is not about to
/// halt, and the main loop has other work.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
const PAUSE_LIMIT: Duration = Duration::from_millis(100);

/// Replaces ppoll(2).
///
/// # Safety
/// The same as of ppoll(2).
#[no_mangle]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps the contract of ppoll(2).
    let ready = unsafe { ppoll_syscall(fds, count, timeout, mask) };
    if is_main_thread() {
        // SAFETY: errno is this thread's own.
        let errno = unsafe { *libc::__errno_location() };
        wait_for_cpu_thread();
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    ready
}

/// Replaces the variant of ppoll(2) that compilers call if they know the size of the array (Linux
/// Standard Base, libc-ddefs).
///
/// # Safety
/// The same as of ppoll(2).
#[no_mangle]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    size: usize,
) -> c_int {
    if size / size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: the caller keeps the contract of ppoll(2).
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// Performs the system call on a copy of `timeout`: the kernel writes the remaining time, which
/// callers of the C library's function do not expect.
unsafe fn ppoll_syscall(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's timeout is null or can be read.
    let mut remaining = unsafe { timeout.as_ref() }.copied();
    let timeout = remaining
        .as_mut()
        .map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let size = size_of::<u64>();
    // SAFETY: the caller's descriptors and mask are as ppoll(2) requires; `remaining` lives until
    // the call is over; the kernel's signal sets are of 64 bits.
    unsafe { libc::syscall(libc::SYS_ppoll, fds, count, timeout, mask, size) as c_int }
}

fn is_main_thread() -> bool {
    // SAFETY: both take nothing and return numbers.
    unsafe { libc::gettid() == libc::getpid() }
}

fn wait_for_cpu_thread() {
    let Some(stat) = cpu_thread_stat() else {
        return;
    };
    let mut yields = 0;
    let mut waited = Duration::ZERO;
    let mut pause = FIRST_PAUSE;
    while !is_sleeping(stat) && waited < PAUSE_LIMIT {
        if yields < YIELDS {
            yields += 1;
            thread::yield_now();
            continue;
        }
        thread::sleep(pause);
        waited += pause;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Returns the stat file of the CPU's thread, once that exists.
fn cpu_thread_stat() -> Option<&'static File> {
    static STAT: OnceLock<File> = OnceLock::new();
    if STAT.get().is_none() {
        let _ = STAT.set(open_cpu_thread_stat()?);
    }
    STAT.get()
}

fn open_cpu_thread_stat() -> Option<File> {
    let threads = fs::read_dir("/proc/self/task").ok()?;
    threads
        .flatten()
        .map(|thread| thread.path())
        .find_map(|thread| {
            let name = fs::read_to_string(thread.join("comm")).ok()?;
            let is_cpu = name.starts_with(CPU_THREAD);
            is_cpu.then(|| File::open(thread.join("stat")).ok())?
        })
}

/// Returns true if the thread sleeps or has exited.
fn is_sleeping(stat: &File) -> bool {
    let mut bytes = [0; 64];
    let Ok(read) = stat.read_at(&mut bytes, 0) else {
        return true;
    };
    state(&bytes[..read]) == Some(b'S')
}

/// Returns the state in the start of `/proc/PID/stat`, which follows the name in parentheses
/// (proc_pid_stat(5)).
fn state(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn state_follows_the_last_parenthesis() {
        assert_eq!(state(b"17 (ALL CPUs/TCG) R 1 17 17"), Some(b'R'));
        assert_eq!(state(b"17 (a) S (b) S 1 17"), Some(b'S'));
        assert_eq!(state(b"17 (ALL CPUs/T"), None);
        assert_eq!(state(b""), None);
    }

    /// The test's own thread has the name of the CPU thread; it sleeps, then computes.
    #[test]
    fn main_thread_waits_for_the_cpu_thread() {
        let (wake, woken) = channel::<()>();
        let (start, started) = channel();
        let computing = move || {
            let _hung_up = woken.recv();
            start.send(()).unwrap();
            let since = std::time::Instant::now();
            while since.elapsed() < Duration::from_millis(30) {
                std::hint::spin_loop();
            }
        };
        let name = format!("{CPU_THREAD}/test");
        let thread = thread::Builder::new().name(name).spawn(computing).unwrap();
        let stat = loop {
            if let Some(stat) = cpu_thread_stat() {
                break stat;
            }
        };
        while !is_sleeping(stat) {
            thread::yield_now();
        }
        drop(wake);
        started.recv().unwrap();
        wait_for_cpu_thread();
        assert!(is_sleeping(stat), "wait ended before the computation");
        thread.join().unwrap();
    }
}
