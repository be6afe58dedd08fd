//! What a simulated machine is before anything of ours is on it: the machine itself
//! and the kernel that it boots, or a hypervisor with the kernel of its first
//! domain.

use super::kernel::{self, Kernel, Maker};
use super::module::Module;
use crate::bochs;
use crate::environment::Facts;
use crate::error::EnvError;
use crate::parts::sha256_of_file;
use crate::process::Command;
use crate::settings::Settings;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// The machine. Without PCI its Linux boots fast; without ACPI it would not find
/// the local APIC, whose timer every later timer depends on. Pauses are pvpanic's.
pub const MACHINE: &str = "-M microvm,acpi=on,rtc=on -bios qboot.rom -device pvpanic";

/// What its Linux is told: no randomness, no self-tests of its ciphers (two
/// thirds of the instructions of a boot), its warnings on the serial port, and
/// to end where it cannot go on, by a triple fault: it would try other ways, which
/// this machine has not, for minutes. Mitigations stay as the distribution has them.
pub const KERNEL_WORDS: &str = "console=ttyS0 loglevel=4 nokaslr norandmaps \
                                cryptomgr.notests panic=-1 reboot=t";

/// A machine and what it boots.
pub struct Base {
    /// The machine in QEMU's words; nothing where Bochs makes it, which makes one only.
    pub machine: &'static str,
    /// Its processor, where it is not that of every machine that counts.
    pub processor: &'static str,
    /// What it boots.
    pub loaded: Loaded,
    /// Modules of its Linux, in the order in which they are to be loaded.
    pub modules: Vec<Module>,
    /// What is to be told about them.
    pub facts: Facts,
    /// Whether it uses random numbers of its processor while it works. QEMU does not keep
    /// their source with a machine that is saved, so one that was restored goes other ways
    /// than one that has booted; no two of both kinds are to be compared.
    pub draws_lots: bool,
}

/// What is loaded into the machine besides the initramfs.
pub struct Loaded {
    /// The kernel, or a hypervisor.
    pub kernel: PathBuf,
    /// What it is told.
    pub words: String,
    /// Below a hypervisor the kernel of the first domain, and what it is told.
    pub module: Option<(PathBuf, String)>,
}

impl Base {
    /// The machine of this maker with the user's Linux or the distribution's.
    ///
    /// # Errors
    /// There is no kernel, or it cannot be read.
    pub fn linux(settings: &Settings, maker: Maker) -> Result<Self, EnvError> {
        let (machine, words) = match maker {
            Maker::Amd => (MACHINE, KERNEL_WORDS),
            Maker::Intel => ("", bochs::KERNEL_WORDS),
        };
        let Kernel {
            image,
            modules,
            origin,
        } = kernel::chosen(settings, maker)?;
        let facts = [
            ("l1-kernel", origin),
            ("l1-kernel-sha256", sha256_of_file(&image)?),
        ];
        Ok(Self {
            machine,
            processor: "",
            loaded: Loaded {
                kernel: image,
                words: words.to_owned(),
                module: None,
            },
            modules,
            facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
            draws_lots: false,
        })
    }

    /// All words that make it what it is.
    pub fn words(&self) -> Vec<String> {
        let all = [self.machine, crate::qemu::COUNTING].into_iter();
        let further = [self.processor]
            .into_iter()
            .filter(|words| !words.is_empty());
        let all = all.chain(self.loaded.all_words()).chain(further);
        all.map(str::to_owned).collect()
    }
}

impl Loaded {
    /// What each is told.
    pub fn all_words(&self) -> impl Iterator<Item = &str> {
        let module = self.module.iter().map(|(_, words)| words.as_str());
        [self.words.as_str()].into_iter().chain(module)
    }

    /// Tells QEMU to load it with `initramfs`.
    pub fn load_into(&self, command: Command, initramfs: &Arc<File>) -> Command {
        let mut command = command.arg("-kernel").arg(&self.kernel).arg("-initrd");
        let command = match &self.module {
            None => command.file(Arc::clone(initramfs)),
            Some((kernel, words)) => {
                let number = command.give(Arc::clone(initramfs));
                // A comma ends a module, two are one.
                let kernel = kernel.to_string_lossy().replace(',', ",,");
                command.arg(format!("{kernel} {words},/proc/self/fd/{number}"))
            }
        };
        command.arg("-append").arg(&self.words)
    }
}
