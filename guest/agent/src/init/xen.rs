//! Sets up this Linux as the first domain of Xen, and starts other domains.
//!
//! This uses the programs of Xen: the daemons, and `xl`, which starts a domain and exits when the
//! domain ends. `xenconsoled` reads the console ring of the domain; its log is a pipe here, which is
//! read directly.

use super::guest::{self, Toolstack};
use super::script::Launch;
use super::Message;
use crate::devices::Devices;
use crate::sys::{mount, wait_readable, zero_or_error};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trapline_abi::platform::DOMAIN;
use trapline_spawn::{Program, Started};

/// Directories that the programs of Xen require.
const DIRECTORIES: [&str; 7] = [
    "/dev/pts",
    "/run/lock",
    "/run/xen",
    "/run/xenstored",
    "/var/lib/xen",
    "/var/lib/xenstored",
    CONSOLES,
];

/// Log directory of xenconsoled.
const CONSOLES: &str = "/var/log/xen/console";

/// Files of running daemons.
const STORE: &str = "/run/xenstored/socket";
const CONSOLE_DAEMON: &str = "/run/xenconsoled.pid";

/// Sets up this Linux as the first domain, with the programs in a directory, and creates the domain
/// of a configuration file once.
pub fn become_first_domain(programs: &str, domain: &str) -> Result<(), Message> {
    prepare().map_err(|error| format!("cannot prepare directories for Xen: {error}"))?;
    let run = |name: &str, arguments: &[&str]| execute(&format!("{programs}/{name}"), arguments);
    run("xenstored", &["--pid-file=/run/xenstored.pid"])?;
    wait_for_file(STORE)?;
    run("xen-init-dom0", &[])?;
    let pid = format!("--pid-file={CONSOLE_DAEMON}");
    run("xenconsoled", &[&pid, "--log=guest", "--timestamp=none"])?;
    wait_for_file(CONSOLE_DAEMON)?;
    create_once(&format!("{programs}/xl"), domain)
}

/// Creates and destroys a domain that never runs. The first domain costs more than later ones:
/// before it maps the first page of a domain, the kernel allocates page structures for 128 MiB of
/// memory, once.
fn create_once(toolstack: &str, domain: &str) -> Result<(), Message> {
    // The log of its console can be written only while it has a reader.
    let _console = console().map_err(|error| format!("{}: {error}", log()))?;
    execute(toolstack, &["create", "-e", "-p", "-q", domain])?;
    execute(toolstack, &["destroy", DOMAIN])
}

/// Opens the console of the domain, non-blocking.
fn console() -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(log())
}

/// `rand_pool_info` (Linux `include/uapi/linux/random.h`) with enough bytes to seed the kernel's
/// random numbers.
#[repr(C)]
struct Seed {
    bits: libc::c_int,
    size: libc::c_int,
    bytes: [u8; 64],
}

/// `RNDADDENTROPY`.
const ADD_ENTROPY: libc::c_ulong = 0x4008_5203;

/// Seeds the kernel's random numbers with a constant. The machine has no source of entropy, and
/// programs would wait for seconds without a seed.
fn seed() -> io::Result<()> {
    let random = File::options().write(true).open("/dev/random")?;
    let seed = Seed {
        bits: 512,
        size: 64,
        bytes: [0x5a; 64],
    };
    // SAFETY: an open descriptor, and the structure that the request reads.
    let result = unsafe { libc::ioctl(random.as_raw_fd(), ADD_ENTROPY, &raw const seed) };
    zero_or_error(result.into())
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
    zero_or_error(unsafe { libc::mkfifo(log.as_ptr(), 0o600) }.into())
}

fn log() -> String {
    format!("{CONSOLES}/guest-{DOMAIN}.log")
}

/// Output of a program. Not a pipe, because daemons keep it open.
const OUTPUT: &str = "/tmp/output";

/// Runs a program until it exits or becomes a daemon.
fn execute(program: &str, arguments: &[&str]) -> Result<(), Message> {
    let failure = |error: io::Error| format!("{program}: {error}");
    let output = File::create(OUTPUT).map_err(failure)?;
    let status = Command::new(program)
        .args(arguments)
        .stdout(output.try_clone().map_err(failure)?)
        .stderr(output)
        .status()
        .map_err(failure)?;
    if status.success() {
        return Ok(());
    }
    let output = fs::read_to_string(OUTPUT).unwrap_or_default();
    Err(format!("{program}: {status}: {}", output.trim()))
}

/// Maximum number of checks for a file, every 10 ms.
const MAX_CHECKS: u32 = 1000;

