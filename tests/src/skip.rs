//! Reports skipped tests. Crates that tests/ depends on include this file by its path.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns whether this host is like a reason says.
type Check = fn() -> bool;

/// Reasons for which a test may be skipped: words of the reason, and the check that this host is like that. The words are
/// often those of the product, which has reasons when it is broken, too.
const ACCEPTED: &[(&str, Check)] = &[
    ("NOVA hypervisor", || {
        std::env::var_os("TRAPLINE_NOVA").is_none()
    }),
    ("$TRAPLINE_TEST_QEMU", || {
        std::env::var_os("TRAPLINE_TEST_QEMU").is_none()
    }),
    ("KVM emulates ring 0", is_without_virtualization),
    ("a second vCPU are emulated", is_without_virtualization),
    ("cannot halt without leaving", is_without_virtualization),
    ("/dev/kvm", || {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).open("/dev/kvm").is_err()
    }),
    ("cargo install alioth-cli", || lacks("alioth")),
    ("testpmd", || lacks("dpdk-testpmd")),
    ("ovs", || {
        !Path::new("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk").is_file()
    }),
    ("no package", || lacks("apt-get")),
    ("no kernel package", || lacks("apt-get")),
    ("no Xen package", || lacks("apt-get")),
    ("apt-get download", || lacks("apt-get")),
    ("drivers are not modules", || lacks("apt-get")),
    ("Xen has no symbols", || !has_debug_archive()),
    ("its symbols cannot be had", || !has_debug_archive()),
    ("`make baseline` makes it", || true),
    ("`make baseline` updates it", || true),
    ("one CPU", has_one_cpu),
    ("one processor only", has_one_cpu),
    ("module bridge is not loaded", || {
        !Path::new("/sys/module/bridge").exists()
    }),
    ("they need root", || !is_root()),
    ("unpacking needs root", || !is_root()),
    ("by root only", || !is_root()),
    ("vm.mmap_min_addr", || !is_root()),
    ("no network with a tap", || !has_taps()),
    ("transparent_hugepage", || {
        let file = "/sys/kernel/mm/transparent_hugepage/enabled";
        reads(file, "[never]") || !Path::new(file).exists()
    }),
];

/// Reasons that `make setup-tests` removes. Accepted unless `$TRAPLINE_TEST_PACKAGES` is `required`, as in CI, which runs every
/// test that a package is enough for.
const INSTALLABLE: &[(&str, Check)] = &[
    ("QEMU", || !has_qemu()),
    ("qemu", || !has_qemu()),
    ("Bochs", || lacks("bochs-bin") && lacks("bochs")),
    ("git is not installed", || lacks("git")),
    ("no browser is installed", || lacks("chromium")),
    ("dpkg-deb is not installed", || lacks("dpkg-deb")),
    ("mkfs.ext4 is not installed", || lacks("mkfs.ext4")),
    ("libc6-dbg is not installed", || {
        !Path::new("/usr/lib/debug/.build-id").is_dir()
    }),
    ("umoci", || {
        lacks("mmdebstrap") || lacks("umoci") || lacks("dpkg-deb") || lacks("unshare")
    }),
];

/// Reports a skipped test with its reason, on standard error and in the file `$TRAPLINE_SKIPS`,
/// which `make test` prints at its end.
///
/// # Panics
/// The reason is none of [`ACCEPTED`] and [`INSTALLABLE`], or not true here: the product is broken, or the table has to learn a host.
#[track_caller]
pub fn skip(feature: &str, why: &str) {
    let line = format!("{feature}: {why}\n");
    let required = std::env::var_os("TRAPLINE_TEST_PACKAGES").is_some_and(|it| it == "required");
    let installable = INSTALLABLE.iter().filter(|_| !required);
    let mut known = ACCEPTED.iter().chain(installable);
    assert!(
        known.any(|(words, is_true)| why.contains(words) && is_true()),
        "no reason to skip on this host (tests/src/skip.rs): {line}"
    );
    eprint!("skipped: {line}");
    let Some(file) = std::env::var_os("TRAPLINE_SKIPS") else {
        return;
    };
    let mut options = std::fs::OpenOptions::new();
    let opened = options.create(true).append(true).open(&file);
    opened
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("cannot note a skip in {file:?}: {error}"));
}

/// Returns the path of a program found in $PATH.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|program| program.is_file())
}

fn lacks(program: &str) -> bool {
    on_path(program).is_none()
}

/// Returns whether QEMU is installed in a version that is supported.
fn has_qemu() -> bool {
    let output = Command::new("qemu-system-x86_64").arg("--version").output();
    let Ok(text) = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()) else {
        return false;
    };
    let version = text.split("version ").nth(1);
    let major = version.and_then(|version| version.split('.').next()?.parse().ok());
    major.is_some_and(|major: u32| major >= 7)
}

/// Returns whether the processor has no virtualization, so that KVM, if there is one, is not one in hardware.
fn is_without_virtualization() -> bool {
    !reads("/proc/cpuinfo", " vmx ") && !reads("/proc/cpuinfo", " svm ")
}

/// Returns whether a package source with debug symbols is configured.
fn has_debug_archive() -> bool {
    let more = std::fs::read_dir("/etc/apt/sources.list.d");
    let more = more.into_iter().flatten().flatten();
    let mut files = more.map(|entry| entry.path());
    reads("/etc/apt/sources.list", "-debug") || files.any(|file| reads(file, "-debug"))
}

fn has_one_cpu() -> bool {
    std::thread::available_parallelism().is_ok_and(|count| count.get() == 1)
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn has_taps() -> bool {
    let words = ["-rn", "ip", "tuntap", "add", "t", "mode", "tap"];
    let made = Command::new("unshare").args(words).output();
    made.is_ok_and(|output| output.status.success())
}

fn reads(file: impl AsRef<Path>, words: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.contains(words))
}
