//! What machine is wanted, as `trapline-vmm` understands it.

use crate::args::BootArgs;
use crate::failure::{Failure, Status};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use trapline_environments::{ready_for_linux, stock_kernel, Part, Settings};

/// A machine, and who makes it.
pub struct Request {
    /// The VMM.
    pub vmm: PathBuf,
    /// The kernel's file.
    pub kernel: PathBuf,
    /// Where the machine listens.
    pub api: PathBuf,
    /// Whether standard output is for something else than the console.
    pub console_to_errors: bool,
    arguments: Vec<OsString>,
    /// Where it listens, if nobody said where: it is gone with this.
    _own: Option<TempDir>,
}

impl Request {
    /// What `args` ask for.
    ///
    /// # Errors
    /// There is nothing to boot, or nothing to boot it with.
    pub fn new(args: &BootArgs) -> Result<Self, Failure> {
        if args.initrd.is_none() && args.disks.is_empty() {
            let told = "there is nothing that the kernel could run";
            let help = "give --initrd FILE, or --disk FILE with --append root=/dev/vda";
            return Err(Failure::new(told).help(help).status(Status::Usage));
        }
        let failed = |error| Failure::from_error(&error);
        let settings = Settings::find().map_err(failed)?;
        let vmm = settings.parts.get(Part::Vmm).map_err(failed)?;
        ready_for_linux().map_err(failed)?;
        let kernel = match &args.kernel {
            Some(kernel) => kernel.clone(),
            None => stock_kernel(&settings).map_err(failed)?,
        };
        let (api, own) = match &args.api {
            Some(path) => (path.clone(), None),
            None => own_socket()?,
        };
        Ok(Self {
            arguments: arguments(args, &kernel, &api),
            vmm,
            kernel,
            api,
            console_to_errors: args.json,
            _own: own,
        })
    }

    /// The arguments of the VMM, whose events go to descriptor 3.
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }
}

/// A place that nobody else can see.
fn own_socket() -> Result<(PathBuf, Option<TempDir>), Failure> {
    let place = tempfile::tempdir()
        .map_err(|error| Failure::new(format!("cannot make a directory for a socket: {error}")))?;
    Ok((place.path().join("machine"), Some(place)))
}

fn arguments(args: &BootArgs, kernel: &Path, api: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut option = |name: &str, value: OsString| words.extend([name.into(), value]);
    option("--kernel", kernel.into());
    if let Some(initrd) = &args.initrd {
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

    fn parsed(words: &[&str]) -> BootArgs {
        match command("boot", words) {
            Ok(Command::Boot(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_option_reaches_the_machine() {
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
        let words = arguments(&args, Path::new("k"), Path::new("s"));
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(
            words.join("|"),
            "--kernel|k|--initrd|i|--cpus|2|--memory|1G|--cmdline|\
             console=ttyS0 console=hvc0 -- quiet|--events|3|--api|s|--disk|a,ro|--disk|b|\
             --net|tap=t|--vsock|cid=3,path=v|--pin|same"
        );
    }

    #[test]
    fn a_kernel_alone_is_nothing_to_run() {
        let Err(failure) = Request::new(&parsed(&["--kernel=k"])) else {
            panic!("it was taken");
        };
        assert!(failure.whole().contains("--initrd FILE"));
    }
}
