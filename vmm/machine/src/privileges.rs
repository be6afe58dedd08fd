//! Privileges of the process, dropped before the guest runs.
//!
//! Everything that needs them is open by then: the hypervisor, files, taps and sockets. `--user` and `--chroot` serve the
//! purpose of Firecracker's jailer. In contrast to it, files are opened before the change of root, so the new root may be
//! an empty directory; cgroups and namespaces are left to the caller.

use crate::Failure;
use std::io;
use std::os::unix::fs::chroot;
use std::path::Path;

/// User and group IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct User {
    pub uid: libc::uid_t,
    pub gid: libc::gid_t,
}

impl User {
    /// Parses `UID:GID`. Root is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let (uid, gid) = text.split_once(':')?;
        let id = |text: &str| text.parse().ok().filter(|id| (1..u32::MAX).contains(id));
        Some(Self {
            uid: id(uid)?,
            gid: id(gid)?,
        })
    }
}

/// Changes to the root directory and user, if given, then drops all capabilities for good. Called before other threads
/// exist, which inherit the result.
///
/// # Errors
/// The directory cannot be entered, or the process lacks the privilege.
pub fn drop_all(user: Option<User>, root: Option<&Path>) -> Result<(), Failure> {
    if let Some(directory) = root {
        enter_root(directory).map_err(failure("--chroot", directory.display()))?;
    }
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
        .map_err(Failure::system("forbid new privileges"))?;
    if user.is_some() || root.is_some() {
        drop_bounding_set();
    }
    if let Some(User { uid, gid }) = user {
        change_user(uid, gid).map_err(failure("--user", format!("{uid}:{gid}")))?;
    }
    drop_capabilities().map_err(Failure::system("drop the capabilities"))
}

fn failure(option: &str, value: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Failure {
    let what = format!("{option} {value}");
    move |error| {
        let remedy = match error.raw_os_error() {
            Some(libc::EPERM) => "; start as root, or leave it out",
            _ => "",
        };
        Failure::Usage(format!("{what}: {error}{remedy}"))
    }
}

fn enter_root(directory: &Path) -> io::Result<()> {
    chroot(directory)?;
    std::env::set_current_dir("/")
}

fn change_user(uid: libc::uid_t, gid: libc::gid_t) -> io::Result<()> {
    // SAFETY: no groups, so no pointer is read.
    check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: takes numbers only.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: takes numbers only.
    check(unsafe { libc::setresuid(uid, uid, uid) })
}

/// Empties the bounding set, as a jailer does. It limits what `execve` may add, which is nothing once new privileges are
/// forbidden; its 41 system calls would take 55,000 instructions of every start.
fn drop_bounding_set() {
    let drop = |capability: libc::c_ulong| {
        // SAFETY: takes numbers only. The first number that does not exist is refused.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) == 0 }
    };
    (0..64)
        .take_while(|capability| drop(*capability))
        .for_each(|_| ());
}

/// `struct __user_cap_header_struct` (linux/capability.h) of this thread, with `_LINUX_CAPABILITY_VERSION_3`.
#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

const VERSION_3: u32 = 0x2008_0522;

/// Empties the effective, permitted and inheritable sets, and thereby the ambient set.
fn drop_capabilities() -> io::Result<()> {
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    // Two of `struct __user_cap_data_struct`: effective, permitted, inheritable.
    let sets = [[0_u32; 3]; 2];
    // SAFETY: the kernel reads both structures, whose layout is that of version 3.
    let status = unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const sets) };
    check(status as libc::c_int)
}

fn check(status: libc::c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_two_numbers_above_zero() {
        let user = User {
            uid: 1,
            gid: 65_534,
        };
        assert_eq!(User::parse("1:65534"), Some(user));
        for text in [
            "",
            "1",
            "1:",
            ":1",
            "0:1",
            "1:0",
            "-1:1",
            "a:b",
            "1:4294967295",
            "1:2:3",
        ] {
            assert_eq!(User::parse(text), None, "{text}");
        }
    }
}
