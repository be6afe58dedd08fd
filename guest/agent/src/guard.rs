//! A guard: `trapline-agent trapline.guard=GROUP` joins a process group and waits. When the
//! thread that started it dies, it kills the group, itself included.
//!
//! A process that is killed with its parent takes no others with it; user-mode Linux has
//! such others, which it traces and which go on without it. Once the guard is in the group
//! its number cannot become another's, so nobody else is hit.

use std::io;

/// What the word for it begins with.
const GROUP: &str = "trapline.guard=";

/// The group that `words` ask to be guarded; `None` if they ask for something else.
///
/// # Errors
/// What is wrong with them.
pub fn parse(words: &[String]) -> Option<Result<libc::pid_t, String>> {
    let group = words.first()?.strip_prefix(GROUP)?;
    let number = group.parse().ok().filter(|number| *number > 1);
    Some(number.ok_or_else(|| format!("{GROUP}{group}: the number of a process group follows")))
}

/// Guards it; comes back only if that cannot be done.
pub fn guard(group: libc::pid_t) -> String {
    let why = match wait_in(group) {
        Ok(()) => kill_own_group(),
        Err(error) => error,
    };
    format!("group {group} cannot be guarded: {why}")
}

/// Joins the group and waits for the parent's death.
fn wait_in(group: libc::pid_t) -> io::Result<()> {
    let death = ask_to_be_told()?;
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

/// Until here the kernel would have killed this process with its parent; from here on it
/// says so instead, by a signal that waits to be taken from the queue.
fn ask_to_be_told() -> io::Result<libc::sigset_t> {
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

    fn parsed(word: &str) -> Option<Result<libc::pid_t, String>> {
        parse(&[word.to_owned()])
    }

    #[test]
    fn a_group_is_a_number_of_its_own() {
        assert_eq!(parsed("trapline.guard=77"), Some(Ok(77)));
        assert_eq!(parsed("trapline.run=basic"), None);
        for bad in ["trapline.guard=", "trapline.guard=0", "trapline.guard=-7"] {
            assert!(parsed(bad).unwrap().unwrap_err().contains(bad));
        }
    }

    #[test]
    fn a_group_that_is_not_there_is_not_guarded() {
        assert!(guard(libc::pid_t::MAX).starts_with("group 2147483647 cannot"));
    }
}
