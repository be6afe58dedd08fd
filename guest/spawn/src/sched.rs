//! By which rules a thread gets a CPU: sched_setattr(2), which the C library does not
//! have.

use std::io;

/// Rules for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Before all ordinary threads, with this priority.
    Fifo(u8),
    /// So many nanoseconds of each period.
    Deadline {
        /// What it gets.
        runtime: u64,
        /// Of this; also the time by which it gets it.
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

/// What the thread starts gets none of it: a thread with a deadline may start no other
/// without this.
const RESET_ON_FORK: u64 = 1;

const DEADLINE: u32 = 6;

/// Puts a thread under `rules`; 0 is the one that calls.
///
/// # Errors
/// The kernel's refusal: `EPERM` without `CAP_SYS_NICE`, or for a deadline of a thread
/// that is bound to a CPU; `EBUSY` if there is no room for another deadline.
pub fn set(thread: i32, rules: Rules) -> io::Result<()> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        flags: RESET_ON_FORK,
        ..match rules {
            Rules::Fifo(priority) => Attributes {
                policy: libc::SCHED_FIFO as u32,
                priority: priority.into(),
                ..Attributes::default()
            },
            Rules::Deadline { runtime, period } => Attributes {
                policy: DEADLINE,
                runtime,
                deadline: period,
                period,
                ..Attributes::default()
            },
        }
    };
    // SAFETY: a struct of the size that it says, and no flags.
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

    /// In a thread of its own, which is done when the rules are not wanted any more.
    fn asked(rules: Rules) -> (io::Result<()>, libc::c_int) {
        let asking = std::thread::spawn(move || {
            let answer = set(0, rules);
            // SAFETY: takes a number.
            (answer, unsafe { libc::sched_getscheduler(0) })
        });
        asking.join().unwrap()
    }

    #[test]
    fn rules_are_in_force_or_refused() {
        let deadline = Rules::Deadline {
            runtime: 100_000,
            period: 100_000_000,
        };
        for (rules, policy) in [
            (Rules::Fifo(1), libc::SCHED_FIFO),
            (deadline, DEADLINE as libc::c_int),
        ] {
            match asked(rules) {
                (Ok(()), got) => assert_eq!(got & !libc::SCHED_RESET_ON_FORK, policy),
                (Err(error), got) => {
                    let codes = [libc::EPERM, libc::EBUSY].map(Some);
                    assert!(codes.contains(&error.raw_os_error()), "{error}");
                    assert_eq!(got, libc::SCHED_OTHER);
                }
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let backwards = Rules::Deadline {
            runtime: 2_000_000,
            period: 1_000_000,
        };
        for rules in [Rules::Fifo(0), Rules::Fifo(100), backwards] {
            assert!(asked(rules).0.is_err(), "{rules:?}");
        }
    }
}
