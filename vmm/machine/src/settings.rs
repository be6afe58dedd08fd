//! The command line.

use crate::disk::DiskConfig;
use crate::line::SerialMode;
use crate::net;
use crate::placement::Placement;
use crate::sandbox::Role;
use crate::vsock;
use crate::Failure;
use lexopt::{Arg, Parser, ValueExt};
use std::os::fd::RawFd;
use std::path::PathBuf;
use trapline_interface::{Pages, Populate};

/// Text of `--help`.
pub const HELP: &str = "\
trapline-vmm: runs a unikernel image or a Linux kernel in a virtual machine

usage: trapline-vmm --image FILE [options]
       trapline-vmm --kernel FILE [--initrd FILE] [options]

guest:
  --image FILE      ELF file with a PVH note or Trapline's note
  --kernel FILE     Linux kernel: bzImage, or vmlinux with CONFIG_PVH=y
  --initrd FILE     initramfs (with --kernel)
  --cmdline TEXT    guest command line
  --ring RING       privilege ring of a direct entry: 0, 3 or auto [default: auto:
                    0, or 3 if the host emulates ring 0]
  --entry ENTRY     direct, pvh or auto [default: auto: direct if supported]

machine:
  --cpus N          virtual CPUs, up to 8 with --kernel [default: 1]
  --memory SIZE     guest memory in bytes, or with suffix K, M or G [default: 64M]
  --pages SIZE      page size: file (a memfd), 4k or 2m (private memory)
                    [default: file]
  --prefault HOW    populate memory before the guest runs: no, steps (yields the
                    CPU in between) or whole (one system call) [default: no]
  --populate HOW    provide memory on guest request; prefault it in steps or whole
  --ticker          add a timer device
  --halt-in-guest   disable exits of HLT (needs native ring 0)
  --no-pv-eoi       do not offer paravirtual EOI to Linux (with --kernel)

devices:
  --serial MODE     writer of COM1 output: the vCPU's thread per line (lines) or
                    byte (direct), or a thread at 115200 baud (buffered)
                    [default: lines]
  --disk FILE[,ro][,direct][,engine=uring|pool]
                    virtio disk: regular file or block device of whole 512-byte
                    sectors; read-only; O_DIRECT; io_uring or threads [default:
                    io_uring if available]. Repeatable (with --kernel)
  --net tap=NAME|fd=N[,mac=ADDRESS]
                    virtio network card on a tap. Repeatable (with --kernel)
  --vsock cid=N,path=SOCKET[,in]
                    virtio vsock; N is 3 or more; in: connections from the host
                    only (with --kernel)

process:
  --events FD       write stages and counts as frames to this descriptor
  --pin PLACEMENT   CPU affinity: same (vCPU i on CPU i), disjoint (vCPU i on CPU
                    i+1), or a list like vcpu0=1,disk0=0,others=0; numbers index
                    the allowed CPUs (with --kernel)
  --api PATH        control socket (with --kernel; docs/boot.md)
  --seconds N       kill the process after N seconds
  --no-sandbox      run without seccomp filters
  --help, --version

The guest's console is standard output and, for COM1, standard input.

exit status: 0 guest done, 35 guest panic, 36 triple fault, 37 other guest exit,
38 guest reset, 39 stopped by the control socket; 2 usage error, 3 invalid image or
disk, 4 /dev/kvm not available, 5 internal error; 128+N signal N
";

/// Supported numbers of vCPUs.
const CPUS: std::ops::RangeInclusive<u32> = 1..=8;

const DEFAULT_MEMORY: u64 = 64 << 20;

/// Value of `--entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryMode {
    /// Direct if the image supports it, otherwise PVH.
    Auto,
    /// Trapline's direct entry.
    Direct,
    /// PVH entry.
    Pvh,
}

/// Kind of guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest {
    /// A unikernel image with one vCPU and Trapline's devices.
    Image,
    /// A Linux kernel with several vCPUs and ACPI tables.
    Linux,
}

