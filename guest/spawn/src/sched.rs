//! Scheduling policies of threads: sched_setattr(2), which the C library does not have.

use std::io;

/// Scheduling policy of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedPolicy {
    /// SCHED_FIFO with this priority.
    Fifo(u8),
    /// SCHED_IDLE: below every thread of the default policy.
    Idle,
    /// SCHED_DEADLINE, in nanoseconds.
    Deadline {
        /// CPU time per period.
        runtime: u64,
        /// Period, which is also the deadline.
        period: u64,
    },
}

/// `struct sched_attr` (Linux `include/uapi/linux/sched/types.h`), its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Children get the default policy. Without this flag a SCHED_DEADLINE thread cannot fork.
const RESET_ON_FORK: u64 = 1;

const DEADLINE: u32 = 6;

/// Sets the policy of a thread; 0 is the calling thread.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`, or for SCHED_DEADLINE of a pinned thread; `EBUSY` if the deadline
/// bandwidth is exhausted.
pub fn set(thread: i32, policy: SchedPolicy) -> io::Result<()> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        flags: RESET_ON_FORK,
        ..match policy {
            SchedPolicy::Fifo(priority) => Attributes {
                policy: libc::SCHED_FIFO as u32,
                priority: priority.into(),
                ..Attributes::default()
            },
            SchedPolicy::Idle => Attributes {
                policy: libc::SCHED_IDLE as u32,
                ..Attributes::default()
            },
            SchedPolicy::Deadline { runtime, period } => Attributes {
                policy: DEADLINE,
                runtime,
                deadline: period,
                period,
                ..Attributes::default()
            },
        }
    };
    // SAFETY: a struct with its size, and no flags.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets the policy in a new thread. Returns the result and the policy of that thread.
    fn set_in_thread(policy: SchedPolicy) -> (io::Result<()>, libc::c_int) {
        let thread = std::thread::spawn(move || {
            let answer = set(0, policy);
            // SAFETY: takes a number.
            (answer, unsafe { libc::sched_getscheduler(0) })
        });
        thread.join().unwrap()
    }

    #[test]
    fn policies_are_set_or_rejected() {
        let deadline = SchedPolicy::Deadline {
            runtime: 100_000,
            period: 100_000_000,
        };
        for (policy, number) in [
            (SchedPolicy::Fifo(1), libc::SCHED_FIFO),
            (deadline, DEADLINE as libc::c_int),
        ] {
            match set_in_thread(policy) {
                (Ok(()), got) => assert_eq!(got & !libc::SCHED_RESET_ON_FORK, number),
                (Err(error), got) => {
                    let codes = [libc::EPERM, libc::EBUSY].map(Some);
                    assert!(codes.contains(&error.raw_os_error()), "{error}");
                    assert_eq!(got, libc::SCHED_OTHER);
                }
            }
        }
    }

    #[test]
    fn the_lowest_priority_needs_no_privilege() {
        let (set, got) = set_in_thread(SchedPolicy::Idle);
        set.unwrap();
        assert_eq!(got & !libc::SCHED_RESET_ON_FORK, libc::SCHED_IDLE);
    }

    #[test]
    fn invalid_policies_are_rejected() {
        let backwards = SchedPolicy::Deadline {
            runtime: 2_000_000,
            period: 1_000_000,
        };
        for policy in [SchedPolicy::Fifo(0), SchedPolicy::Fifo(100), backwards] {
            assert!(set_in_thread(policy).0.is_err(), "{policy:?}");
        }
    }
}
