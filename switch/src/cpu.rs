//! CPU affinity, and the distance between CPUs.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Binds the calling thread to a CPU.
///
/// # Errors
/// There is no such CPU, or it may not be used.
pub fn pin(cpu: usize) -> io::Result<()> {
    // SAFETY: an empty set of CPUs is a valid value of this C structure; CPU_SET gets a number within it.
    let status = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu < libc::CPU_SETSIZE as usize {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Round trips between two CPUs that are measured.
const ROUND_TRIPS: u64 = 20_000;

/// Returns the round trip of a cache line between two CPUs, in nanoseconds: the least mean of five series.
///
/// # Errors
/// One of them may not be used.
pub fn round_trip(cpus: [usize; 2]) -> io::Result<f64> {
    let word = &AtomicU64::new(0);
    let series = 5;
    let turn = |cpu: usize, parity: u64| -> io::Result<f64> {
        pin(cpu)?;
        let mut least = f64::INFINITY;
        let mut next = parity;
        for _ in 0..series {
            let started = Instant::now();
            for _ in 0..ROUND_TRIPS {
                while word.load(Ordering::Acquire) != next {
                    std::hint::spin_loop();
                }
                word.store(next + 1, Ordering::Release);
                next += 2;
            }
            least = least.min(started.elapsed().as_nanos() as f64 / ROUND_TRIPS as f64);
        }
        Ok(least)
    };
    let [first, second] = cpus;
    // A CPU that cannot be used must not leave the other thread waiting.
    for cpu in cpus {
        std::thread::scope(|scope| scope.spawn(|| pin(cpu)).join().unwrap_or(Ok(())))?;
    }
    std::thread::scope(|scope| {
        let other = scope.spawn(|| turn(second, 1));
        let own = scope.spawn(|| turn(first, 0));
        let ended = [own.join(), other.join()];
        let [own, _] = ended.map(|it| it.unwrap_or(Err(io::ErrorKind::Other.into())));
        own
    })
}

/// Returns the CPU time of the calling thread, in nanoseconds.
pub fn time_of_thread() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the CPU time of all threads of a process, in nanoseconds (proc(5), `schedstat`).
///
/// # Errors
/// There is no such process, or the kernel does not count.
pub fn time_of_process(process: u32) -> io::Result<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let time = text.split(' ').next().and_then(|time| time.parse().ok());
        sum += time.unwrap_or(0_u64);
    }
    Ok(sum)
}
