//! QEMU: whether it is there, how old it is, and the machine it makes for the
//! image - the same in every environment that uses it.

use crate::error::EnvError;
use crate::process::Command;
use std::path::{Path, PathBuf};
use trapline_abi::job::Console;
use trapline_abi::platform::{DEBUG_CONSOLE, EXIT};
use trapline_abi::Job;
use trapline_model::{Halt, MachineSpec};

/// The oldest version that has all that is used here.
const OLDEST: (u32, u32) = (6, 2);

/// What installs QEMU.
pub const REMEDY: &str = "sudo apt-get install --no-install-recommends qemu-system-x86";

/// A QEMU of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    /// Its file.
    pub program: PathBuf,
    /// What it says its version is.
    pub version: String,
}

impl Qemu {
    /// QEMU at `program`, or in $PATH.
    ///
    /// # Errors
    /// It is not there, does not start, or is too old.
    pub fn find(program: Option<&Path>) -> Result<Self, EnvError> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => in_path("qemu-system-x86_64").ok_or_else(|| {
                EnvError::Missing(format!("there is no qemu-system-x86_64 in $PATH: {REMEDY}"))
            })?,
        };
        let output = std::process::Command::new(&program)
            .arg("--version")
            .output()
            .map_err(|source| EnvError::Start {
                program: program.clone(),
                source,
            })?;
        let version = version_in(&String::from_utf8_lossy(&output.stdout)).map_err(|reason| {
            EnvError::Missing(format!("{}: {reason}: {REMEDY}", program.display()))
        })?;
        Ok(Self { program, version })
    }

    /// The firmware of the machine that the image gets.
    ///
    /// # Errors
    /// QEMU does not say where it is, or it is not there.
    pub fn firmware(&self) -> Result<PathBuf, EnvError> {
        let missing = || {
            EnvError::Missing(format!(
                "{} has no {FIRMWARE}: {REMEDY}",
                self.program.display()
            ))
        };
        let output = std::process::Command::new(&self.program)
            .args(["-L", "help"])
            .output()
            .map_err(|source| EnvError::Start {
                program: self.program.clone(),
                source,
            })?;
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|directory| Path::new(directory).join(FIRMWARE))
            .find_map(|path| path.canonicalize().ok())
            .ok_or_else(missing)
    }

    /// A machine with nothing in it, and `memory_mib` that is shared memory, so
    /// that it can be told from QEMU's own.
    pub fn machine(&self, kind: &str, memory_mib: u32, cpus: u32) -> Command {
        Command::new(&self.program)
            .words("-nodefaults -no-user-config -display none -no-reboot")
            .arg("-object")
            .arg(format!(
                "memory-backend-memfd,id=ram,size={memory_mib}M,share=on"
            ))
            .arg("-M")
            .arg(format!("{kind},memory-backend=ram"))
            .arg("-m")
            .arg(format!("{memory_mib}M"))
            .words(&format!("-smp {cpus}"))
    }

    /// The machine that the image gets, with `accelerator` in QEMU's words.
    pub fn for_image(
        &self,
        image: &Path,
        machine: &MachineSpec,
        accelerator: &str,
        job: &Job,
    ) -> Command {
        self.machine(MICROVM, machine.memory_mib, 1)
            .words(accelerator)
            .words(halts(machine.halt))
            .words(IMAGE_DEVICES)
            .words(&console("console", "/proc/self/fd/1"))
            .arg("-kernel")
            .arg(image)
            .arg("-append")
            .arg(job.to_string())
    }

    /// The machine that a Linux gets, with `accelerator` in QEMU's words: its console is
    /// on standard error.
    pub fn for_linux(&self, machine: &MachineSpec, accelerator: &str) -> Command {
        self.machine(LINUX_MICROVM, machine.memory_mib, machine.cpus)
            .words(accelerator)
            .words("-bios")
            .arg(FIRMWARE)
            .words("-serial file:/proc/self/fd/2")
            .words(&console("console", "/proc/self/fd/1"))
    }
}