/// Configuration of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmConfig {
    /// Kind of guest.
    pub guest: Guest,
    /// Path of the image or kernel.
    pub image: PathBuf,
    /// Path of the initramfs.
    pub initrd: Option<PathBuf>,
    /// Disks, in command-line order.
    pub disks: Vec<DiskConfig>,
    /// Number of vCPUs.
    pub cpus: u32,
    /// Guest memory in bytes.
    pub memory: u64,
    /// Page size; `None`: a memfd with default pages.
    pub pages: Option<Pages>,
    /// Population of memory before the guest runs.
    pub prefault: Option<Populate>,
    /// Guest command line.
    pub command_line: String,
    /// Network cards.
    pub net: Vec<net::Spec>,
    /// CPU affinity.
    pub placement: Placement,
    /// Path of the control socket.
    pub api: Option<PathBuf>,
    /// Vsock device.
    pub vsock: Option<vsock::Spec>,
    /// Privilege ring of a direct entry; `None`: the native ring.
    pub ring: Option<u8>,
    /// Entry point.
    pub entry: EntryMode,
    /// Event descriptor.
    pub events: Option<RawFd>,
    /// Writer of serial output.
    pub serial: SerialMode,
    /// Add the ticker device.
    pub ticker: bool,
    /// Disable HLT exits.
    pub halt_in_guest: bool,
    /// Offer paravirtual EOI to Linux.
    pub paravirtual_eoi: bool,
    /// Time limit in seconds.
    pub seconds: Option<u32>,
    /// Enable memory hotplug on guest request, with this population.
    pub populate: Option<Populate>,
    /// Enter a seccomp filter.
    pub sandbox: bool,
}

impl VmConfig {
    /// Returns the role of vCPU threads.
    pub fn role(&self) -> Role {
        let is_linux = self.guest == Guest::Linux;
        let helpers = is_linux || self.ticker || self.serial == SerialMode::Buffered;
        match (helpers, self.populate.is_some()) {
            (false, false) => Role::Vcpu,
            (true, false) => Role::VcpuWithHelpers,
            (false, true) => Role::VcpuWithMemory,
            (true, true) => Role::VcpuWithBoth,
        }
    }
}

/// Result of parsing the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run a VM.
    Run(Box<VmConfig>),
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
}

/// Parses the command line.
///
/// # Errors
/// [`Failure::Usage`], naming the option.
pub fn parse(mut words: Parser) -> Result<Request, Failure> {
    let mut image = None;
    let mut settings = VmConfig {
        guest: Guest::Image,
        image: PathBuf::new(),
        initrd: None,
        disks: Vec::new(),
        cpus: 1,
        memory: DEFAULT_MEMORY,
        pages: None,
        prefault: None,
        command_line: String::new(),
        net: Vec::new(),
        placement: Placement::Free,
        api: None,
        vsock: None,
        ring: None,
        entry: EntryMode::Auto,
        events: None,
        serial: SerialMode::default(),
        ticker: false,
        halt_in_guest: false,
        paravirtual_eoi: true,
        seconds: None,
        populate: None,
        sandbox: true,
    };
    while let Some(word) = words.next().map_err(usage)? {
        match word {
            Arg::Long(name @ ("image" | "kernel")) => {
                let guest = match name {
                    "kernel" => Guest::Linux,
                    _ => Guest::Image,
                };
                if image.is_some() {
                    return Err(Failure::Usage(
                        "--image and --kernel may be given once".into(),
                    ));
                }
                settings.guest = guest;
                image = Some(words.value().map_err(usage)?.into());
            }
            Arg::Long("initrd") => settings.initrd = Some(words.value().map_err(usage)?.into()),
            Arg::Long("ticker") => settings.ticker = true,
            Arg::Long("halt-in-guest") => settings.halt_in_guest = true,
            Arg::Long("no-pv-eoi") => settings.paravirtual_eoi = false,
            Arg::Long("no-sandbox") => settings.sandbox = false,
            Arg::Long("help") | Arg::Short('h') => return Ok(Request::Help),
            Arg::Long("version") | Arg::Short('V') => return Ok(Request::Version),
            Arg::Long(
                name @ ("memory" | "pin" | "api" | "pages" | "prefault" | "cpus" | "cmdline"
                | "net" | "vsock" | "ring" | "entry" | "events" | "serial" | "disk"
                | "populate" | "seconds"),
            ) => {
                let name = name.to_owned();
                let value = words.value().map_err(usage)?.string().map_err(usage)?;
                set(&mut settings, &name, value)?;
            }
            other => return Err(usage(other.unexpected())),
        }
    }
    settings.image =
        image.ok_or_else(|| Failure::Usage("--image or --kernel is required".into()))?;
    check(&settings)?;
    Ok(Request::Run(Box::new(settings)))
}

