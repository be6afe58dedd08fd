//! User-mode Linux: a kernel that is a process of this host and traces its processes.
//!
//! It has no ports and no clock of its own: records are written to a serial line, which is standard output,
//! its exit is the power-off, and its TSC is the host's. It is the distribution's package. It leaves no files:
//! its memory is unlinked, and it gets no directory for its sockets.

use super::{machine_facts, named, Root};
use crate::guest_disk::{job_with_disk, GuestDisk};
use crate::launch::BootClock;
use crate::process_guest::GuestCommand;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;
use trapline_abi::job::{Console, CPUS};
use trapline_abi::Job;
use trapline_host::cache::Kind;
use trapline_host::exit_status::ExitCodes;
use trapline_host::package::Package;
use trapline_host::process::{Command, Exited};
use trapline_host::{package, sha256_of_file, Cache, Error, Facts, Part};
use trapline_model::layers::Guest;
use trapline_model::GuestConfig;
use trapline_protocol::{EndState, GuestDecoder};
use trapline_sim::settings::Settings;

/// Its package, without modules.
const PACKAGE: Package = Package {
    kind: Kind::Uml,
    names: &["user-mode-linux"],
    program: "usr/bin/linux.uml",
    without: &["usr/lib"],
};

/// Options: the first serial line is standard output, the console is standard error, both unchanged by a line
/// discipline; no other terminals, no mounts of host directories, no files for sockets, exit in place of a
/// reboot. The others are those of all guests.
const OPTIONS: &str = "con=null con0=null,fd:2 ssl=null ssl0=null,fd:1 console=tty0 \
                       hostfs=/dev/null uml_dir=/dev/null/ noreboot quiet loglevel=4 \
                       norandmaps panic=-1";

/// Message of the kernel before it exits.
const HALTED: &str = "reboot: System halted";

/// Buffer of the package's kernel for the extended registers of a process, in bytes: AVX-512 and protection keys
/// (`arch/x86/um/os-Linux/registers.c`). The kernel of the host refuses to set a part of them.
const EXTENDED_STATE: u32 = 2696;

/// Directory of its memory file, which is unlinked.
const SHARED_MEMORY: &str = "/dev/shm";

/// Checks that the package is in the cache or can be downloaded, and that processes can be traced with all their
/// registers.
///
/// # Errors
/// The package is unknown, tracing is restricted, or the processor has too many registers.
pub fn check(cache: &Cache) -> Result<(), Error> {
    if PACKAGE.in_cache(cache).is_none() && !PACKAGE.is_known()? {
        return Err(Error::missing(
            "the distribution has no package user-mode-linux",
            "sudo apt-get update (Debian has one)",
        ));
    }
    if is_ptrace_filtered() {
        return Err(Error::missing(
            "a seccomp filter forbids ptrace, and user-mode Linux traces its processes",
            "start the container with --cap-add SYS_PTRACE",
        ));
    }
    if ptrace_scope() >= 2 {
        return Err(Error::missing(
            "only root may trace processes on this host, and user-mode Linux traces its processes",
            "sudo sysctl kernel.yama.ptrace_scope=1",
        ));
    }
    check_extended_state(extended_state())
}

/// # Errors
/// User-mode Linux cannot keep `bytes` of extended registers.
fn check_extended_state(bytes: u32) -> Result<(), Error> {
    if bytes <= EXTENDED_STATE {
        return Ok(());
    }
    Err(Error::missing(
        format!(
            "this processor has {bytes} bytes of extended registers (AMX), and user-mode Linux keeps \
             {EXTENDED_STATE} of a process"
        ),
        "boot this host with clearcpuid=amx_tile",
    ))
}

/// Returns the size of the extended registers that the host's kernel uses, in bytes (Intel SDM volume 1, 13.2).
fn extended_state() -> u32 {
    core::arch::x86_64::__cpuid_count(0xd, 0).ebx
}

/// Returns facts known before it is started.
pub fn facts(cache: &Cache) -> Facts {
    let Some(directory) = PACKAGE.in_cache(cache) else {
        return Facts::new();
    };
    let mut facts = named([
        ("guest-kernel", package::origin(&directory)),
        ("guest-command-line", OPTIONS.to_owned()),
    ]);
    if let Ok(hash) = sha256_of_file(&directory.join(PACKAGE.program)) {
        facts.insert("guest-kernel-sha256".to_owned(), hash);
    }
    facts
}

/// Returns whether ptrace(2) is filtered: otherwise the kernel reports that this process is not traced.
fn is_ptrace_filtered() -> bool {
    // SAFETY: takes numbers only. This process is not its own tracee, so nothing is continued.
    let result = unsafe { libc::ptrace(libc::PTRACE_CONT, libc::getpid(), 0, 0) };
    let error = std::io::Error::last_os_error().raw_os_error();
    result != 0 && error != Some(libc::ESRCH)
}

/// Returns the scope of Yama (Linux `Documentation/admin-guide/LSM/Yama.rst`): from 2 on, a process cannot
/// request to be traced.
fn ptrace_scope() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = text.ok().and_then(|text| text.trim().parse().ok());
    scope.unwrap_or(0)
}

/// # Errors
/// Its memory does not fit into the file system of its memory file, so that it would be killed later.
fn check_memory(guest: &GuestConfig) -> Result<(), Error> {
    let stat = rustix::fs::statvfs(SHARED_MEMORY);
    let stat = stat.map_err(|error| Error::file(SHARED_MEMORY)(error.into()))?;
    let available = (stat.f_bavail * stat.f_frsize) >> 20;
    if available >= u64::from(guest.memory_mib) {
        Ok(())
    } else {
        Err(Error::missing(
            format!(
                "user-mode Linux needs {} MiB in {SHARED_MEMORY}, {available} MiB are available",
                guest.memory_mib
            ),
            format!(
                "sudo mount -o remount,size=2G {SHARED_MEMORY}, or start the container with \
             --shm-size 2g"
            ),
        ))
    }
}

