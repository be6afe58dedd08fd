//! Private root of a process, in its own mount, PID and user namespaces.
//!
//! When the first process of the namespaces dies, the kernel kills its children and unmounts its file
//! systems. Where unprivileged user namespaces are enabled, no root privileges are needed.

use super::archive;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// Mount point of the new root, private to this process.
const PLACE: &str = "/tmp";

/// Mount options: by default the size is half of the memory.
const OPTIONS: &str = "mode=0755";

/// Runs `body` in a root in memory with the contents of `archive`. Returns the exit status.
///
/// # Errors
/// Returns the reason why the root cannot be created, with a remedy.
pub fn in_memory(archive: &File, body: impl FnOnce() -> ExitCode) -> Result<ExitCode, String> {
    in_namespaces(|| {
        let place = Path::new(PLACE);
        mount("tmpfs", place, "tmpfs", 0, OPTIONS)?;
        archive::unpack(archive, place)?;
        change_root(place)?;
        Ok(body())
    })
}

/// Runs `body` with a directory as root. Returns the exit status.
///
/// # Errors
/// Same as [`in_memory`].
pub fn in_directory(root: &Path, body: impl FnOnce() -> ExitCode) -> Result<ExitCode, String> {
    in_namespaces(|| {
        let root = root.canonicalize()?;
        let source = root.to_string_lossy().into_owned();
        mount(&source, &root, "", libc::MS_BIND | libc::MS_REC, "")?;
        change_root(&root)?;
        Ok(body())
    })
}

/// Runs `body` as the first process of new namespaces.
fn in_namespaces(body: impl FnOnce() -> io::Result<ExitCode>) -> Result<ExitCode, String> {
    unshare().map_err(|error| refusal(&error))?;
    // A change of credentials clears the death signal, so it is set afterwards.
    die_with_parent().map_err(|error| refusal(&error))?;
    // SAFETY: this process has one thread, so the child is unrestricted.
    match unsafe { libc::fork() } {
        -1 => Err(refusal(&io::Error::last_os_error())),
        0 => std::process::exit(run_first(body)),
        child => Ok(wait(child)),
    }
}

/// Enters new namespaces.
fn unshare() -> io::Result<()> {
    // SAFETY: both take no arguments.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    // SAFETY: takes flags only, and this process has one thread.
    if unsafe { libc::unshare(spaces | libc::CLONE_NEWUSER) } == 0 {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        return fs::write("/proc/self/gid_map", format!("0 {group} 1"));
    }
    // The superuser needs no user namespace.
    // SAFETY: as above.
    check(unsafe { libc::unshare(spaces) })
}

/// Runs the first process of the namespaces, which dies with its parent.
fn run_first(body: impl FnOnce() -> io::Result<ExitCode>) -> i32 {
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

/// Changes the root to `root`, with `/dev/null` and, if allowed, `/proc`.
fn change_root(root: &Path) -> io::Result<()> {
    for directory in ["dev", "proc", "tmp"] {
        fs::create_dir_all(root.join(directory))?;
    }
    let null = root.join("dev/null");
    if !null.exists() {
        File::create(&null)?;
    }
    mount("/dev/null", &null, "", libc::MS_BIND, "")?;
    let _is_optional = mount("proc", &root.join("proc"), "proc", 0, "");
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

/// Waits for the first process. Returns its exit status.
fn wait(child: libc::pid_t) -> ExitCode {
    let mut status = 0;
    loop {
        // SAFETY: a local variable.
        let reaped = unsafe { libc::waitpid(child, &raw mut status, 0) };
        let interrupted = io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if reaped == child || !interrupted {
            break;
        }
    }
    if libc::WIFEXITED(status) {
        ExitCode::from(libc::WEXITSTATUS(status) as u8)
    } else {
        ExitCode::FAILURE
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
            "unprivileged user namespaces are disabled ({error}): sudo sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0 or kernel.unprivileged_userns_clone=1, \
             or start the container with --cap-add SYS_ADMIN"
        ),
        Some(libc::ENOSPC | libc::ENOMEM) => {
            format!("not enough memory for a root ({error}): stop large processes")
        }
        _ => format!("cannot create a private root: {error}"),
    }
}
