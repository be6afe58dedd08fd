//! The command line.

mod backend;
mod default;

use crate::disk::DiskConfig;
use crate::net;
use crate::placement::Placement;
use crate::privileges::User;
use crate::sandbox::Role;
use crate::vsock;
use crate::Failure;
use lexopt::{Arg, Parser, ValueExt};
use std::os::fd::RawFd;
use std::path::PathBuf;
use trapline_interface::Pages;
use trapline_interface::Populate::{self, Steps, Whole};
use trapline_process::{Config, Crossing, Switch};
use Effect::{Flag, Path, Text};

/// Value of `--serial`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SerialMode {
    /// Complete lines and frames are written.
    #[default]
    Lines,
    /// Each byte is written.
    Direct,
    /// A thread writes at the speed of a serial line.
    Buffered,
}

impl SerialMode {
    /// Parses the option's value.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "lines" => Some(Self::Lines),
            "direct" => Some(Self::Direct),
            "buffered" => Some(Self::Buffered),
            _ => None,
        }
    }
}

/// Text of `--help`.
pub const HELP: &str = include_str!("settings/help.txt");

/// Supported numbers of vCPUs.
const CPUS: std::ops::RangeInclusive<u32> = 1..=64;

/// IDs of domains, from the first domain's to `DOMID_FIRST_RESERVED` (Xen `public/xen.h`), both excluded.
const DOMAINS: std::ops::RangeInclusive<u16> = 1..=0x7fef;

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

/// Guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryKind {
    /// A memfd if another process accesses it, otherwise private.
    #[default]
    Auto,
    /// A memfd.
    File,
    /// Private memory with pages of this size.
    Private(Pages),
}

/// Kind of guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest {
    /// A unikernel image with one vCPU and Trapline's devices.
    Image,
    /// A Linux kernel with several vCPUs and ACPI tables.
    Linux,
}

/// Implementation of the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `/dev/kvm`.
    Kvm,
    /// The same, with the local APIC in this VMM.
    KvmUserApic,
    /// A sandboxed process.
    Process,
    /// A domain of Xen.
    Xen,
}

/// Configuration of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmConfig {
    /// Kind of guest.
    pub guest: Guest,
    /// Implementation of the VM.
    pub backend: Backend,
    /// Options of a guest that is a process.
    pub process: Config,
    /// ID of a domain of Xen, which has its image.
    pub domain: Option<u16>,
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
    /// Guest memory as asked for: see [`Self::memory_kind`].
    pub pages: MemoryKind,
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
    /// Add an entropy device to an image.
    pub entropy: bool,
    /// Disable HLT exits.
    pub halt_in_guest: bool,
    /// Offer paravirtual EOI to Linux.
    pub paravirtual_eoi: bool,
    /// Time limit in seconds.
    pub seconds: Option<u32>,
    /// Enable memory hotplug on guest request, with this population.
    pub populate: Option<Populate>,
    /// User to change to before the guest runs.
    pub user: Option<User>,
    /// Root directory to change to before the guest runs.
    pub chroot: Option<PathBuf>,
    /// Enter a seccomp filter.
    pub sandbox: bool,
}

impl VmConfig {
    /// Returns true if it has disks, network cards or the entropy device of an image.
    pub fn has_devices(&self) -> bool {
        !self.disks.is_empty() || !self.net.is_empty() || self.entropy
    }

    /// Returns true if another process accesses guest memory.
    pub fn shares_memory(&self) -> bool {
        self.backend == Backend::Process || self.net.iter().any(net::Spec::is_of_process)
    }

    /// Returns the kind of guest memory: private, in pages as the kernel chooses, if nothing else was asked for and no
    /// other process accesses it.
    pub fn memory_kind(&self) -> MemoryKind {
        match self.pages {
            MemoryKind::Auto if self.shares_memory() => MemoryKind::File,
            MemoryKind::Auto => MemoryKind::Private(Pages::Usual),
            asked => asked,
        }
    }

