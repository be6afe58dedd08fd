//! The arguments of `boot`: a machine to be used, not measured.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Of `trapline boot`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BootArgs {
    /// A Linux kernel: a bzImage, or a vmlinux with CONFIG_PVH [default: the
    /// distribution's cloud kernel]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// Its initramfs
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,
    /// A disk: a raw file or a device, then options: ro, direct, engine=uring|pool
    #[arg(long = "disk", value_name = "FILE[,ro]")]
    pub disks: Vec<String>,
    /// A network card: a tap device that is there already, and perhaps its address
    #[arg(long = "net", value_name = "tap=NAME[,mac=M]")]
    pub cards: Vec<String>,
    /// Streams between programs of guest and host
    #[arg(long, value_name = "cid=N,path=SOCKET")]
    pub vsock: Option<String>,
    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub cpus: u32,
    /// Memory
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub memory: String,
    /// Words for the kernel, behind those that name its console
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub append: String,
    /// Which console this terminal is
    #[arg(long, value_enum, default_value_t = Console::Serial)]
    pub console: Console,
    /// CPUs of the machine's threads: same, disjoint, or a list like vcpu0=1,others=0
    #[arg(long, value_name = "WHERE")]
    pub pin: Option<String>,
    /// A socket over which the machine is paused, resumed, asked and stopped
    #[arg(long, value_name = "SOCKET")]
    pub api: Option<PathBuf>,
    /// Print events as lines of JSON, and the console to standard error
    #[arg(long)]
    pub json: bool,
    /// End when the guest restarts, too
    #[arg(long)]
    pub no_reboot: bool,
}

const EXAMPLES: &str = "\
On a terminal, Ctrl-A is for the machine and not its guest: then x ends it, p presses
its power button, h tells more, and a sends Ctrl-A itself.

  trapline boot --initrd initrd.cpio
  trapline boot --kernel vmlinuz --disk root.img --append 'root=/dev/vda rw'
  trapline boot --initrd initrd.cpio --json --api vm.sock 2> console.txt";

/// Which console this terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Console {
    /// The serial port, there from the first message on
    Serial,
    /// The virtio console, once its driver is
    Virtio,
}

impl Console {
    /// What a kernel is told for it. Its early messages are on the serial port either way.
    pub fn words(self) -> &'static str {
        match self {
            Self::Serial => "console=ttyS0",
            Self::Virtio => "console=ttyS0 console=hvc0",
        }
    }
}