/// A user-mode Linux.
pub struct UserModeLinux {
    program: PathBuf,
    agent: PathBuf,
    initrd: Arc<File>,
    facts: Facts,
    guest: GuestConfig,
    /// Location of disks.
    settings: Settings,
}

impl UserModeLinux {
    /// Returns a user-mode Linux with configuration `guest`.
    ///
    /// # Errors
    /// The package or a part is missing, or memory is insufficient.
    pub fn new(settings: &Settings, guest: &GuestConfig) -> Result<Self, Error> {
        check_memory(guest)?;
        let directory = PACKAGE.fetched(&settings.cache)?;
        let root = Root::new(settings)?;
        let mut facts = root.facts()?;
        facts.extend(machine_facts(guest));
        Ok(Self {
            program: directory.join(PACKAGE.program),
            agent: settings.parts.get(Part::Agent)?,
            initrd: root.file()?,
            facts,
            guest: *guest,
            settings: settings.clone(),
        })
    }
}

impl GuestCommand for UserModeLinux {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let mut command = Command::new(&self.program).guarded_by(&self.agent);
        let mut job = Job {
            console: Console::Serial,
            ports: false,
            ..*job
        };
        if let Some(disk) = GuestDisk::new(&self.settings, &job, Guest::Linux)? {
            command = disk.for_user_mode_linux(command);
            job = job_with_disk(&job, "ubda");
        }
        let initrd = command.pass_file(Arc::clone(&self.initrd));
        let GuestConfig {
            memory_mib, cpus, ..
        } = self.guest;
        Ok(command
            .words(&format!("mem={memory_mib}M initrd=/proc/self/fd/{initrd}"))
            .words(&format!("{OPTIONS} {CPUS}{cpus} {job}")))
    }

    fn exit_codes(&self) -> ExitCodes {
        ExitCodes::AGENT
    }

    fn clock(&self) -> BootClock {
        BootClock::Host
    }

    /// After the halt, a timer interrupt can abort the exit (docs/internals/linux-guests.md).
    fn check_exit(&self, _: &Job, exited: &Exited, records: &GuestDecoder) -> Result<(), Error> {
        let is_aborted = exited.status.signal() == Some(libc::SIGABRT);
        let is_halted = || records.last_output().contains(HALTED);
        if is_aborted && *records.end() == EndState::Done && is_halted() {
            Ok(())
        } else {
            self.exit_codes().check("linux.uml", exited.status, records)
        }
    }

    fn facts(&self) -> Facts {
        self.facts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::process::ExitStatus;
    use trapline_abi::frame::{encode, MAX_FRAME};
    use trapline_abi::Record;
    use trapline_protocol::NoProbe;

    #[test]
    fn too_many_registers_are_rejected() {
        for bytes in [0, 576, 2440, EXTENDED_STATE] {
            check_extended_state(bytes).unwrap();
        }
        let error = check_extended_state(11_008).unwrap_err();
        expect!["this processor has 11008 bytes of extended registers (AMX), and user-mode Linux keeps 2696 of a process: boot this host with clearcpuid=amx_tile"]
            .assert_eq(&error.to_string());
    }

    fn user_mode_linux() -> UserModeLinux {
        UserModeLinux {
            program: "linux.uml".into(),
            agent: "agent".into(),
            initrd: Arc::new(trapline_host::memory_file("initramfs", b"").unwrap()),
            facts: Facts::new(),
            guest: GuestConfig::DEFAULT,
            settings: Settings::find().unwrap(),
        }
    }

    /// Returns the result of a guest that sends Done if `is_done`, prints `errors` and ends by `signal`.
    fn result(is_done: bool, errors: &str, signal: i32) -> Result<(), String> {
        let mut decoder = GuestDecoder::new(&Job::EMPTY);
        if is_done {
            let mut frame = [0; MAX_FRAME];
            let length = encode(&Record::Done, 1, &mut frame).unwrap();
            decoder.console(&frame[..length], None, &mut NoProbe);
        }
        decoder.errors(errors.as_bytes());
        decoder.close();
        let exited = Exited {
            status: ExitStatus::from_raw(signal),
            end: 1,
            outlived_guest: false,
        };
        let checked = user_mode_linux().check_exit(&Job::EMPTY, &exited, &decoder);
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn only_an_abort_after_done_and_halt_is_success() {
        let halted = "reboot: System halted\nremove_umid_dir failed with err = -20\n";
        assert_eq!(result(true, halted, libc::SIGABRT), Ok(()));
        for (is_done, errors, signal) in [
            (false, halted, libc::SIGABRT),
            (true, "Kernel panic - not syncing\n", libc::SIGABRT),
            (true, halted, libc::SIGSEGV),
        ] {
            let error = result(is_done, errors, signal).unwrap_err();
            let expected = format!("linux.uml ended by signal {signal}");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn insufficient_shared_memory_is_rejected() {
        let guest = |memory_mib| GuestConfig {
            memory_mib,
            ..GuestConfig::DEFAULT
        };
        assert!(check_memory(&guest(1)).is_ok());
        let reason = check_memory(&guest(u32::MAX)).unwrap_err().to_string();
        assert!(reason.contains("--shm-size"), "{reason}");
    }
}
