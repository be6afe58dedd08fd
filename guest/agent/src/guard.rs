//! Guard of a process group: `trapline-agent trapline.guard=GROUP` joins the group and waits. When the
//! thread that started it dies, it kills the group, including itself.
//!
//! A process that is killed with its parent does not take its own children with it; user-mode Linux
//! has traced children that continue without it. While the guard is in the group, the group id
//! cannot be reused, so no other process is killed.

use std::io;

/// Prefix of its word.
const GROUP: &str = "trapline.guard=";

/// Parses the process group; `None` if `words` do not select the guard.
///
/// # Errors
/// Returns a message that names the invalid word.
pub fn parse(words: &[String]) -> Option<Result<libc::pid_t, String>> {
    let group = words.first()?.strip_prefix(GROUP)?;
    let number = group.parse().ok().filter(|number| *number > 1);
    Some(number.ok_or_else(|| format!("{GROUP}{group}: expected the number of a process group")))
}

/// Guards the group. Returns only if that fails.
pub fn guard(group: libc::pid_t) -> String {
    let why = match wait_in(group) {
        Ok(()) => kill_own_group(),
        Err(error) => error,
    };
    format!("group {group} cannot be guarded: {why}")
}

/// Joins the group and waits until the parent dies.
fn wait_in(group: libc::pid_t) -> io::Result<()> {
    let death = block_death_signal()?;
    join(group)?;
    let mut signal = 0;
    // SAFETY: a valid set, and a place of ours for the number.
    match unsafe { libc::sigwait(&death, &mut signal) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn join(group: libc::pid_t) -> io::Result<()> {
    // SAFETY: takes numbers only.
    match unsafe { libc::setpgid(0, group) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Replaces SIGKILL at the death of the parent by a blocked SIGTERM, which stays pending until
/// [`libc::sigwait`].
fn block_death_signal() -> io::Result<libc::sigset_t> {
    // SAFETY: an all-zero set is valid, the calls only fill it, and it is ours.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    };
    // SAFETY: takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } {
        0 => Ok(set),
        _ => Err(io::Error::last_os_error()),
    }
}

fn kill_own_group() -> io::Error {
    // SAFETY: takes numbers only; 0 is the group of this process.
    unsafe { libc::kill(0, libc::SIGKILL) };
    io::Error::last_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn parsed(word: &str) -> Option<Result<libc::pid_t, String>> {
        parse(&[word.to_owned()])
    }

    #[test]
    fn group_numbers_are_parsed_and_invalid_ones_rejected() {
        assert_eq!(parsed("trapline.guard=77"), Some(Ok(77)));
        assert_eq!(parsed("trapline.run=basic"), None);
        let errors = ["trapline.guard=", "trapline.guard=0", "trapline.guard=-7"]
            .map(|bad| parsed(bad).unwrap().unwrap_err());
        expect![[r#"
            trapline.guard=: expected the number of a process group
            trapline.guard=0: expected the number of a process group
            trapline.guard=-7: expected the number of a process group"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn a_nonexistent_group_is_rejected() {
        expect!["group 2147483647 cannot be guarded: Operation not permitted (os error 1)"]
            .assert_eq(&guard(libc::pid_t::MAX));
    }
}