    /// Returns the role of vCPU threads.
    pub fn role(&self) -> Role {
        match self.backend {
            Backend::Process => return Role::Process,
            Backend::KvmUserApic => return Role::VcpuWithTimer,
            Backend::Kvm | Backend::Xen => {}
        }
        let is_linux = self.guest == Guest::Linux;
        let has_device_thread = self.ticker || self.has_devices();
        let has_threads = has_device_thread || self.cpus > 1;
        let helpers = is_linux || has_threads || self.serial == SerialMode::Buffered;
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

/// An option: its name, the kind of guest that it applies to (`None`: both), and its effect.
type OptionRow = (&'static str, Option<Guest>, Effect);

/// Effect of an option. Setters return `None` for invalid values.
enum Effect {
    /// No value.
    Flag(fn(&mut VmConfig)),
    /// A path.
    Path(fn(&mut VmConfig, PathBuf)),
    /// Text, with the valid values for the error message.
    Text(&'static str, fn(&mut VmConfig, &str) -> Option<()>),
}

const IMAGE: Option<Guest> = Some(Guest::Image);
const LINUX: Option<Guest> = Some(Guest::Linux);

#[rustfmt::skip]
const OPTIONS: [OptionRow; 33] = [
    ("image", IMAGE, Path(|config, path| config.set_image(Guest::Image, path))),
    ("kernel", LINUX, Path(|config, path| config.set_image(Guest::Linux, path))),
    ("domain", IMAGE, Text("a number from 1 to 32751", |config, text| {
        put(&mut config.domain, text.parse().ok().filter(|id| DOMAINS.contains(id)).map(Some))
    })),
    ("initrd", LINUX, Path(|config, path| config.initrd = Some(path))),
    ("cmdline", None, Text("text", |config, text| {
        put(&mut config.command_line, Some(text.to_owned()))
    })),
    ("ring", IMAGE, Text("auto, 0 or 3", |config, text| {
        put(&mut config.ring, choose(text, [("auto", None), ("0", Some(0)), ("3", Some(3))]))
    })),
    ("entry", IMAGE, Text("auto, direct or pvh", |config, text| {
        use EntryMode::{Auto, Direct, Pvh};
        put(&mut config.entry, choose(text, [("auto", Auto), ("direct", Direct), ("pvh", Pvh)]))
    })),
    ("backend", None, Text("kvm, kvm-user-apic, process or xen", |config, text| {
        let backends = [
            ("kvm", Backend::Kvm),
            ("kvm-user-apic", Backend::KvmUserApic),
            ("process", Backend::Process),
            ("xen", Backend::Xen),
        ];
        put(&mut config.backend, choose(text, backends))
    })),
    ("crossing", IMAGE, Text("auto, rewrite, direct, dispatch, trap, notify or ptrace", |config, text| {
        put(&mut config.process.crossing, Crossing::from_name(text))
    })),
    ("spaces", IMAGE, Text("a number from 1 to 16", |config, text| {
        let is_valid = |count: &usize| (1..=Config::MOST_SPACES).contains(count);
        put(&mut config.process.spaces, text.parse().ok().filter(is_valid))
    })),
    ("switch", IMAGE, Text("guest or vmm", |config, text| {
        put(&mut config.process.switch, choose(text, [("guest", Switch::Guest), ("vmm", Switch::Vmm)]))
    })),
    ("batching", IMAGE, Text("on or off", |config, text| {
        put(&mut config.process.batching, choose(text, [("on", true), ("off", false)]))
    })),
    ("state", IMAGE, Text("mapped or copied", |config, text| {
        put(&mut config.process.copies_state, choose(text, [("mapped", false), ("copied", true)]))
    })),
    ("cpus", None, Text("a number from 1 to 64", |config, text| {
        put(&mut config.cpus, text.parse().ok().filter(|cpus| CPUS.contains(cpus)))
    })),
    ("memory", None, Text("a size like 64M", |config, text| {
        put(&mut config.memory, parse_size(text))
    })),
    ("pages", None, Text("auto, file, 4k or 2m", |config, text| {
        use MemoryKind::{Auto, File, Private};
        let pages = [("auto", Auto), ("file", File), ("4k", Private(Pages::Small)), ("2m", Private(Pages::Huge))];
        put(&mut config.pages, choose(text, pages))
    })),
    ("prefault", None, Text("no, steps or whole", |config, text| {
        let ways = [("no", None), ("steps", Some(Steps)), ("whole", Some(Whole))];
        put(&mut config.prefault, choose(text, ways))
    })),
    ("populate", IMAGE, Text("steps or whole", |config, text| {
        put(&mut config.populate, choose(text, [("steps", Some(Steps)), ("whole", Some(Whole))]))
    })),
    ("ticker", IMAGE, Flag(|config| config.ticker = true)),
    ("entropy", IMAGE, Flag(|config| config.entropy = true)),
    ("halt-in-guest", IMAGE, Flag(|config| config.halt_in_guest = true)),
    ("no-pv-eoi", LINUX, Flag(|config| config.paravirtual_eoi = false)),
    ("serial", None, Text("lines, direct or buffered", |config, text| {
        put(&mut config.serial, SerialMode::from_name(text))
    })),
    ("disk", None, Text("FILE[,ro][,direct][,engine=uring|pool]", |config, text| {
        push(&mut config.disks, DiskConfig::parse(text))
    })),
    ("net", None, Text("tap=NAME[,vhost=on], fd=N[,vhost=on] or vhost-user=SOCKET[,queues=N], optionally mac=02:…:…:…:…:…", |config, text| {
        push(&mut config.net, net::Spec::parse(text))
    })),
    ("vsock", LINUX, Text("cid=N,path=SOCKET[,in] with N of 3 or more, given once", |config, text| {
        let spec = vsock::Spec::parse(text).filter(|_| config.vsock.is_none());
        put(&mut config.vsock, spec.map(Some))
    })),
    ("events", None, Text("a file descriptor", |config, text| {
        put(&mut config.events, text.parse().ok().filter(|fd| *fd >= 0).map(Some))
    })),
    ("pin", LINUX, Text("same, disjoint, or a list like vcpu0=1,disk0=0,others=0", |config, text| {
        put(&mut config.placement, Placement::parse(text))
    })),
    ("api", LINUX, Path(|config, path| config.api = Some(path))),
    ("seconds", None, Text("a number of seconds", |config, text| {
        put(&mut config.seconds, text.parse().ok().filter(|seconds| *seconds != 0).map(Some))
    })),
    ("user", None, Text("UID:GID, both above 0", |config, text| {
        put(&mut config.user, User::parse(text).map(Some))
    })),
    ("chroot", None, Path(|config, path| config.chroot = Some(path))),
    ("no-sandbox", None, Flag(|config| config.sandbox = false)),
];

fn put<T>(field: &mut T, value: Option<T>) -> Option<()> {
    value.map(|value| *field = value)
}

fn push<T>(list: &mut Vec<T>, value: Option<T>) -> Option<()> {
    value.map(|value| list.push(value))
}

fn choose<T, const N: usize>(text: &str, values: [(&str, T); N]) -> Option<T> {
    let found = values.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| value)
}

/// Parses the command line.
///
/// # Errors
/// [`Failure::Usage`], naming the option.
pub fn parse(mut words: Parser) -> Result<Request, Failure> {
    let mut config = VmConfig::default();
    let mut restricted = Vec::new();
    while let Some(word) = words.next().map_err(usage)? {
        let row = match word {
            Arg::Long("help") | Arg::Short('h') => return Ok(Request::Help),
            Arg::Long("version") | Arg::Short('V') => return Ok(Request::Version),
            Arg::Long(name) => OPTIONS.iter().find(|row| row.0 == name),
            _ => None,
        };
        let Some((name, guest, effect)) = row else {
            return Err(usage(word.unexpected()));
        };
        match effect {
            Flag(set) => set(&mut config),
            Path(set) => set(&mut config, words.value().map_err(usage)?.into()),
            Text(expected, set) => {
                let value = words.value().map_err(usage)?.string().map_err(usage)?;
                let invalid = || Failure::Usage(format!("--{name} {value}: expected {expected}"));
                set(&mut config, &value).ok_or_else(invalid)?;
            }
        }
        restricted.extend(guest.map(|guest| (*name, guest)));
    }
    config.check(&restricted)?;
    Ok(Request::Run(Box::new(config)))
}

impl VmConfig {
    fn set_image(&mut self, guest: Guest, path: PathBuf) {
        (self.guest, self.image) = (guest, path);
    }

    /// Rejects options that do not apply to the kind of guest; `restricted` are those given that apply to one kind.
    fn check(&self, restricted: &[(&'static str, Guest)]) -> Result<(), Failure> {
        let is_main = |(name, _): &&(&str, Guest)| matches!(*name, "image" | "kernel" | "domain");
        let conflict = restricted.iter().find(|(_, guest)| *guest != self.guest);
        Err(Failure::Usage(
            match restricted.iter().filter(is_main).count() {
                0 => "--image, --kernel or --domain is required".into(),
                1 => match conflict {
                    Some((name, Guest::Image)) => format!("--{name} requires --image"),
                    Some((name, Guest::Linux)) => format!("--{name} requires --kernel"),
                    None => return self.check_devices(),
                },
                _ => "--image, --kernel and --domain exclude each other, and may be given once"
                    .into(),
            },
        ))
    }

    /// Rejects options that name absent devices or exclude each other.
    fn check_devices(&self) -> Result<(), Failure> {
        self.check_backend()?;
        if self.guest == Guest::Image && self.disks.len() > 1 {
            return Err(Failure::Usage("several --disk require --kernel".into()));
        }
        let externals = self.net.iter().filter(|card| card.is_external()).count();
        if self.guest == Guest::Image && (externals > 1 || self.net.len() > 2) {
            let message =
                "more than two --net, or two with vhost-user or vhost=on, require --kernel";
            return Err(Failure::Usage(message.into()));
        }
        if self.shares_memory() && matches!(self.pages, MemoryKind::Private(_)) {
            let message = "--net vhost-user requires --pages file, which can be shared";
            return Err(Failure::Usage(message.into()));
        }
        let threads = [
            ("vcpu", self.cpus as usize),
            ("disk", self.disks.len()),
            ("net", self.net.len()),
            ("vsock", usize::from(self.vsock.is_some())),
        ];
        if let Some(name) = self.placement.absent(&threads) {
            return Err(Failure::Usage(format!(
                "--pin: this VM has no thread {name}"
            )));
        }
        match &self.vsock {
            Some(spec) if spec.allow_guest && self.chroot.is_some() => Err(Failure::Usage(
                "--chroot: guest connections to host sockets are not supported there; add ',in' to --vsock".into(),
            )),
            _ => Ok(()),
        }
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        b'T' => (&text[..text.len() - 1], 40),
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
