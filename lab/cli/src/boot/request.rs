//! Options of a machine as arguments of `trapline-vmm`.

use crate::args::BootArgs;
use crate::failure::Failure;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use trapline_environments::draft::WorkDirectory;
use trapline_environments::{ready_for_linux, shell_root, stock_kernel, Part, Settings};

/// A machine to boot.
pub struct Request {
    /// Path of the VMM.
    pub vmm: PathBuf,
    /// Kernel image.
    pub kernel: PathBuf,
    /// API socket.
    pub api: PathBuf,
    /// The console goes to standard error; standard output has the events.
    pub console_to_errors: bool,
    arguments: Vec<OsString>,
    /// Directory of the default API socket, removed on drop.
    _own: Option<WorkDirectory>,
    /// File of the root with a shell, removed on drop.
    _shell: Option<NamedTempFile>,
}

impl Request {
    /// Creates the machine of `args`. Without kernel, initramfs and disk it has the distribution's kernel and a shell.
    ///
    /// # Errors
    /// A kernel is given and neither initramfs nor disk, or the VMM or kernel is missing.
    pub fn new(args: &BootArgs) -> Result<Self, Failure> {
        let has_root = args.initrd.is_some() || !args.disks.is_empty();
        if !has_root && args.kernel.is_some() {
            return Err(Failure::usage(
                "the kernel has no root file system",
                "give --initrd FILE, or --disk FILE with --append root=/dev/vda",
            ));
        }
        let settings = Settings::find()?;
        let vmm = settings.parts.get(Part::Vmm)?;
        ready_for_linux()?;
        let kernel = match &args.kernel {
            Some(kernel) => kernel.clone(),
            None => stock_kernel(&settings)?,
        };
        let shell = if has_root {
            None
        } else {
            Some(shell_file(&settings)?)
        };
        let initrd = shell.as_ref().map(|file| file.path());
        let initrd = args.initrd.as_deref().or(initrd);
        let (api, own) = match &args.api {
            Some(path) => (path.clone(), None),
            None => own_socket()?,
        };
        Ok(Self {
            arguments: arguments(args, &kernel, initrd, &api),
            vmm,
            kernel,
            api,
            console_to_errors: args.json,
            _own: own,
            _shell: shell,
        })
    }

    /// Returns the arguments of the VMM, which writes events to descriptor 3.
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }
}

/// Creates a socket path in a private directory.
fn own_socket() -> Result<(PathBuf, Option<WorkDirectory>), Failure> {
    let place = WorkDirectory::temporary()?;
    Ok((place.path().join("machine"), Some(place)))
}

/// Writes an initramfs with a shell.
fn shell_file(settings: &Settings) -> Result<NamedTempFile, Failure> {
    let root = shell_root(&settings.cache)?;
    let written = NamedTempFile::new().and_then(|mut file| {
        file.write_all(&root)?;
        Ok(file)
    });
    written.map_err(|error| Failure::new(format!("cannot write the root file system: {error}")))
}

fn arguments(args: &BootArgs, kernel: &Path, initrd: Option<&Path>, api: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut option = |name: &str, value: OsString| words.extend([name.into(), value]);
    option("--kernel", kernel.into());
    if let Some(initrd) = initrd {
        option("--initrd", initrd.into());
    }
    option("--cpus", args.cpus.to_string().into());
    option("--memory", args.memory.clone().into());
    let line = format!("{} {}", args.console.words(), args.append);
    option("--cmdline", line.trim_end().into());
    option("--events", "3".into());
    option("--api", api.into());
    for disk in &args.disks {
        option("--disk", disk.into());
    }
    for card in &args.cards {
        option("--net", card.into());
    }
    for (name, value) in [("--vsock", &args.vsock), ("--pin", &args.pin)] {
        if let Some(value) = value {
            option(name, value.into());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{command, Command};
    use expect_test::expect;

    fn parsed(words: &[&str]) -> BootArgs {
        match command("boot", words) {
            Ok(Command::Boot(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_option_is_passed_to_the_vmm() {
        let args = parsed(&[
            "--initrd=i",
            "--disk=a,ro",
            "--disk=b",
            "--net=tap=t",
            "--vsock=cid=3,path=v",
            "--cpus=2",
            "--memory=1G",
            "--append=-- quiet",
            "--console=virtio",
            "--pin=same",
        ]);
        let words = arguments(
            &args,
            Path::new("k"),
            args.initrd.as_deref(),
            Path::new("s"),
        );
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(
            words.join("|"),
            "--kernel|k|--initrd|i|--cpus|2|--memory|1G|--cmdline|\
             console=ttyS0 console=hvc0 -- quiet|--events|3|--api|s|--disk|a,ro|--disk|b|\
             --net|tap=t|--vsock|cid=3,path=v|--pin|same"
        );
    }

    #[test]
    fn a_kernel_without_root_is_rejected() {
        let Err(failure) = Request::new(&parsed(&["--kernel=k"])) else {
            panic!("it was accepted");
        };
        expect!["the kernel has no root file system; give --initrd FILE, or --disk FILE with --append root=/dev/vda"].assert_eq(&failure.one_line());
    }
}
