//! A filter that leaves one request to a descriptor.

use super::{install, step, ARGUMENT, ARGUMENTS, IF_EQUAL, LOAD, NUMBER, RETURN};
use crate::Failure;
use std::os::fd::RawFd;

/// Steps: five comparisons, each behind a load, and two verdicts.
const STEPS: usize = 12;

/// Permits `ioctl` on `descriptor` only with this request number and address, for this thread and those that it starts.
/// The memory at the address must be constant. Other calls and descriptors are not restricted.
///
/// # Errors
/// The kernel lacks seccomp filters.
pub fn guard((descriptor, request, address): (RawFd, libc::c_ulong, usize)) -> Result<(), Failure> {
    let steps = compile(descriptor, request, address);
    install(&steps).map_err(Failure::system(
        "put on the seccomp filter (try --no-sandbox)",
    ))
}

/// The architecture is checked by the filter of the thread's role.
fn compile(
    descriptor: RawFd,
    request: libc::c_ulong,
    address: usize,
) -> [libc::sock_filter; STEPS] {
    let argument = |index: u32| ARGUMENTS + ARGUMENT * index;
    let upper = |index: u32| argument(index) + 4;
    // A field of the call, its value, and the verdict if it differs: true permits the call.
    let comparisons = [
        (NUMBER, libc::SYS_ioctl as u32, true),
        (argument(0), descriptor as u32, true),
        (argument(1), request as u32, false),
        (argument(2), address as u32, false),
        (upper(2), (address as u64 >> 32) as u32, false),
    ];
    let allow = 2 * comparisons.len();
    let mut steps = [step(RETURN, libc::SECCOMP_RET_ALLOW); STEPS];
    for (index, (field, value, is_permitted)) in comparisons.into_iter().enumerate() {
        let at = 2 * index + 1;
        steps[at - 1] = step(LOAD, field);
        steps[at] = step(IF_EQUAL, value);
        let verdict = if is_permitted { allow } else { allow + 1 };
        steps[at].jf = (verdict - at - 1) as u8;
    }
    steps[allow + 1] = step(RETURN, libc::SECCOMP_RET_KILL_PROCESS);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolated::in_separate_process;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    static ARGUMENT: [libc::c_int; 2] = [0, 1];

    /// Returns the signal that kills a child with the filter at this request.
    fn signal(guarded: RawFd, used: RawFd, request: libc::c_ulong, address: usize) -> i32 {
        let allowed = (&raw const ARGUMENT).addr();
        // SAFETY: the only thread of the process forks, and the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_entered = guard((guarded, libc::FIONBIO, allowed)).is_ok();
            // SAFETY: FIONBIO reads an integer, and other requests fail without an access.
            unsafe {
                libc::ioctl(used, request, address);
                libc::_exit(i32::from(!is_entered));
            }
        }
        let mut status = 0;
        // SAFETY: the kernel writes the status of the child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(libc::WIFSIGNALED(status) || libc::WEXITSTATUS(status) == 0);
        if libc::WIFSIGNALED(status) {
            libc::WTERMSIG(status)
        } else {
            0
        }
    }

    #[test]
    fn guarded_descriptor_has_one_request() {
        if !in_separate_process(
            &[],
            "sandbox::guard::tests::guarded_descriptor_has_one_request",
        ) {
            return;
        }
        let (file, other) = (File::open("/dev/null"), File::open("/dev/null"));
        let (file, other) = (file.unwrap(), other.unwrap());
        let (guarded, other) = (file.as_raw_fd(), other.as_raw_fd());
        let allowed = (&raw const ARGUMENT).addr();
        assert_eq!(signal(guarded, guarded, libc::FIONBIO, allowed), 0);
        assert_eq!(signal(guarded, other, libc::FIOCLEX, 0), 0);
        for (request, address) in [
            (libc::FIOCLEX, allowed),
            (libc::FIONBIO, allowed + 4),
            (libc::FIONBIO, allowed ^ 1 << 32),
            (libc::FIONBIO, 0),
        ] {
            assert_eq!(signal(guarded, guarded, request, address), libc::SIGSYS);
        }
    }
}