/// Rejects options that do not apply to the kind of guest.
fn check(settings: &VmConfig) -> Result<(), Failure> {
    let conflict = match settings.guest {
        Guest::Image if settings.cpus != 1 => Some("--cpus above 1 requires --kernel"),
        Guest::Image if settings.initrd.is_some() => Some("--initrd requires --kernel"),
        Guest::Image if !settings.disks.is_empty() => Some("--disk requires --kernel"),
        Guest::Image if !settings.net.is_empty() => Some("--net requires --kernel"),
        Guest::Image if settings.api.is_some() => Some("--api requires --kernel"),
        Guest::Image if settings.placement != Placement::Free => Some("--pin requires --kernel"),
        Guest::Image if settings.vsock.is_some() => Some("--vsock requires --kernel"),
        Guest::Image if !settings.paravirtual_eoi => Some("--no-pv-eoi requires --kernel"),
        Guest::Linux if settings.ring.is_some() => Some("--ring requires --image"),
        Guest::Linux if settings.entry != EntryMode::Auto => Some("--entry requires --image"),
        Guest::Linux if settings.ticker => Some("--ticker requires --image"),
        Guest::Linux if settings.populate.is_some() => Some("--populate requires --image"),
        Guest::Linux if settings.halt_in_guest => Some("--halt-in-guest requires --image"),
        _ => None,
    };
    match conflict {
        Some(conflict) => Err(Failure::Usage(conflict.into())),
        None => Ok(()),
    }
}

/// Sets the option `name`.
fn set(settings: &mut VmConfig, name: &str, text: String) -> Result<(), Failure> {
    let wrong = |wanted: &str| Failure::Usage(format!("--{name} {text}: expected {wanted}"));
    match name {
        "memory" => settings.memory = parse_size(&text).ok_or_else(|| wrong("a size like 64M"))?,
        "pages" => {
            settings.pages = match text.as_str() {
                "file" => None,
                "4k" => Some(Pages::Small),
                "2m" => Some(Pages::Huge),
                _ => return Err(wrong("file, 4k or 2m")),
            }
        }
        "prefault" => {
            settings.prefault = match text.as_str() {
                "no" => None,
                how => Some(populate(how).ok_or_else(|| wrong("no, steps or whole"))?),
            }
        }
        "populate" => {
            let how = populate(&text);
            settings.populate = Some(how.ok_or_else(|| wrong("steps or whole"))?);
        }
        "cpus" => {
            let cpus = text.parse().ok().filter(|cpus| CPUS.contains(cpus));
            settings.cpus = cpus.ok_or_else(|| wrong("a number from 1 to 8"))?;
        }
        "disk" => {
            let wanted = || wrong("FILE[,ro][,direct][,engine=uring|pool]");
            settings
                .disks
                .push(DiskConfig::parse(&text).ok_or_else(wanted)?);
        }
        "cmdline" => settings.command_line = text,
        "api" => settings.api = Some(text.into()),
        "pin" => {
            let wanted = "same, disjoint, or a list like vcpu0=1,disk0=0,others=0";
            settings.placement = Placement::parse(&text).ok_or_else(|| wrong(wanted))?;
        }
        "net" => {
            let spec = net::Spec::parse(&text);
            let wanted = "tap=NAME or fd=N, optionally mac=02:…:…:…:…:…";
            settings.net.push(spec.ok_or_else(|| wrong(wanted))?);
        }
        "vsock" => {
            let spec = vsock::Spec::parse(&text);
            let wanted = "cid=N,path=SOCKET[,in] with N of 3 or more";
            let spec = spec.ok_or_else(|| wrong(wanted))?;
            if settings.vsock.replace(spec).is_some() {
                return Err(Failure::Usage("--vsock may be given once".into()));
            }
        }
        "ring" => {
            settings.ring = match text.as_str() {
                "auto" => None,
                "0" => Some(0),
                "3" => Some(3),
                _ => return Err(wrong("auto, 0 or 3")),
            }
        }
        "entry" => {
            settings.entry = match text.as_str() {
                "auto" => EntryMode::Auto,
                "direct" => EntryMode::Direct,
                "pvh" => EntryMode::Pvh,
                _ => return Err(wrong("auto, direct or pvh")),
            }
        }
        "serial" => {
            settings.serial =
                SerialMode::from_name(&text).ok_or_else(|| wrong("lines, direct or buffered"))?;
        }
        "seconds" => {
            let seconds = text.parse().ok().filter(|seconds| *seconds != 0);
            settings.seconds = Some(seconds.ok_or_else(|| wrong("a number of seconds"))?);
        }
        "events" => {
            let fd = text.parse().ok().filter(|fd| *fd >= 0);
            settings.events = Some(fd.ok_or_else(|| wrong("an open file descriptor"))?);
        }
        _ => {}
    }
    Ok(())
}

fn populate(how: &str) -> Option<Populate> {
    match how {
        "steps" => Some(Populate::Steps),
        "whole" => Some(Populate::Whole),
        _ => None,
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let size: u64 = digits.parse().ok()?;
    size.checked_mul(1 << shift)
}

fn usage(error: lexopt::Error) -> Failure {
    Failure::Usage(error.to_string())
}

#[cfg(test)]
mod tests;
