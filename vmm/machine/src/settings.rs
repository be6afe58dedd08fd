//! What was asked for on the command line.

use crate::disk::Wanted;
use crate::line::Serial;
use crate::net;
use crate::placement::Placement;
use crate::sandbox::Role;
use crate::vsock;
use crate::Failure;
use lexopt::{Arg, Parser, ValueExt};
use std::os::fd::RawFd;
use std::path::PathBuf;
use trapline_interface::{Pages, Populate};

/// Printed by `--help`.
pub const HELP: &str = "\
trapline-vmm: runs one unikernel image, or one Linux, in one virtual machine

usage: trapline-vmm --image FILE [options]
       trapline-vmm --kernel FILE [--initrd FILE] [options]

  --image FILE      the image: an ELF file with a PVH note or Trapline's own
  --kernel FILE     a Linux kernel: a bzImage, or a vmlinux with CONFIG_PVH=y
  --initrd FILE     its initramfs
  --disk FILE[,ro][,direct][,engine=uring|pool]
                    a disk for a Linux: a file or block device of whole 512-byte
                    sectors; read-only; past the host's page cache; by io_uring or
                    by threads (default: io_uring if the kernel gives it). Repeat
                    for more: /dev/vda is the first
  --memory SIZE     guest memory: bytes, or with K, M or G (default 64M)
  --pages SIZE      its pages: an anonymous file's (file, default), or of this
                    process alone and of 4k or 2m
  --prefault HOW    populate it before the guest runs: no (default), in steps
                    between which others get the CPU, or whole, in one call
  --cpus N          virtual CPUs: 1 (default), with --kernel up to 8
  --cmdline TEXT    the guest's command line
  --vsock WHERE     with --kernel: streams to programs of the host: cid=N (3 or
                    more), path=SOCKET, and in if only they may begin one
  --net WHERE       with --kernel: a network card, once for each: tap=NAME, or
                    fd=N for a tap that is open already; and mac=ADDRESS
  --ring RING       privilege ring of a direct start: 0, 3, or auto (default:
                    0, and 3 where the host only emulates ring 0)
  --entry WAY       direct, pvh, or auto (default: direct if the image can)
  --events FD       write stages and counts as frames to this descriptor
  --serial WHO      who writes what the guest sends over COM1: the vCPU's thread
                    when a line is complete (lines, default) or at each byte
                    (direct), or a thread of its own at the pace of 115200 baud
                    (buffered)
  --ticker          have a timer that interrupts the guest when it asks for that
  --halt-in-guest   do not leave the guest when it halts: it is interrupted sooner,
                    and keeps its CPU (needs native ring 0)
  --no-pv-eoi       offer a Linux no paravirtual EOI: it tells the end of each
                    interrupt by an exit
  --seconds N       be killed after so many seconds, whatever the guest does
  --populate HOW    give the guest memory when it asks for that; what is to be
                    populated beforehand is in steps or whole
  --pin WHERE       CPUs of its threads, counted among those that it may use: same
                    (vCPU i on CPU i, all else on 0), disjoint (vCPU i on CPU i+1),
                    or a list like vcpu0=1,disk0=0,others=0 (with --kernel)
  --api PATH        a socket over which it is paused, resumed, asked for
                    statistics, and stopped (with --kernel; docs/boot.md)
  --no-sandbox      run without the seccomp filter
  --help, --version

The guest's console is standard output and, for COM1, standard input.

exit status: 0 the guest was done, 35 it panicked, 36 it triple-faulted, 37 it
ended in another way, 38 it reset its machine, 39 stopped over its socket; 2 wrong
usage, 3 bad image or disk, 4 no usable /dev/kvm, 5 internal error; 128+N ended by
signal N
";

/// Numbers of virtual CPUs that a machine may have.
const CPUS: std::ops::RangeInclusive<u32> = 1..=8;

const DEFAULT_MEMORY: u64 = 64 << 20;

/// Which way into the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChoice {
    /// Directly where the image can, else by its PVH note.
    Auto,
    /// Directly.
    Direct,
    /// By its PVH note.
    Pvh,
}

/// What runs in a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest {
    /// A unikernel: one vCPU, and what it knows of Trapline's devices.
    Image,
    /// A Linux: several vCPUs, and what its ACPI tables tell.
    Linux,
}

