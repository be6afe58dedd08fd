//! Being the first domain of a Xen, and starting others.
//!
//! Xen's own programs do that: the daemons that a distribution starts at boot, and
//! `xl`, which starts a domain, stays with it and ends when it has ended. A domain
//! speaks through a ring that `xenconsoled` reads; the log that it keeps is a pipe
//! here, so that nothing lies in between and nobody has to look for it.

use super::guest;
use super::port::Port;
use super::script::Launch;
use super::{mount, Trouble};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trapline_abi::platform::DOMAIN;
use trapline_spawn::Started;

/// Directories that its programs take for granted.
const DIRECTORIES: [&str; 7] = [
    "/dev/pts",
    "/run/lock",
    "/run/xen",
    "/run/xenstored",
    "/var/lib/xen",
    "/var/lib/xenstored",
    CONSOLES,
];

/// Where xenconsoled keeps its logs, by its own rules.
const CONSOLES: &str = "/var/log/xen/console";

/// What shows that a daemon is there.
const STORE: &str = "/run/xenstored/socket";
const CONSOLE_DAEMON: &str = "/run/xenconsoled.pid";

/// Makes this Linux the first domain, with Xen's programs from a directory, and makes
/// the domain that a file describes, once.
pub fn become_first_domain(programs: &str, domain: &str) -> Result<(), Trouble> {
    prepare().map_err(|error| format!("what Xen's programs need: {error}"))?;
    let run = |name: &str, arguments: &[&str]| execute(&format!("{programs}/{name}"), arguments);
    run("xenstored", &["--pid-file=/run/xenstored.pid"])?;
    appears(STORE)?;
    run("xen-init-dom0", &[])?;
    let pid = format!("--pid-file={CONSOLE_DAEMON}");
    run("xenconsoled", &[&pid, "--log=guest", "--timestamp=none"])?;
    appears(CONSOLE_DAEMON)?;
    rehearse(&format!("{programs}/xl"), domain)
}

/// Makes a domain that never runs, and takes it apart. The first one of all costs more
/// than those after it: the kernel lays out descriptions of 128 MiB of memory before
/// it maps a domain's first page, for good.
fn rehearse(toolstack: &str, domain: &str) -> Result<(), Trouble> {
    // Its console's log cannot be written while nobody reads it.
    let _console = console().map_err(|error| format!("{}: {error}", log()))?;
    execute(toolstack, &["create", "-e", "-p", "-q", domain])?;
    execute(toolstack, &["destroy", DOMAIN])
}

/// What the domain says, to be read without waiting.
fn console() -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(log())
}

/// `rand_pool_info` (Linux `include/uapi/linux/random.h`) with as much as the kernel's
/// random numbers need to begin.
#[repr(C)]
struct Seed {
    bits: libc::c_int,
    size: libc::c_int,
    bytes: [u8; 64],
}

/// `RNDADDENTROPY`.
const ADD_ENTROPY: libc::c_ulong = 0x4008_5203;

/// Lets the kernel's random numbers begin, always the same. The machine makes none, and
/// without this programs would wait for seconds until the kernel has seen enough.
fn seed() -> io::Result<()> {
    let random = File::options().write(true).open("/dev/random")?;
    let seed = Seed {
        bits: 512,
        size: 64,
        bytes: [0x5a; 64],
    };
    // SAFETY: an open descriptor, and the structure that the request reads.
    let result = unsafe { libc::ioctl(random.as_raw_fd(), ADD_ENTROPY, &raw const seed) };
    super::zero_or_error(result.into())
}

fn prepare() -> io::Result<()> {
    seed()?;
    for directory in DIRECTORIES {
        fs::create_dir_all(directory)?;
    }
    std::os::unix::fs::symlink("/run", "/var/run")?;
    mount("devpts", "/dev/pts")?;
    mount("xenfs", "/proc/xen")?;
    let log = CString::new(log())?;
    // SAFETY: a string that outlives the call, and a mode.
    super::zero_or_error(unsafe { libc::mkfifo(log.as_ptr(), 0o600) }.into())
}

fn log() -> String {
    format!("{CONSOLES}/guest-{DOMAIN}.log")
}

/// What a program says; a daemon keeps what it was given, so it cannot be a pipe
/// whose end is waited for.
const WORDS: &str = "/tmp/words";

/// Runs a program to its end, or until it has become a daemon.
fn execute(program: &str, arguments: &[&str]) -> Result<(), Trouble> {
    let told = |error: io::Error| format!("{program}: {error}");
    let words = File::create(WORDS).map_err(told)?;
    let status = Command::new(program)
        .args(arguments)
        .stdout(words.try_clone().map_err(told)?)
        .stderr(words)
        .status()
        .map_err(told)?;
    if status.success() {
        return Ok(());
    }
    let words = fs::read_to_string(WORDS).unwrap_or_default();
    Err(format!("{program}: {status}: {}", words.trim()))
}

/// How often it is looked whether a daemon is there, a hundredth of a second apart.
const LOOKS: u32 = 1000;

fn appears(path: &str) -> Result<(), Trouble> {
    for _ in 0..LOOKS {
        if Path::new(path).exists() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(format!("{path} does not appear"))
}

/// Writes a line to the terminal that xenconsoled makes for a domain, once it is
/// there; nothing if the toolstack ends before.
fn answer(line: &str, toolstack: &Started) -> io::Result<File> {
    loop {
        if let Some(path) = terminal()? {
            let mut terminal = File::options()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NOCTTY)
                .open(path)?;
            terminal.write_all(format!("{line}\n").as_bytes())?;
            return Ok(terminal);
        }
        if guest::ready(&[toolstack.pidfd.as_fd()], LOOK)? {
            return Err(io::ErrorKind::NotFound.into());
        }
    }
}

/// Milliseconds between two looks for a terminal.
const LOOK: u64 = 10;

/// The terminal of the only domain.
fn terminal() -> io::Result<Option<PathBuf>> {
    let entries = fs::read_dir("/dev/pts")?.flatten();
    let is_number = |name: &str| name.parse::<u32>().is_ok();
    let mut found = entries.filter(|entry| is_number(&entry.file_name().to_string_lossy()));
    Ok(found.next().map(|entry| entry.path()))
}

/// Runs the toolstack until its domain has ended, and tells about both. A domain that
/// is still there then is destroyed.
pub fn run(launch: &Launch<'_>, port: &mut Port) -> io::Result<()> {
    let console = console()?;
    guest::set_up(&console)?;
    let guest = guest::start(launch, File::open("/dev/null")?.as_fd())?;
    // Closed, it would be made anew.
    let _terminal = launch.asked().map(|line| answer(line, &guest.started));
    let killed =
        guest
            .speaking_through(console)
            .finish(None, launch.seconds, || Ok(String::new()), port)?;
    if killed {
        execute(launch.program, &["destroy", DOMAIN]).map_err(io::Error::other)?;
    }
    Ok(())
}