/// Lets its threads have names, by which those of virtual CPUs are found.
pub fn with_named_threads(command: Command) -> Command {
    command.words("-name guest=trapline,debug-threads=on")
}

/// The machine. Without ACPI its firmware is qboot, which loads a PVH image by
/// itself and so needs no option ROMs.
const MICROVM: &str = "microvm,acpi=off,rtc=off,x-option-roms=off";

/// The same for a Linux, which learns from ACPI what CPUs and interrupt controllers there
/// are. The firmware has to be named then, or it would be another.
const LINUX_MICROVM: &str = "microvm,acpi=on,rtc=on";

/// That firmware.
const FIRMWARE: &str = "qboot.rom";

/// A serial port for its scratch register, and a device in the first virtio
/// transport; by itself QEMU would take the last.
const IMAGE_DEVICES: &str = "-serial null -global virtio-mmio.force-legacy=false \
                             -device virtio-rng-device,bus=virtio-mmio-bus.0";

/// How QEMU has KVM leave halts to the guest (and what else only idle guests do).
fn halts(halt: Halt) -> &'static str {
    match halt {
        Halt::Exits => "",
        Halt::InGuest => "-overcommit cpu-pm=on",
    }
}

/// The image's processor on KVM. Some hosts do not let this MSR be written.
pub const KVM: &str = "-accel kvm -cpu host,-arch-capabilities";

/// The same for a Linux on a machine that counts, see `sim::inner`.
pub const KVM_WITHOUT_PV_EOI: &str = "-accel kvm -cpu host,-arch-capabilities,-kvm-pv-eoi";

/// The image's processor where every instruction is translated.
pub const TCG: &str = "-accel tcg -cpu max";

/// The way in which QEMU is asked to count instructions as time.
pub const COUNTING: &str = "-accel tcg -cpu max -icount shift=0,sleep=off -seed 1 \
                            -rtc base=2024-01-01T00:00:00,clock=vm";

/// The two ports of a machine: one writes to `path`, one ends QEMU.
pub fn console(name: &str, path: &str) -> String {
    format!(
        "-chardev file,id={name},path={path} \
         -device isa-debugcon,iobase={DEBUG_CONSOLE:#x},chardev={name} \
         -device isa-debug-exit,iobase={EXIT:#x},iosize=4"
    )
}

/// A job for the image in QEMU, which has none of Trapline's own ports.
pub fn adapt(job: &Job, ring: u8) -> Job {
    Job {
        console: Console::Port,
        ports: false,
        ring,
        ..*job
    }
}

/// The program called `name` in $PATH.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

/// The version in what QEMU prints, if it is new enough.
fn version_in(text: &str) -> Result<String, String> {
    let version = text
        .split_once("version ")
        .and_then(|(_, rest)| rest.split_ascii_whitespace().next())
        .ok_or("it does not tell its version")?;
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let found: (u32, u32) = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    if found < OLDEST {
        let (major, minor) = OLDEST;
        return Err(format!(
            "version {version} is too old, {major}.{minor} is needed"
        ));
    }
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_and_an_old_one_refused() {
        let debian = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright";
        assert_eq!(version_in(debian), Ok("7.2.22".to_owned()));
        assert_eq!(
            version_in("QEMU emulator version 10.0\n"),
            Ok("10.0".to_owned())
        );
        let old = version_in("QEMU emulator version 4.2.1 (Debian)").unwrap_err();
        assert!(old.contains("4.2.1 is too old, 6.2 is needed"), "{old}");
        assert!(version_in("bash: syntax error").is_err());
    }

    #[test]
    fn what_is_not_there_or_is_no_qemu_is_explained() {
        let error = Qemu::find(Some(Path::new("/nonexistent/qemu"))).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/qemu"), "{error}");
        let error = Qemu::find(Some(Path::new("/bin/true"))).unwrap_err();
        assert!(error.to_string().contains("apt-get install"), "{error}");
    }
}
