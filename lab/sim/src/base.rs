//! A simulated machine before anything is added: the machine itself, and its kernel, or a hypervisor with
//! the kernel of dom0.

use crate::kernel::{self, Kernel, Maker};
use crate::module::Module;
use crate::platform::Platform;
use crate::settings::Settings;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use trapline_host::process::Command;
use trapline_host::{sha256_of_file, Error, Facts};

/// A machine and what it boots.
pub struct Base {
    /// The kind of machine.
    pub platform: &'static Platform,
    /// Machine options of QEMU, those of the platform or others; empty on Bochs.
    pub machine: &'static str,
    /// CPU options, if not those of [`COUNTING`](crate::qemu::COUNTING).
    pub processor: &'static str,
    /// Kernel or hypervisor.
    pub loaded: BootFiles,
    /// Kernel modules, in load order.
    pub modules: Vec<Module>,
    /// Facts about kernel and modules.
    pub facts: Facts,
    /// The machine uses random numbers of its CPU while it runs. QEMU does not save their state in a
    /// snapshot, so that a restored machine differs from a booted one; only restored ones are used.
    pub random_state: bool,
    /// Programs run in a control group that accounts CPU time and memory.
    pub control_group: bool,
    /// Placement of all else in memory.
    pub layout: Layout,
}

/// Placement of all else in the memory of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Further memory in MiB.
    pub memory_mib: u32,
    /// Bytes of a file that is unpacked before all others.
    pub file_bytes: usize,
    /// Bytes of a further environment variable of all programs.
    pub variable_bytes: usize,
}

impl Layout {
    /// Returns the layout with this number. The first one adds nothing. Steps are no multiples of larger pages, and of no
    /// alignment of a stack twice as large as the ABI's (System V ABI for AMD64, 3.4.1).
    pub const fn new(number: u32) -> Self {
        Self {
            memory_mib: 96 * number,
            file_bytes: 12_345 * number as usize,
            variable_bytes: 24 * number as usize,
        }
    }
}

/// Environment variable of a layout, and its file in the root directory.
const VARIABLE: &str = "LAYOUT";
/// The first name of the archive.
pub const LAYOUT_FILE: &str = "/.layout";

/// Files that are loaded besides the initramfs.
pub struct BootFiles {
    /// The kernel, or a hypervisor.
    pub kernel: PathBuf,
    /// Its command line.
    pub words: String,
    /// With a hypervisor: the kernel of dom0 and its command line.
    pub module: Option<(PathBuf, String)>,
}

impl Base {
    /// Returns the machine of this vendor with the kernel of the settings or of the distribution.
    ///
    /// # Errors
    /// The kernel is missing or cannot be read.
    pub fn linux(settings: &Settings, maker: Maker) -> Result<Self, Error> {
        let platform = maker.platform();
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
            platform,
            machine: platform.machine,
            processor: platform.processor,
            loaded: BootFiles {
                kernel: image,
                words: platform.words.to_owned(),
                module: None,
            },
            modules,
            facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
            random_state: false,
            control_group: false,
            layout: Layout::default(),
        })
    }

    /// Returns the machine of [`Self::linux`] for Linux guests, which run long enough for the machine's
    /// kernel to draw random numbers anew.
    ///
    /// # Errors
    /// See [`Self::linux`].
    pub fn linux_with_linux_guests(settings: &Settings, maker: Maker) -> Result<Self, Error> {
        Ok(Self {
            random_state: true,
            ..Self::linux(settings, maker)?
        })
    }

    /// Returns the machine with a further option of its kernel, which begins with a space; without any if it is empty.
    #[must_use]
    pub fn with_option(mut self, option: &str) -> Self {
        if !option.is_empty() {
            self.loaded.words += option;
            let words = self.loaded.words.clone();
            self.facts.insert("l1-command-line".to_owned(), words);
        }
        self
    }

    /// Returns the machine whose programs run in a control group of their own.
    #[must_use]
    pub fn with_control_group(mut self) -> Self {
        self.control_group = true;
        let group = "CPU time and memory accounted".to_owned();
        self.facts.insert("l1-control-group".to_owned(), group);
        self
    }

    /// Returns the machine with another layout of its memory. Linux passes words of its command line that it does not
    /// know to init's environment (Documentation/admin-guide/kernel-parameters.rst).
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Self {
        if layout != Layout::default() {
            self.layout = layout;
            let words = match &mut self.loaded.module {
                Some((_, words)) => words,
                None => &mut self.loaded.words,
            };
            let value = "0".repeat(layout.variable_bytes);
            words.push_str(&format!(" {VARIABLE}={value}"));
            let Layout {
                memory_mib,
                file_bytes,
                variable_bytes,
            } = layout;
            let text = format!(
                "{memory_mib} MiB more, a file of {file_bytes} bytes first, \
                 a variable of {variable_bytes} bytes"
            );
            self.facts.insert("l1-layout".to_owned(), text);
        }
        self
    }

    /// Returns all options and command lines of the machine.
    pub fn words(&self) -> Vec<String> {
        let all = [self.machine, crate::qemu::COUNTING].into_iter();
        let further = [self.processor]
            .into_iter()
            .filter(|words| !words.is_empty());
        let all = all.chain(self.loaded.all_words()).chain(further);
        all.map(str::to_owned).collect()
    }
}

impl BootFiles {
    /// Returns all command lines.
    pub fn all_words(&self) -> impl Iterator<Item = &str> {
        let module = self.module.iter().map(|(_, words)| words.as_str());
        [self.words.as_str()].into_iter().chain(module)
    }

    /// Adds the options of QEMU that load the files with `initramfs`.
    pub fn load_into(&self, command: Command, initramfs: &Arc<File>) -> Command {
        let mut command = command.arg("-kernel").arg(&self.kernel).arg("-initrd");
        let command = match &self.module {
            None => command.arg_file(Arc::clone(initramfs)),
            Some((kernel, words)) => {
                let number = command.pass_file(Arc::clone(initramfs));
                // A comma ends a module; two commas are an escaped one.
                let kernel = kernel.to_string_lossy().replace(',', ",,");
                command.arg(format!("{kernel} {words},/proc/self/fd/{number}"))
            }
        };
        command.arg("-append").arg(&self.words)
    }
}
