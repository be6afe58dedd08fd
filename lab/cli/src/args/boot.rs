//! Arguments of `boot`.

use super::pages::after_help;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Arguments of `trapline boot`.
#[derive(Args, Debug)]
#[command(after_help = after_help("boot"))]
pub struct BootArgs {
    /// Linux kernel: a bzImage, or a vmlinux with CONFIG_PVH [default: the distribution's cloud kernel]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// Initramfs [default without a kernel and a disk: the distribution's busybox]
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,
    /// Disk: a raw file or a device, and options: ro, direct, engine=uring|pool
    #[arg(long = "disk", value_name = "FILE[,ro]")]
    pub disks: Vec<String>,
    /// Network card: an existing tap device, and optionally a MAC address
    #[arg(long = "net", value_name = "tap=NAME[,mac=M]")]
    pub cards: Vec<String>,
    /// Vsock device: guest CID and path of the host's socket
    #[arg(long, value_name = "cid=N,path=SOCKET", hide_short_help = true)]
    pub vsock: Option<String>,
    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub cpus: u32,
    /// Memory size
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub memory: String,
    /// Kernel command line, after the options of the console
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub append: String,
    /// Console that is connected to this terminal
    #[arg(long, value_enum, default_value_t = Console::Serial, hide_short_help = true)]
    pub console: Console,
    /// CPUs of the machine's threads: same, disjoint, or a list like vcpu0=1,others=0
    #[arg(long, value_name = "WHERE", hide_short_help = true)]
    pub pin: Option<String>,
    /// API socket: pause, resume, query and stop the machine
    #[arg(long, value_name = "SOCKET", hide_short_help = true)]
    pub api: Option<PathBuf>,
    /// Print events as JSON lines, and the console to standard error
    #[arg(long)]
    pub json: bool,
    /// Exit when the guest reboots
    #[arg(long, hide_short_help = true)]
    pub no_reboot: bool,
}

/// A console of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Console {
    /// Serial port, from the first message on
    Serial,
    /// Virtio console, after its driver is loaded
    Virtio,
}

impl Console {
    /// Returns the kernel's options for it. Early messages are on the serial port in both cases.
    pub fn words(self) -> &'static str {
        match self {
            Self::Serial => "console=ttyS0",
            Self::Virtio => "console=ttyS0 console=hvc0",
        }
    }
}
