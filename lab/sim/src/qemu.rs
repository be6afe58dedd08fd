//! QEMU: its version, and the machines it creates for the image and for Linux, the same in all environments.

use crate::closure;
use crate::platform::{Platform, AMD};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trapline_abi::job::Console;
use trapline_abi::platform::{DEBUG_CONSOLE, EXIT};
use trapline_abi::Job;
use trapline_host::probe::Probe;
use trapline_host::process::Command;
use trapline_host::{find_program, sha256_of_file, sha256_of_files, Error, Facts};
use trapline_model::layers::QemuMachine;
use trapline_model::{GuestConfig, Halt};

/// Oldest supported version.
const OLDEST: (u32, u32) = (6, 2);

/// Command that installs QEMU.
pub const REMEDY: &str = AMD.remedy;

/// A QEMU of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    /// Its file.
    pub program: PathBuf,
    /// Its version.
    pub version: String,
}

impl Qemu {
    /// Returns the QEMU of a machine at `program`, or in `$PATH`.
    ///
    /// # Errors
    /// It is missing, does not start, or is too old.
    pub fn find(program: Option<PathBuf>, platform: &Platform) -> Result<Self, Error> {
        let missing = |what: String| Error::missing(what, platform.remedy);
        let name = platform.program;
        let program = program.or_else(|| find_program(name));
        let program = program.ok_or_else(|| missing(format!("there is no {name} in $PATH")))?;
        let output = Probe::new(&program, &["--version"]).output()?;
        let version = version_in(&output.stdout)
            .map_err(|reason| missing(format!("{}: {reason}", program.display())))?;
        Ok(Self { program, version })
    }

    /// Checks that interrupts which it injects are delivered once, with [`Part::Steady`] at `library`
    /// (docs/internals/linux-guests.md).
    ///
    /// # Errors
    /// Its code is not known, so that nothing can be mended; or it does not start.
    ///
    /// [`Part::Steady`]: trapline_host::Part::Steady
    pub fn check_injection(&self, library: &Path) -> Result<(), Error> {
        // The loader accepts neither spaces nor colons in a path.
        let script = "exec 9< \"$1\"; TRAPLINE_STEADY_REPORT=1 LD_PRELOAD=/proc/self/fd/9 exec \"$2\" --version";
        let (Some(library), Some(program)) = (library.to_str(), self.program.to_str()) else {
            return Err(Error::unavailable("a path is not UTF-8"));
        };
        let probe = Probe {
            program: Path::new("/bin/sh"),
            arguments: &["-c", script, "sh", library, program],
            input: "",
            depends: &[library, program],
        };
        let output = probe.output()?;
        // The shell loads the library, too, and so does a script in place of QEMU.
        match output.stderr.lines().last() {
            Some("dropped") => Ok(()),
            why => Err(Error::missing(
                format!(
                    "QEMU {} may deliver an interrupt twice, at which both guests stand still ({})",
                    self.version,
                    why.unwrap_or("nothing is replaced")
                ),
                "use the QEMU of Debian 12 or 13: --qemu FILE, or another way: --path switch",
            )),
        }
    }

    /// Returns its version, and the hashes of its program and of its libraries with the firmware of a machine.
    pub fn facts(&self, machine: QemuMachine) -> Facts {
        self.facts_with(self.firmware(machine).unwrap_or_default())
    }

    /// Returns its version, and the hashes of its program and of its libraries.
    pub fn program_facts(&self) -> Facts {
        self.facts_with(Vec::new())
    }

    fn facts_with(&self, firmware: Vec<PathBuf>) -> Facts {
        let mut facts = Facts::from([("qemu".to_owned(), self.version.clone())]);
        if let Ok(hash) = sha256_of_file(&self.program) {
            facts.insert("qemu-sha256".to_owned(), hash);
        }
        let mut files = closure::needed(&self.program);
        files.extend(firmware);
        let hash = sha256_of_files(files.iter().map(PathBuf::as_path));
        facts.extend(hash.map(|hash| ("qemu-files-sha256".to_owned(), hash)));
        facts
    }