/// A machine, as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What the guest is.
    pub guest: Guest,
    /// The file of the image, or of the kernel.
    pub image: PathBuf,
    /// The file of a kernel's initramfs.
    pub initrd: Option<PathBuf>,
    /// Disks, in the order in which a guest finds them.
    pub disks: Vec<Wanted>,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Guest memory in bytes.
    pub memory: u64,
    /// The size of its pages; `None`: whatever pages an anonymous file has.
    pub pages: Option<Pages>,
    /// How it is populated before the guest runs, if it is.
    pub prefault: Option<Populate>,
    /// For the guest.
    pub command_line: String,
    /// Network cards.
    pub net: Vec<net::Spec>,
    /// Which CPU each thread runs on.
    pub placement: Placement,
    /// Where the machine is asked and told.
    pub api: Option<PathBuf>,
    /// Streams to programs of the host.
    pub vsock: Option<vsock::Spec>,
    /// Privilege ring of a direct start; `None`: whichever is native here.
    pub ring: Option<u8>,
    /// Which way into the image.
    pub entry: EntryChoice,
    /// Where events go.
    pub events: Option<RawFd>,
    /// Who writes what the guest sends over its serial line.
    pub serial: Serial,
    /// Whether there is a timer for the guest.
    pub ticker: bool,
    /// Whether the guest halts without leaving.
    pub halt_in_guest: bool,
    /// Whether a Linux may find in its memory that the end of an interrupt needs no exit.
    pub paravirtual_eoi: bool,
    /// How long the machine may run at the most, in seconds.
    pub seconds: Option<u32>,
    /// Whether the guest is given memory when it asks, and how that is populated.
    pub populate: Option<Populate>,
    /// Whether a seccomp filter is put on.
    pub sandbox: bool,
}

impl Settings {
    /// What the threads that run vCPUs will be.
    pub fn role(&self) -> Role {
        let is_linux = self.guest == Guest::Linux;
        let helpers = is_linux || self.ticker || self.serial == Serial::Buffered;
        match (helpers, self.populate.is_some()) {
            (false, false) => Role::Vcpu,
            (true, false) => Role::VcpuWithHelpers,
            (false, true) => Role::VcpuWithMemory,
            (true, true) => Role::VcpuWithBoth,
        }
    }
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A machine.
    Run(Box<Settings>),
    /// [`HELP`].
    Help,
    /// The version.
    Version,
}

/// Reads a command line.
///
/// # Errors
/// [`Failure::Usage`], naming what is wrong.
pub fn parse(mut words: Parser) -> Result<Request, Failure> {
    let mut image = None;
    let mut settings = Settings {
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
        entry: EntryChoice::Auto,
        events: None,
        serial: Serial::default(),
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
                    return Err(Failure::Usage("give one --image or one --kernel".into()));
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
        image.ok_or_else(|| Failure::Usage("no --image or --kernel was given".into()))?;
    check(&settings)?;
    Ok(Request::Run(Box::new(settings)))
}

/// What only one kind of guest has.
fn check(settings: &Settings) -> Result<(), Failure> {
    let misfit = match settings.guest {
        Guest::Image if settings.cpus != 1 => Some("--cpus above 1 goes with --kernel"),
        Guest::Image if settings.initrd.is_some() => Some("--initrd goes with --kernel"),
        Guest::Image if !settings.disks.is_empty() => Some("--disk goes with --kernel"),
        Guest::Image if !settings.net.is_empty() => Some("--net goes with --kernel"),
        Guest::Image if settings.api.is_some() => Some("--api goes with --kernel"),
        Guest::Image if settings.placement != Placement::Free => Some("--pin goes with --kernel"),
        Guest::Image if settings.vsock.is_some() => Some("--vsock goes with --kernel"),
        Guest::Image if !settings.paravirtual_eoi => Some("--no-pv-eoi goes with --kernel"),
        Guest::Linux if settings.ring.is_some() => Some("--ring goes with --image"),
        Guest::Linux if settings.entry != EntryChoice::Auto => Some("--entry goes with --image"),
        Guest::Linux if settings.ticker => Some("--ticker goes with --image"),
        Guest::Linux if settings.populate.is_some() => Some("--populate goes with --image"),
        Guest::Linux if settings.halt_in_guest => Some("--halt-in-guest goes with --image"),
        _ => None,
    };
    match misfit {
        Some(misfit) => Err(Failure::Usage(misfit.into())),
        None => Ok(()),
    }
}

/// Takes the value of an option that has one.
fn set(settings: &mut Settings, name: &str, text: String) -> Result<(), Failure> {
    let wrong =
        |wanted: &str| Failure::Usage(format!("--{name} is '{text}', which is not {wanted}"));
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
                .push(Wanted::parse(&text).ok_or_else(wanted)?);
        }
        "cmdline" => settings.command_line = text,
        "api" => settings.api = Some(text.into()),
        "pin" => {
            let wanted = "same, disjoint, or a list like vcpu0=1,disk0=0,others=0";
            settings.placement = Placement::parse(&text).ok_or_else(|| wrong(wanted))?;
        }
        "net" => {
            let spec = net::Spec::parse(&text);
            let wanted = "tap=NAME or fd=N, and mac=02:…:…:…:…:… if you like";
            settings.net.push(spec.ok_or_else(|| wrong(wanted))?);
        }
        "vsock" => {
            let spec = vsock::Spec::parse(&text);
            let wanted = "cid=N,path=SOCKET, and in if you like; N is from 3 on";
            let spec = spec.ok_or_else(|| wrong(wanted))?;
            if settings.vsock.replace(spec).is_some() {
                return Err(Failure::Usage("give one --vsock".into()));
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
                "auto" => EntryChoice::Auto,
                "direct" => EntryChoice::Direct,
                "pvh" => EntryChoice::Pvh,
                _ => return Err(wrong("auto, direct or pvh")),
            }
        }
        "serial" => {
            settings.serial =
                Serial::from_name(&text).ok_or_else(|| wrong("lines, direct or buffered"))?;
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
