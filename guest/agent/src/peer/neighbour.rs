//! Another guest: the receiver of numbered frames ([`trapline_abi::packet`]), on a switch or behind a bridge.
//!
//! Switch or bridge, and the receiver, are children of this process, which executes the VMM of the measured guest. The sockets of
//! a switch are in a directory that exists only until both guests are connected.

use super::words::{Neighbour, Way};
use super::{limit_lifetime, tap};
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{available_parallelism, sleep};
use std::time::Duration;
use trapline_abi::packet::{READY, RECEIVER, SENDER};

/// Ports of the receiver and of the measured guest. The switch opens them in this order.
const PORTS: [&str; 2] = ["receiver", "sender"];

/// Attempts to connect to the switch, and the time between them.
const ATTEMPTS: u32 = 5000;
const PAUSE: Duration = Duration::from_millis(2);

/// Prefix of the path of a descriptor that a program inherits.
const INHERITED: &str = "/proc/self/fd/";

/// Starts the other guest, and what connects it. Returns the option of a network card for a program that this process executes.
///
/// # Errors
/// One of them cannot be started.
pub fn start(neighbour: &Neighbour<'_>) -> Result<String, String> {
    match neighbour.way {
        Way::Switch(path) => start_on_switch(path, neighbour.guest),
        Way::Bridge { by_kernel } => start_behind_bridge(by_kernel, neighbour.guest),
    }
}

fn start_on_switch(path: &str, guest: &[String]) -> Result<String, String> {
    let directory =
        create_directory("switch").map_err(|error| format!("sockets of a switch: {error}"))?;
    let started = start_in(&directory, path, guest);
    // The connections remain.
    let _remains = fs::remove_dir_all(&directory);
    let socket = started?;
    let fd = socket.into_raw_fd();
    Ok(format!("vhost-user=/proc/self/fd/{fd},{}", mac(SENDER)))
}

/// Creates a directory for sockets of this process, which only this user may enter.
///
/// # Errors
/// It cannot be created.
pub fn create_directory(purpose: &str) -> io::Result<PathBuf> {
    let parent = std::env::temp_dir();
    fs::create_dir_all(&parent)?;
    let directory = parent.join(format!("trapline-{purpose}-{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&directory)?;
    Ok(directory)
}

fn start_in(directory: &Path, path: &str, guest: &[String]) -> Result<UnixStream, String> {
    let [receiver, sender] = PORTS.map(|port| directory.join(port));
    start_switch(path, [&receiver, &sender]).map_err(|error| format!("{path}: {error}"))?;
    let socket = connect(&sender).map_err(|error| format!("{}: {error}", sender.display()))?;
    let card = format!("vhost-user={},{}", receiver.display(), mac(RECEIVER));
    start_receiver(guest, &card, None)?;
    Ok(socket)
}

/// The same with a bridge of Linux between two taps, whose frames each VMM moves, or the kernel for it.
fn start_behind_bridge(by_kernel: bool, guest: &[String]) -> Result<String, String> {
    let taps = tap::start_bridge()?;
    let card = |tap: &OwnedFd, station: u8| {
        let kernel = if by_kernel { ",vhost=on" } else { "" };
        format!("fd={},{}{kernel}", tap.as_raw_fd(), mac(station))
    };
    let [receiver, sender] = taps;
    let fd = receiver.as_raw_fd();
    start_receiver(guest, &card(&receiver, RECEIVER), Some(fd))?;
    let card = card(&sender, SENDER);
    // It is inherited, and closed by the VMM.
    let _inherited = sender.into_raw_fd();
    Ok(card)
}

/// Returns the option with the address of a guest's card.
fn mac(station: u8) -> String {
    format!("mac=02:00:00:00:00:{station:02x}")
}

fn start_switch(path: &str, ports: [&Path; 2]) -> io::Result<Child> {
    let mut command = Command::new(path);
    for port in ports {
        command.arg("--listen").arg(port);
    }
    // Where the guests need the CPU, polling delays them.
    if available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
        command.args(["--sleep-after", "0"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    spawn(&mut command, Vec::new())
}

/// Starts the receiver with a card, and waits until it receives. It inherits the descriptor of the card, and those of files in
/// its words.
fn start_receiver(words: &[String], card: &str, card_fd: Option<RawFd>) -> Result<(), String> {
    let start = || {
        let [program, arguments @ ..] = words else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut command = Command::new(program);
        command.args(["--net", card]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let files = words
            .iter()
            .filter_map(|word| word.strip_prefix(INHERITED)?.parse().ok());
        let inherited = files.chain(card_fd).collect();
        wait_for_receiver(&mut spawn(&mut command, inherited)?)
    };
    start().map_err(|error| format!("the receiving guest: {error}"))
}

/// Starts a child, which is killed with this process and inherits only some of its descriptors.
fn spawn(command: &mut Command, inherited: Vec<RawFd>) -> io::Result<Child> {
    let prepare = move || {
        // SAFETY: takes numbers. The descriptors are closed by `exec`.
        unsafe {
            libc::syscall(
                libc::SYS_close_range,
                3,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        for fd in &inherited {
            // SAFETY: changes flags of an open descriptor.
            unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) };
        }
        limit_lifetime()
    };
    // SAFETY: between fork and exec the child makes system calls only.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Connects to the switch when it listens. The socket is inherited by a program that this process executes.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let mut connected = UnixStream::connect(path);
    for _ in 0..ATTEMPTS {
        if connected.is_ok() {
            break;
        }
        sleep(PAUSE);
        connected = UnixStream::connect(path);
    }
    let socket = connected?;
    // SAFETY: changes flags of an open descriptor.
    match unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, 0) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until the receiver has printed that it receives.
fn wait_for_receiver(guest: &mut Child) -> io::Result<()> {
    let Some(output) = &mut guest.stdout else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(READY.as_bytes()) {
        if output.read(&mut byte)? == 0 {
            let text = String::from_utf8_lossy(&text);
            return Err(io::Error::other(format!("it has ended: {text}")));
        }
        text.push(byte[0]);
    }
    Ok(())
}
