//! User-mode Linux: a kernel that is a process of this host, and whose processes are
//! processes of this host that it traces.
//!
//! It is its own VMM, and has neither ports nor a clock of its own: records leave by a
//! serial line that is this process's standard output, a power-off is its end, and the
//! time stamp counter is the host's. It is the distribution's package, and leaves no
//! files: its memory has no name, and it is given no directory for its sockets.

use super::disk::GuestDisk;
use super::{machine_facts, named, Root};
use crate::guest::{BootClock, Recipe};
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use trapline_abi::job::{Console, CPUS};
use trapline_abi::Job;
use trapline_host::cache::Kind;
use trapline_host::exit_status::ExitCodes;
use trapline_host::package::Package;
use trapline_host::process::Command;
use trapline_host::{package, sha256_of_file, Cache, Error, Facts, Part};
use trapline_model::GuestConfig;
use trapline_sim::settings::Settings;

/// Its package, without modules, of which nothing here needs one.
const PACKAGE: Package = Package {
    kind: Kind::Uml,
    names: &["user-mode-linux"],
    program: "usr/bin/linux.uml",
    without: &["usr/lib"],
};

/// What it is told: its first serial line is standard output, as bytes and not as text,
/// and its console standard error; there is no other, no file of the host can be mounted,
/// nor any be left behind, and where it would restart it ends. For the rest as other
/// guests are told.
const WORDS: &str = "con=null con0=null,fd:2 ssl=null ssl0=null,fd:1 console=tty0 \
                     hostfs=/dev/null uml_dir=/dev/null/ noreboot quiet loglevel=4 \
                     norandmaps panic=-1";

/// How it is run.
///
/// # Errors
/// Something that it is made of is missing, or there is no room for its memory.
pub fn recipe(settings: &Settings, machine: &GuestConfig) -> Result<UserMode, Error> {
    check_room(machine)?;
    let directory = PACKAGE.fetched(&settings.cache)?;
    let root = Root::new(settings)?;
    let mut facts = root.facts()?;
    facts.extend(machine_facts(machine));
    Ok(UserMode {
        program: directory.join(PACKAGE.program),
        agent: settings.parts.get(Part::Agent)?,
        initrd: root.file()?,
        facts,
        machine: *machine,
        settings: settings.clone(),
    })
}

/// Whether it can be had, and may trace its processes.
///
/// # Errors
/// Why not, with what mends it.
pub fn check(cache: &Cache) -> Result<(), Error> {
    let missing = |reason: &str| Err(Error::unavailable(reason.to_owned()));
    if PACKAGE.in_cache(cache).is_none() && !PACKAGE.is_known()? {
        return missing(NO_PACKAGE);
    }
    match (filtered(), scope()) {
        (true, _) => missing(FILTERED),
        (_, 2..) => missing(RESTRICTED),
        _ => Ok(()),
    }
}

/// What is known about it before it is started.
pub fn facts(cache: &Cache) -> Facts {
    let Some(directory) = PACKAGE.in_cache(cache) else {
        return Facts::new();
    };
    let mut facts = named([
        ("guest-kernel", package::origin(&directory)),
        ("guest-command-line", WORDS.to_owned()),
    ]);
    if let Ok(hash) = sha256_of_file(&directory.join(PACKAGE.program)) {
        facts.insert("guest-kernel-sha256".to_owned(), hash);
    }
    facts
}

const NO_PACKAGE: &str = "the distribution has no package user-mode-linux: sudo apt-get update \
                          (Debian has one)";
const FILTERED: &str = "no process may trace another here (a seccomp filter forbids ptrace), and \
                        user-mode Linux traces its processes: start the container with \
                        --cap-add SYS_PTRACE";
const RESTRICTED: &str = "only an administrator may trace processes here, and user-mode Linux \
                          traces its own: sudo sysctl kernel.yama.ptrace_scope=1";

/// Whether the kernel does not even look at what is asked of ptrace(2): going on with a
/// process that is not traced is no such process.
fn filtered() -> bool {
    // SAFETY: takes numbers only; nobody traces this process, or it is not ours to go on.
    let done = unsafe { libc::ptrace(libc::PTRACE_CONT, libc::getpid(), 0, 0) };
    let error = std::io::Error::last_os_error().raw_os_error();
    done != 0 && error != Some(libc::ESRCH)
}

/// The scope of Yama (Linux `Documentation/admin-guide/LSM/Yama.rst`): from 2 on a process
/// may not ask to be traced.
fn scope() -> u32 {
    let told = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    told.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// Where its memory is, as a file without a name.
const SHARED_MEMORY: &str = "/dev/shm";

/// # Errors
/// Its memory does not fit where it puts it, so that it would be killed when it uses it.
fn check_room(machine: &GuestConfig) -> Result<(), Error> {
    let about = rustix::fs::statvfs(SHARED_MEMORY);
    let about = about.map_err(|error| Error::file(SHARED_MEMORY)(error.into()))?;
    let available = (about.f_bavail * about.f_frsize) >> 20;
    match available >= u64::from(machine.memory_mib) {
        true => Ok(()),
        false => Err(Error::unavailable(format!(
            "user-mode Linux needs {} MiB in {SHARED_MEMORY}, {available} MiB are available: \
             sudo mount -o remount,size=2G {SHARED_MEMORY}, or start the container with \
             --shm-size 2g",
            machine.memory_mib
        ))),
    }
}

/// A user-mode Linux.
pub struct UserMode {
    program: PathBuf,
    agent: PathBuf,
    initrd: Arc<File>,
    facts: Facts,
    machine: GuestConfig,
    /// They say where its disk is to be.
    settings: Settings,
}

impl Recipe for UserMode {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let mut command = Command::new(&self.program).guarded_by(&self.agent);
        let mut job = Job {
            console: Console::Serial,
            ports: false,
            ..*job
        };
        if let Some(disk) = GuestDisk::of(&self.settings, &job)? {
            let number = disk.to_user_mode(&mut command);
            command = command.words(&format!("ubd0=/proc/self/fd/{number}"));
            job = disk.job(&job, "ubda");
        }
        let initrd = command.pass_file(Arc::clone(&self.initrd));
        let GuestConfig {
            memory_mib, cpus, ..
        } = self.machine;
        Ok(command
            .words(&format!("mem={memory_mib}M initrd=/proc/self/fd/{initrd}"))
            .words(&format!("{WORDS} {CPUS}{cpus} {job}")))
    }

    fn exit_codes(&self) -> ExitCodes {
        ExitCodes::AGENT
    }

    fn clock(&self) -> BootClock {
        BootClock::Ours
    }

    fn facts(&self) -> Facts {
        self.facts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_there_is_room_for_is_refused() {
        let machine = |memory_mib| GuestConfig {
            memory_mib,
            ..GuestConfig::DEFAULT
        };
        assert!(check_room(&machine(1)).is_ok());
        let reason = check_room(&machine(u32::MAX)).unwrap_err().to_string();
        assert!(reason.contains("--shm-size"), "{reason}");
    }
}