    /// Returns the paths of the firmware of a machine.
    ///
    /// # Errors
    /// QEMU does not report its directories, or a file is missing.
    pub fn firmware(&self, machine: QemuMachine) -> Result<Vec<PathBuf>, Error> {
        let output = Probe::new(&self.program, &["-L", "help"]).output()?;
        let find = |name: &&str| {
            let paths = output.stdout.lines().map(|path| Path::new(path).join(name));
            let mut present = paths.filter_map(|path| path.canonicalize().ok());
            present.next().ok_or_else(|| {
                let program = self.program.display();
                Error::missing(format!("{program} has no {name}"), REMEDY)
            })
        };
        hardware(machine).firmware.iter().map(find).collect()
    }

    /// Returns a machine without devices. Its memory is QEMU's default, private and anonymous.
    pub fn machine(&self, kind: &str, memory_mib: u32, cpus: u32) -> Command {
        Command::new(&self.program)
            .words("-nodefaults -no-user-config -display none -no-reboot")
            .arg("-M")
            .arg(kind)
            .arg("-m")
            .arg(format!("{memory_mib}M"))
            .words(&format!("-smp {cpus}"))
    }

    /// Returns the command for the image on a machine, with options for the accelerator.
    pub fn for_image(
        &self,
        kind: QemuMachine,
        image: &Path,
        machine: &GuestConfig,
        accelerator: &str,
        job: &Job,
    ) -> Command {
        let hardware = hardware(kind);
        self.machine(hardware.options, machine.memory_mib, machine.cpus)
            .words(accelerator)
            .words(halts(machine.scheduling.halt))
            .words("-serial null")
            .words(hardware.devices)
            .words(&console("console", "/proc/self/fd/1"))
            .arg("-kernel")
            .arg(image)
            .arg("-append")
            .arg(machine.job(job).to_string())
    }

    /// Returns the machine for Linux, with the options `accelerator` and its console on standard error.
    pub fn for_linux(&self, machine: &GuestConfig, accelerator: &str) -> Command {
        self.machine(LINUX_MICROVM, machine.memory_mib, machine.cpus)
            .words(accelerator)
            .words("-bios")
            .arg(FIRMWARE)
            .words("-serial file:/proc/self/fd/2")
            .words(&console("console", "/proc/self/fd/1"))
    }

    /// Returns the machine for a hypervisor, with the options `accelerator` and its console on standard error. Its memory is a
    /// file in memory, whose pages are small: with huge ones nothing would show that the outer kernel gives it page by page.
    pub fn for_hypervisor(&self, memory_mib: u32, accelerator: &str) -> Command {
        let kind = hardware(QemuMachine::Q35).options;
        self.machine(&format!("{kind},memory-backend=ram"), memory_mib, 1)
            .arg("-object")
            .arg(format!(
                "memory-backend-memfd,id=ram,size={memory_mib}M,share=on"
            ))
            .words(accelerator)
            .words("-serial file:/proc/self/fd/2")
            .words(&console("console", "/proc/self/fd/1"))
    }
}

/// Makes the instruction clock of a QEMU reproducible with [`Part::Steady`]. The library finds the
/// thread of the CPU by its name. It is passed as a descriptor: the loader accepts neither spaces nor
/// colons in a path.
///
/// [`Part::Steady`]: trapline_host::Part::Steady
pub fn with_steady_clock(mut command: Command, library: Arc<File>) -> Command {
    let number = command.pass_file(library);
    command
        .as_emulator()
        .env("LD_PRELOAD", format!("/proc/self/fd/{number}"))
        .words("-name debug-threads=on")
}

/// Adds a virtio disk in the file at `path`, with or without direct I/O.
pub fn with_disk(command: Command, path: &str, direct: bool) -> Command {
    let direct = if direct { "on" } else { "off" };
    command
        .arg("-drive")
        .arg(format!(
            "if=none,id=disk,format=raw,file={path},cache.direct={direct}"
        ))
        .words("-device virtio-blk-device,drive=disk")
}

/// Names the threads, so that those of vCPUs can be found.
pub fn with_named_threads(command: Command) -> Command {
    command.words("-name guest=trapline,debug-threads=on")
}

/// A machine for the image.
struct Hardware {
    /// The value of `-M`.
    options: &'static str,
    /// Further options: devices.
    devices: &'static str,
    /// Files that QEMU loads.
    firmware: &'static [&'static str],
}