fn wait_for_file(path: &str) -> Result<(), Message> {
    for _ in 0..MAX_CHECKS {
        if Path::new(path).exists() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(format!("{path} does not exist"))
}

/// Writes a line to the terminal that xenconsoled creates for a domain, as soon as it exists. Fails if
/// the toolstack exits before.
fn write_to_console(line: &str, toolstack: &Started) -> io::Result<File> {
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
        if wait_readable(&[toolstack.pidfd.as_fd()], CHECK_INTERVAL)? {
            return Err(io::ErrorKind::NotFound.into());
        }
    }
}

/// Interval of checks for a terminal, in milliseconds.
const CHECK_INTERVAL: u64 = 10;

/// Returns the terminal of the only domain.
fn terminal() -> io::Result<Option<PathBuf>> {
    let entries = fs::read_dir("/dev/pts")?.flatten();
    let is_number = |name: &str| name.parse::<u32>().is_ok();
    let mut found = entries.filter(|entry| is_number(&entry.file_name().to_string_lossy()));
    Ok(found.next().map(|entry| entry.path()))
}

/// Runs the toolstack until its domain ends, and sends the records of both. Destroys a domain that
/// still exists afterwards.
pub fn run(launch: &Launch<'_>, devices: &mut Devices) -> io::Result<()> {
    let console = console()?;
    guest::configure_pipe(&console)?;
    let guest = guest::start(launch, &[], File::open("/dev/null")?.as_fd())?;
    // If it were closed, xenconsoled would create it again.
    let _terminal = launch
        .console_line()
        .map(|line| write_to_console(line, &guest.started));
    let killed =
        guest
            .with_console(console)
            .finish(&[], launch.seconds, || Ok(String::new()), devices)?;
    if killed {
        execute(launch.program, &["destroy", DOMAIN]).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Runs the toolstack, which creates a domain that is paused, and a VMM that unpauses and serves it, until both end.
/// Sends the records of the VMM.
pub fn run_vmm(launch: &Launch<'_>, devices: &mut Devices) -> io::Result<()> {
    let (arguments, mut vmm) = launch.split_vmm().ok_or(io::ErrorKind::InvalidInput)?;
    // The log of the domain's console can be written only while it has a reader.
    let _console = console()?;
    let (toolstack, id) = create_paused(launch.program, arguments)?;
    let id = id.to_string();
    vmm.arguments.push(&id);
    let guest = guest::start(&vmm, &[], File::open("/dev/null")?.as_fd())?;
    let guest = guest.with_toolstack(toolstack);
    let seconds = launch.seconds;
    guest
        .finish(&[], seconds, || Ok(String::new()), devices)
        .map(drop)
}

/// Starts the toolstack, and waits until it has created a domain. Returns the ID of the domain.
fn create_paused(toolstack: &str, arguments: &[&str]) -> io::Result<(Toolstack, u16)> {
    let mut program = Program::new(Path::new(toolstack))?;
    for argument in arguments {
        program.argument(argument)?;
    }
    let (mut errors, errors_end) = guest::stream()?;
    let null = File::open("/dev/null")?;
    for end in [null.as_fd(), errors_end.as_fd(), errors_end.as_fd()] {
        program.descriptor(end)?;
    }
    let started = trapline_spawn::start(&program)?;
    drop((program, errors_end));
    let mut messages = Vec::new();
    loop {
        wait_readable(&[errors.as_fd()], u64::from(u32::MAX))?;
        // The end of the messages is that of the toolstack.
        match errors.read_to_end(&mut messages) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => {
                result?;
                started.reap()?;
                let messages = String::from_utf8_lossy(&messages);
                return Err(io::Error::other(messages.trim().to_owned()));
            }
        }
        if let Some(id) = domain_id(&String::from_utf8_lossy(&messages)) {
            let program = toolstack.to_owned();
            let destroy = move || execute(&program, &["destroy", DOMAIN]).map_err(io::Error::other);
            let toolstack = Toolstack {
                started,
                errors,
                destroy: Box::new(destroy),
            };
            return Ok((toolstack, id));
        }
    }
}

/// Returns the ID of a created domain from the messages of `xl`: "Waiting for domain NAME (domid ID) to die".
fn domain_id(messages: &str) -> Option<u16> {
    let (_, rest) = messages.split_once("(domid ")?;
    rest.split_once(')')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_the_domain_is_found_in_the_messages_of_xl() {
        let messages =
            "Parsing config from /d\nWaiting for domain trapline (domid 12) to die [pid 9]\n";
        assert_eq!(domain_id(messages), Some(12));
        assert_eq!(domain_id("Parsing config from /d\n"), None);
        assert_eq!(domain_id("Waiting for domain trapline (domid"), None);
    }
}
