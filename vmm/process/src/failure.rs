//! Errors of a guest's process, with their remedies.

use std::io;
use trapline_interface::Error;

/// Returns a constructor of [`Error::Denied`] for `map_err`.
pub(crate) fn denied(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Denied {
        what,
        // Errors of the process itself have no number.
        help: match source.raw_os_error() {
            None | Some(libc::ESRCH) => "dmesg names the cause if its process was killed",
            _ => "allow ptrace and seccomp with a listener (Linux 5.19), or use --crossing ptrace",
        },
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_remedy() {
        let text = |error| denied("run the guest's process")(error).to_string();
        let refused = text(io::Error::from_raw_os_error(libc::EPERM));
        assert!(refused.starts_with("cannot run the guest's process: Operation not permitted"));
        assert!(refused.contains(": allow ptrace and seccomp"), "{refused}");
        let ended = text(io::ErrorKind::BrokenPipe.into());
        assert!(ended.contains(": dmesg names the cause"), "{ended}");
    }
}
