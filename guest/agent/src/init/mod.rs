//! Process 1 of a simulated machine: it follows a script and says what happened.
//!
//! The lab boots a distribution's kernel with an initramfs that holds this
//! program, a [`script`] that makes the machine ready, and what is to be started
//! on it. Then the machine pauses, and may be saved; when it goes on, a second
//! script says what to do: the [`job`]. Everything is told as
//! records through a [`port`] of the machine: no terminal, no interrupt and no
//! buffer of a driver lies in between, so that two runs of a machine say the same
//! bytes. While something is measured this program sleeps; see [`guest`].

mod alone;
mod beside;
mod cycles;
mod disk;
pub mod drivers;
mod foreign;
mod guest;
mod job;
mod line;
mod log;
mod network;
mod port;
mod script;
mod settle;
mod xen;

pub use port::Right;

use beside::Beside;
use port::Port;
use script::{Kind, Step};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;
use trapline_abi::record::Speaker;
use trapline_abi::{Record, VERSION};
use trapline_spawn::ticks;

/// Where the initramfs has the script that makes the machine ready.
const READINESS: &str = "/trapline/script";

/// What went wrong, for people.
type Trouble = String;

/// Does what there is to be done, then ends the machine. `main` is the clock at the
/// program's beginning, in ticks.
pub fn main(main: u64) -> ! {
    let task = mount("proc", "/proc").and_then(|()| alone::task());
    if let Ok(Some(task)) = task {
        alone::run(&task, main)
    }
    let port = match Port::open() {
        Ok(port) => port,
        // Without the port there is no way to say so; the kernel will, on its
        // console, when its init ends.
        Err(error) => panic!("no access to the machine's ports: {error}"),
    };
    std::panic::set_hook(Box::new(|info| last_words(&info.to_string())));
    look_after_devices();
    match task {
        Ok(_) => be_init(port),
        Err(error) => last_words(&format!("/proc: {error}")),
    }
}

/// Does what there is to be done with devices; then this does not come back.
fn look_after_devices() {
    let looked = disk::look().and_then(|looked| Ok(network::look()? || looked));
    let looked = looked.and_then(|looked| Ok(looked || cycles::supervise()?));
    let done = looked.and_then(|looked| match looked {
        true => Port::opened().end(trapline_abi::platform::EXIT_DONE),
        false => log::keep(),
    });
    match done {
        Ok(false) => {}
        Ok(true) => power_off(),
        Err(trouble) => {
            // Whoever has no such port reads the console.
            println!("{trouble}");
            last_words(&trouble)
        }
    }
}

/// Ends the machine as somebody who uses it does.
fn power_off() -> ! {
    // SAFETY: a number that every kernel knows.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    last_words("the kernel cannot power this machine off")
}

/// Follows the scripts of a simulated machine.
fn be_init(mut port: Port) -> ! {
    port.say(&hello(), ticks());
    match follow_scripts(&mut port) {
        Ok(()) => {
            port.say(&Record::Done, ticks());
            port.end(trapline_abi::platform::EXIT_DONE)
        }
        Err(trouble) => last_words(&trouble),
    }
}

fn hello() -> Record<'static> {
    Record::Hello {
        version: VERSION,
        speaker: Speaker::Agent,
        ring: 3,
        memory: 0,
        planned: 0,
    }
}

/// Says what is wrong and ends the machine.
fn last_words(message: &str) -> ! {
    let mut port = Port::opened();
    let message = trapline_abi::frame::clip(message);
    port.say(&Record::Panic { message }, ticks());
    port.end(trapline_abi::platform::EXIT_PANIC)
}

fn follow_scripts(port: &mut Port) -> Result<(), Trouble> {
    mount_all()?;
    let readiness = fs::read_to_string(READINESS);
    let readiness = readiness.map_err(|error| format!("{READINESS}: {error}"))?;
    follow(READINESS, &readiness, port)?;
    settle::across(|| port.pause());
    let job = job::read(port).map_err(|error| format!("job: {error}"))?;
    follow("job", &job, port)
}

fn follow(name: &str, script: &str, port: &mut Port) -> Result<(), Trouble> {
    let mut beside = Beside::default();
    for (line, number) in script.lines().zip(1..) {
        let at_line = |trouble| format!("{name}, line {number}: {trouble}");
        let step = script::parse(line).map_err(at_line)?;
        take(&step, &mut beside, port).map_err(at_line)?;
    }
    Ok(())
}

fn take(step: &Step<'_>, beside: &mut Beside, port: &mut Port) -> Result<(), Trouble> {
    match step {
        Step::Module { path, options } => {
            insert_module(path, options).map_err(|error| format!("module {path}: {error}"))
        }
        Step::Write { path, text } => {
            fs::write(path, text).map_err(|error| format!("{path}: {error}"))
        }
        Step::Wait { path, text } => {
            wait_until(path, text).map_err(|error| format!("{path}: {error}"))
        }
        Step::Xen { programs, domain } => xen::become_first_domain(programs, domain),
        Step::Load(load) => beside
            .start(load)
            .map_err(|error| format!("{}: {error}", load.program)),
        Step::Sched(rules) => {
            beside.set_rules(*rules);
            Ok(())
        }
        Step::Launch(launch) => {
            let ran = match launch.kind {
                Kind::Foreign => foreign::run(launch, port),
                Kind::Xen | Kind::XenAsked => xen::run(launch, port),
                Kind::Ours | Kind::Asked => guest::run(launch, beside, port),
            };
            ran.map_err(|error| format!("{}: {error}", launch.program))
        }
    }
}

/// How often a file is looked at, a hundredth of a second apart.
const LOOKS: u32 = 1000;

fn wait_until(path: &str, text: &str) -> io::Result<()> {
    for _ in 0..LOOKS {
        if fs::read_to_string(path)?.trim_end() == text {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::other(format!("does not become '{text}'")))
}

fn mount_all() -> Result<(), Trouble> {
    for (kind, at) in [
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("debugfs", "/sys/kernel/debug"),
    ] {
        mount(kind, at).map_err(|error| format!("mount {kind} at {at}: {error}"))?;
    }
    Ok(())
}

/// Mounts a file system of this kind, which has no device.
///
/// # Errors
/// The kernel's refusal.
pub fn mount(kind: &str, at: &str) -> io::Result<()> {
    mount_from(kind, kind, at)
}

fn mount_from(source: &str, kind: &str, at: &str) -> io::Result<()> {
    if !Path::new(at).exists() {
        fs::create_dir(at)?;
    }
    let source = CString::new(source)?;
    let (kind, at) = (CString::new(kind)?, CString::new(at)?);
    // SAFETY: three strings that outlive the call, and no data for the filesystem.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    zero_or_error(result.into())
}

fn insert_module(path: &str, options: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let options = CString::new(options)?;
    // SAFETY: an open descriptor, a string that outlives the call, and no flags.
    let result = unsafe {
        libc::syscall(
            libc::SYS_finit_module,
            file.as_raw_fd(),
            options.as_ptr(),
            0,
        )
    };
    zero_or_error(result)
}

fn zero_or_error(result: libc::c_long) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
