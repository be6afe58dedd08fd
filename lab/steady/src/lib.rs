//! Keeps the clock of a QEMU that counts instructions steady.
//!
//! Under `-icount sleep=off` the main loop moves the clock to the next timer once the
//! CPU is halted (`icount_start_warp_timer`). It asks the CPU for that, but the CPU's
//! thread halts first and adds the instructions that it executed last to the clock
//! afterwards. A main loop that runs in between - only on a host that takes the CPU's
//! thread from its processor just then - computes the time to the next timer from a
//! clock that lags, and the timer comes late by those instructions. Without this
//! library that happens to a few of a million sleeps, most often on a busy host.
//!
//! The main loop is about to look at the CPU when its ppoll(2) returns. So this library,
//! loaded into QEMU before any other, has a `ppoll` of its own, which returns in
//! the main thread only when the thread of the CPU rests: in its sleep, where all is
//! counted, or at the lock that guards devices, which it takes only between two
//! instructions. No instruction of the machine is added, moved or left out.

use libc::{c_int, nfds_t, pollfd, sigset_t, timespec};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

/// How QEMU begins the name of the thread of a machine's one CPU, when it names threads
/// (`-name debug-threads=on`).
const PROCESSOR: &str = "ALL CPUs";

/// Turns that are given up to the CPU's thread. It shares a processor of the host with the
/// main thread, so one is mostly enough.
const TURNS: u32 = 8;

/// How long the CPU's thread is waited for after that: at first, at the most at once,
/// and in all. A CPU that computes for longer is not about to sleep, and whoever wants
/// something of the main loop shall not wait for it.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_millis(100);

/// ppoll(2).
///
/// # Safety
/// As for ppoll(2).
#[no_mangle]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps what ppoll(2) asks for.
    let ready = unsafe { wait(fds, count, timeout, mask) };
    if is_main_thread() {
        // SAFETY: errno is this thread's own.
        let errno = unsafe { *libc::__errno_location() };
        let_processor_rest();
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    ready
}

/// The same as compilers call it that know how many descriptors there is room for
/// (Linux Standard Base, libc-ddefs).
///
/// # Safety
/// As for ppoll(2).
#[no_mangle]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: the caller keeps what ppoll(2) asks for.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// The system call. The kernel writes the time that is left, which a caller of the C
/// library's function does not expect.
unsafe fn wait(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's timeout is null or can be read.
    let mut left = unsafe { timeout.as_ref() }.copied();
    let timeout = left
        .as_mut()
        .map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let size = size_of::<u64>();
    // SAFETY: the caller's descriptors and mask are as ppoll(2) asks; `left` lives until
    // the call is over; the kernel's signal sets are of 64 bits.
    unsafe { libc::syscall(libc::SYS_ppoll, fds, count, timeout, mask, size) as c_int }
}

fn is_main_thread() -> bool {
    // SAFETY: both take nothing and return numbers.
    unsafe { libc::gettid() == libc::getpid() }
}

fn let_processor_rest() {
    let Some(stat) = processor() else {
        return;
    };
    let mut turns = 0;
    let mut waited = Duration::ZERO;
    let mut pause = FIRST_PAUSE;
    while !rests(stat) && waited < PATIENCE {
        if turns < TURNS {
            turns += 1;
            thread::yield_now();
            continue;
        }
        thread::sleep(pause);
        waited += pause;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// What the kernel says of the CPU's thread, once there is one.
fn processor() -> Option<&'static File> {
    static STAT: OnceLock<File> = OnceLock::new();
    if STAT.get().is_none() {
        let _found = STAT.set(find()?);
    }
    STAT.get()
}

fn find() -> Option<File> {
    let threads = fs::read_dir("/proc/self/task").ok()?;
    threads
        .flatten()
        .map(|thread| thread.path())
        .find_map(|thread| {
            let name = fs::read_to_string(thread.join("comm")).ok()?;
            let is_processor = name.starts_with(PROCESSOR);
            is_processor.then(|| File::open(thread.join("stat")).ok())?
        })
}

/// Whether the thread waits for something; one that is gone rests, too.
fn rests(stat: &File) -> bool {
    let mut bytes = [0; 64];
    let Ok(read) = stat.read_at(&mut bytes, 0) else {
        return true;
    };
    state(&bytes[..read]) == Some(b'S')
}

/// The state in the beginning of `/proc/PID/stat`, which stands behind a name in
/// brackets (proc_pid_stat(5)).
fn state(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_state_stands_behind_the_last_bracket() {
        assert_eq!(state(b"17 (ALL CPUs/TCG) R 1 17 17"), Some(b'R'));
        assert_eq!(state(b"17 (a) S (b) S 1 17"), Some(b'S'));
        assert_eq!(state(b"17 (ALL CPUs/T"), None);
        assert_eq!(state(b""), None);
    }

    /// This program's own thread by the name of the CPU's: one that sleeps, then one that
    /// computes.
    #[test]
    fn a_thread_is_found_and_waited_for() {
        let (wake, woken) = channel::<()>();
        let (tell, told) = channel();
        let computing = move || {
            let _hung_up = woken.recv();
            tell.send(()).unwrap();
            let since = std::time::Instant::now();
            while since.elapsed() < Duration::from_millis(30) {
                std::hint::spin_loop();
            }
        };
        let name = format!("{PROCESSOR}/test");
        let thread = thread::Builder::new().name(name).spawn(computing).unwrap();
        let stat = loop {
            if let Some(stat) = processor() {
                break stat;
            }
        };
        while !rests(stat) {
            thread::yield_now();
        }
        drop(wake);
        told.recv().unwrap();
        let_processor_rest();
        assert!(rests(stat), "it was not waited for until it ended");
        thread.join().unwrap();
    }
}