const fn hardware(machine: QemuMachine) -> Hardware {
    match machine {
        // Without ACPI the firmware is qboot, which loads a PVH image itself and needs no
        // option ROMs. By default QEMU would put the device into the last virtio transport.
        QemuMachine::Microvm => Hardware {
            options: "microvm,acpi=off,rtc=off,x-option-roms=off",
            devices: "-global virtio-mmio.force-legacy=false \
                      -device virtio-rng-device,bus=virtio-mmio-bus.0",
            firmware: &[FIRMWARE],
        },
        // SeaBIOS starts a PVH image through an option ROM.
        QemuMachine::Pc => Hardware {
            options: "pc,acpi=off,hpet=off,usb=off",
            devices: "",
            firmware: &["bios-256k.bin", "pvh.bin", "kvmvapic.bin"],
        },
        // Another option ROM loads a multiboot kernel.
        QemuMachine::Q35 => Hardware {
            options: "q35",
            devices: "",
            firmware: &["bios-256k.bin", "multiboot_dma.bin", "kvmvapic.bin"],
        },
    }
}

/// Machine of Linux, which finds CPUs and interrupt controllers by ACPI. The firmware has to be named then.
const LINUX_MICROVM: &str = "microvm,acpi=on,rtc=on";

/// File name of qboot.
const FIRMWARE: &str = "qboot.rom";

/// Returns the option by which KVM does not intercept HLT (nor other instructions of idle guests).
fn halts(halt: Halt) -> &'static str {
    match halt {
        Halt::Exits => "",
        Halt::InGuest => "-overcommit cpu-pm=on",
    }
}

/// CPU of the image on KVM. Some hosts do not permit writes of `IA32_ARCH_CAPABILITIES`.
pub const KVM: &str = "-accel kvm -cpu host,-arch-capabilities";

/// CPU of Linux in nested KVM on the counting machine, without paravirtual end of interrupt.
pub const KVM_WITHOUT_PV_EOI: &str = "-accel kvm -cpu host,-arch-capabilities,-kvm-pv-eoi";

/// CPU of the image on TCG.
pub const TCG: &str = "-accel tcg -cpu max";

/// Instruction clock: an instruction is a nanosecond.
pub const COUNTING: &str = "-accel tcg -cpu max -icount shift=0,sleep=off -seed 1 \
                            -rtc base=2024-01-01T00:00:00,clock=vm";

/// Returns the options of the two debug ports: one writes to `path`, one ends QEMU.
pub fn console(name: &str, path: &str) -> String {
    format!(
        "-chardev file,id={name},path={path} \
         -device isa-debugcon,iobase={DEBUG_CONSOLE:#x},chardev={name} \
         -device isa-debug-exit,iobase={EXIT:#x},iosize=4"
    )
}

/// Adapts a job to QEMU, which has none of Trapline's own ports.
pub fn adapt(job: &Job, ring: u8) -> Job {
    Job {
        console: Console::Port,
        ports: false,
        ring,
        ..*job
    }
}

/// Parses the version that QEMU prints and checks that it is supported.
fn version_in(text: &str) -> Result<String, String> {
    let version = text
        .split_once("version ")
        .and_then(|(_, rest)| rest.split_ascii_whitespace().next())
        .ok_or("no version in the output of --version")?;
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
    use expect_test::expect;

    #[test]
    fn version_is_parsed_and_an_old_one_rejected() {
        let debian = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright";
        assert_eq!(version_in(debian), Ok("7.2.22".to_owned()));
        assert_eq!(
            version_in("QEMU emulator version 10.0\n"),
            Ok("10.0".to_owned())
        );
        let others = ["QEMU emulator version 4.2.1 (Debian)", "bash: syntax error"];
        let errors = others.map(|text| version_in(text).unwrap_err());
        expect![[r#"
            version 4.2.1 is too old, 6.2 is needed
            no version in the output of --version"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn missing_program_and_other_programs_are_rejected() {
        let missing = Qemu::find(Some("/nonexistent/qemu".into()), &AMD).unwrap_err();
        expect!["cannot start /nonexistent/qemu: No such file or directory (os error 2)"]
            .assert_eq(&missing.to_string());
        let other = Qemu::find(Some("/bin/true".into()), &AMD).unwrap_err();
        assert_eq!(other.remedy(), Some(REMEDY));
    }
}
