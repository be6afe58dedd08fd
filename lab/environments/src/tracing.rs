//! Tracing of processes on this host, for guests that are processes.

use std::fs;
use trapline_host::Error;

const SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Value of [`SCOPE`] that forbids all tracing until the next boot (Linux `Documentation/admin-guide/LSM/Yama.rst`).
const NONE: &str = "3";

/// Checks that processes can be traced.
///
/// # Errors
/// They cannot, with the remedy.
pub fn check() -> Result<(), Error> {
    check_scope(&fs::read_to_string(SCOPE).unwrap_or_default())
}

fn check_scope(scope: &str) -> Result<(), Error> {
    match scope.trim() {
        NONE => Err(Error::missing(FORBIDDEN, REMEDY)),
        _ => Ok(()),
    }
}

const FORBIDDEN: &str =
    "kernel.yama.ptrace_scope is 3, which forbids the VMM to trace the process of its guest";
const REMEDY: &str = "set it to 2 or less in /etc/sysctl.d, and reboot; or measure sim/process";

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn forbidden_tracing_is_reported_with_a_remedy() {
        for scope in ["", "0\n", "2\n"] {
            assert!(check_scope(scope).is_ok(), "{scope:?}");
        }
        expect!["kernel.yama.ptrace_scope is 3, which forbids the VMM to trace the process of its guest: set it to 2 or less in /etc/sysctl.d, and reboot; or measure sim/process"].assert_eq(&check_scope("3\n").unwrap_err().to_string());
    }
}
