//! The VMM's machine: QEMU's TCG with SVM, a distribution kernel with KVM, and the agent as init, which
//! starts the VMM repeatedly.

use super::judge::Source;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use trapline_environments::sim::kernel::{self, Maker};
use trapline_environments::sim::{drivers, Archive};
use trapline_environments::{unpacked_kernel, Part, Root, Settings, TscRate};

/// Files of the machine and its guest.
pub struct Parts {
    settings: Settings,
    kernel: PathBuf,
    /// The unpacked kernel of the guest, which boots faster.
    unpacked: Vec<u8>,
    /// Drivers of the machine: KVM's, and its disk's.
    host: Vec<u8>,
    /// The guest's files.
    guest: Vec<u8>,
}

/// Drivers of the disk, for both.
const DRIVERS: [&str; 2] = ["virtio_mmio", "virtio_blk"];

const FILES: [&str; 2] = ["/trapline/cycles/kernel", "/trapline/cycles/initrd"];
const VMM: &str = "/trapline/cycles/vmm";

/// Kernel parameters of the guest, except the last.
const GUEST: &str = "console=ttyS0 loglevel=4 panic=-1 cryptomgr.notests nokaslr trapline-log=vda";

/// Kernel parameters of the machine. It prints warnings, such as of a timer that it does not use.
const HOST: &str = "console=ttyS0 loglevel=5 panic=-1 reboot=t cryptomgr.notests nokaslr";

impl Parts {
    /// Returns the files.
    ///
    /// # Errors
    /// One is missing.
    pub fn find(settings: Settings) -> Result<Self, String> {
        let text_of = |error: &dyn std::fmt::Display| error.to_string();
        let chosen = drivers::chosen(&settings, &DRIVERS).map_err(|error| text_of(&error))?;
        let kernel = kernel::chosen(&settings, Maker::Amd).map_err(|error| text_of(&error))?;
        let guest = Root::new(&settings).map_err(|error| text_of(&error))?;
        let guest = guest.on(drivers::archive(&chosen)).bytes();
        let host = [kernel.modules, chosen].concat();
        let unpacked = unpacked_kernel(&read(&kernel.image)?);
        Ok(Self {
            settings,
            kernel: kernel.image,
            unpacked: unpacked.map_err(|error| text_of(&error))?,
            host: drivers::archive(&host),
            guest: guest.map_err(|error| text_of(&error))?,
        })
    }

    /// Returns the machine's initramfs with a schedule of runs.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn root(&self, runs: &[String]) -> Result<Vec<u8>, String> {
        let text_of = |error: &dyn std::fmt::Display| error.to_string();
        let vmm = self.settings.parts.get(Part::Vmm);
        let vmm = vmm.map_err(|error| text_of(&error))?;
        let mut archive = Archive::default();
        archive.file(FILES[0], self.unpacked.clone());
        archive.file(FILES[1], self.guest.clone());
        archive.file(VMM, read(&vmm)?);
        archive.file("/trapline/cycles/command", command().into_bytes());
        archive.file("/trapline/cycles/schedule", runs.join("\n").into_bytes());
        let root = Root::new(&self.settings).map_err(|error| text_of(&error))?;
        let root = root.on(self.host.clone()).on(archive.bytes()).bytes();
        root.map_err(|error| text_of(&error))
    }

    /// Starts a machine with a time limit.
    ///
    /// # Errors
    /// QEMU is missing.
    pub fn start(&self, initrd: &Path, disk: &Path, patience: Duration) -> Result<Machine, String> {
        let mut drive = OsString::from("if=none,id=disk,format=raw,file=");
        drive.push(disk);
        let words =
            "-M microvm,acpi=on,rtc=on -bios qboot.rom -nodefaults -no-user-config -display none \
             -accel tcg -cpu max -m 1G -smp 1 -no-reboot -serial stdio \
             -global virtio-mmio.force-legacy=false -device virtio-blk-device,drive=disk \
             -device isa-debug-exit,iobase=0x501,iosize=4";
        let mut command = Command::new("qemu-system-x86_64");
        command.args(words.split_ascii_whitespace());
        command.arg("-drive").arg(drive);
        command.arg("-kernel").arg(&self.kernel);
        // The machine has no clock to calibrate its TSC, which is that of the host.
        let khz = TscRate::host().hertz / 1e3;
        let command_line = format!("{HOST} tsc_early_khz={khz:.0} tsc=reliable");
        command
            .arg("-initrd")
            .arg(initrd)
            .args(["-append", &command_line]);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut qemu = quiet.spawn().map_err(|error| format!("QEMU: {error}"))?;
        let output = qemu.stdout.take().ok_or("QEMU has no output")?;
        Ok(Machine {
            qemu,
            lines: lines_of(output),
            limit: Instant::now() + patience,
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the VMM's command, one argument per line, up to the last kernel parameters.
fn command() -> String {
    let [kernel, initrd] = FILES;
    let words = [
        VMM,
        "--kernel",
        kernel,
        "--initrd",
        initrd,
        "--cpus",
        "2",
        "--memory",
        "192M",
        "--seconds",
        "110",
        "--disk",
        "/dev/vda",
        "--cmdline",
        GUEST,
    ];
    words.join("\n")
}

/// Time without a line after which a machine has hung: a VMM in it is killed earlier.
const SILENCE: Duration = Duration::from_secs(150);

/// A machine that runs.
pub struct Machine {
    qemu: Child,
    lines: mpsc::Receiver<io::Result<String>>,
    limit: Instant,
}

impl Machine {
    /// Kills the machine if it still runs.
    pub fn end(mut self) {
        self.cut();
        // The child was started here and was killed.
        let _ = self.qemu.wait();
    }
}

impl Source for Machine {
    fn line(&mut self) -> io::Result<Option<String>> {
        let left = self.limit.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left.min(SILENCE)) {
            Ok(line) => line.map(|line| Some(line.trim_end().to_owned())),
            Err(mpsc::RecvTimeoutError::Disconnected) => Ok(None),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(io::Error::other("the machine has hung")),
        }
    }

    fn cut(&mut self) {
        // Fails if the machine has exited.
        let _ = self.qemu.kill();
    }
}

/// Console lines of a machine, read by a thread that ends with the machine.
fn lines_of(output: ChildStdout) -> mpsc::Receiver<io::Result<String>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map(|line| String::from_utf8_lossy(&line).into_owned());
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}
