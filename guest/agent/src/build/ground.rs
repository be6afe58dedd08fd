//! A ground of its own for a process: namespaces in which it has its own root, and is the
//! first process.
//!
//! When that process dies the kernel kills all that it has started and takes its file
//! systems away, whoever killed it and how. No administrator is needed where processes
//! may make themselves a namespace of users.

use super::archive;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// Where the new root is. It is mounted over what is there, for this process only.
const PLACE: &str = "/tmp";

/// What a root in memory may take: half of the machine's memory, as by default. Nobody
/// else may look into it.
const OPTIONS: &str = "mode=0755";

/// Runs `body` in a root in memory with what is in `archive`; its exit status.
///
/// # Errors
/// There can be no such root here, with what would mend that.
pub fn in_memory(archive: &File, body: impl FnOnce() -> ExitCode) -> Result<ExitCode, String> {
    apart(|| {
        let place = Path::new(PLACE);
        mount("tmpfs", place, "tmpfs", 0, OPTIONS)?;
        archive::unpack(archive, place)?;
        change_root(place)?;
        Ok(body())
    })
}

/// The same with a directory as root.
///
/// # Errors
/// As [`in_memory`].
pub fn in_directory(root: &Path, body: impl FnOnce() -> ExitCode) -> Result<ExitCode, String> {
    apart(|| {
        let root = root.canonicalize()?;
        let source = root.to_string_lossy().into_owned();
        mount(&source, &root, "", libc::MS_BIND | libc::MS_REC, "")?;
        change_root(&root)?;
        Ok(body())
    })
}

/// Runs `body` as the first process of new namespaces.
fn apart(body: impl FnOnce() -> io::Result<ExitCode>) -> Result<ExitCode, String> {
    leave().map_err(|error| refusal(&error))?;
    // Whoever gets other rights is forgotten by those whom he would die with.
    die_with_parent().map_err(|error| refusal(&error))?;
    // SAFETY: this process has one thread, so that its copy may do what it likes.
    match unsafe { libc::fork() } {
        -1 => Err(refusal(&io::Error::last_os_error())),
        0 => std::process::exit(first(body)),
        child => Ok(wait(child)),
    }
}

/// Leaves the namespaces of whoever started this process.
fn leave() -> io::Result<()> {
    // SAFETY: both take no arguments.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    // SAFETY: takes flags only, and this process has one thread.
    if unsafe { libc::unshare(spaces | libc::CLONE_NEWUSER) } == 0 {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        return fs::write("/proc/self/gid_map", format!("0 {group} 1"));
    }
    // An administrator needs no namespace of users.
    // SAFETY: as above.
    check(unsafe { libc::unshare(spaces) })
}

/// The first process, which dies with the one that made it.
fn first(body: impl FnOnce() -> io::Result<ExitCode>) -> i32 {
    let bound = die_with_parent();
    let private = || {
        mount(
            "none",
            Path::new("/"),
            "",
            libc::MS_REC | libc::MS_PRIVATE,
            "",
        )
    };
    match bound.and_then(|()| private()).and_then(|()| body()) {
        Ok(code) if code == ExitCode::SUCCESS => 0,
        Ok(_) => 1,
        Err(error) => {
            eprintln!("trapline-agent: {}", refusal(&error));
            1
        }
    }
}

fn die_with_parent() -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })
}

/// Makes `root` the root, with a `/dev/null` in it and, if that is allowed, a `/proc`.
fn change_root(root: &Path) -> io::Result<()> {
    for directory in ["dev", "proc", "tmp"] {
        fs::create_dir_all(root.join(directory))?;
    }
    let null = root.join("dev/null");
    if !null.exists() {
        File::create(&null)?;
    }
    mount("/dev/null", &null, "", libc::MS_BIND, "")?;
    let _only_some_hosts_allow_it = mount("proc", &root.join("proc"), "proc", 0, "");
    let name = CString::new(root.as_os_str().as_bytes())?;
    // SAFETY: a string that outlives the call.
    check(unsafe { libc::chroot(name.as_ptr()) })?;
    std::env::set_current_dir("/")
}

fn mount(from: &str, at: &Path, kind: &str, flags: libc::c_ulong, data: &str) -> io::Result<()> {
    let at = CString::new(at.as_os_str().as_bytes())?;
    let (from, kind, data) = (
        CString::new(from)?,
        CString::new(kind)?,
        CString::new(data)?,
    );
    // SAFETY: four strings that outlive the call.
    check(unsafe {
        libc::mount(
            from.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    })
}

/// The exit status of the first process, once it has ended.
fn wait(child: libc::pid_t) -> ExitCode {
    let mut status = 0;
    loop {
        // SAFETY: the status is ours to be written to.
        let reaped = unsafe { libc::waitpid(child, &raw mut status, 0) };
        let interrupted = io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if reaped == child || !interrupted {
            break;
        }
    }
    match libc::WIFEXITED(status) {
        true => ExitCode::from(libc::WEXITSTATUS(status) as u8),
        false => ExitCode::FAILURE,
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn refusal(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => format!(
            "no process may make itself a root here ({error}): sudo sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0 or kernel.unprivileged_userns_clone=1, \
             or start the container with --cap-add SYS_ADMIN"
        ),
        Some(libc::ENOSPC | libc::ENOMEM) => {
            format!("there is no memory for a root ({error}): end something large")
        }
        _ => format!("a root of its own cannot be made: {error}"),
    }
}
