//! Reports skipped tests. A test that leaves itself out, or a part of itself, says so here.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flag of open(2) on x86.
const O_DIRECT: i32 = 0o40000;

/// Returns whether this host is like a reason says.
type Check = fn() -> bool;

/// Reasons for which a test may be skipped: words of the reason, and the check that this host is like that. The words are
/// often those of the product, which has reasons when it is broken, too.
const ACCEPTED: &[(&str, Check)] = &[
    ("NOVA hypervisor", || {
        std::env::var_os("TRAPLINE_NOVA").is_none() && !cache().join("nova/hypervisor").exists()
    }),
    ("$TRAPLINE_TEST_QEMU", || {
        std::env::var_os("TRAPLINE_TEST_QEMU").is_none()
    }),
    ("KVM emulates ring 0", is_without_virtualization),
    ("a second vCPU are emulated", is_without_virtualization),
    ("cannot halt without leaving", is_without_virtualization),
    ("/dev/kvm", || !can_write("/dev/kvm")),
    ("cargo install alioth-cli", || lacks("alioth")),
    // `make setup-tests` does not install it: its package needs 200 others, with 170 MB.
    ("testpmd", || lacks("dpdk-testpmd")),
    // The library of Open vSwitch that the product loads is of Debian 12.
    ("ovs", || {
        !candidate("librte-mempool-ring23").starts_with(char::is_numeric)
    }),
    ("-arm64", || lacks("apt-get")),
    ("no package", || lacks("apt-get")),
    ("no kernel package", || lacks("apt-get")),
    ("no Xen package", || lacks("apt-get")),
    ("apt-get download", || lacks("apt-get")),
    ("drivers are not modules", || lacks("apt-get")),
    ("Xen has no symbols", || !has_debug_archive()),
    ("its symbols cannot be had", || !has_debug_archive()),
    ("`make baseline` makes it", || !baselines().is_dir()),
    ("another l1-kernel", || {
        !are_recorded(&format!("_{}\"", kernel_version()))
    }),
    ("another qemu", || {
        !are_recorded(&format!("\"{}\"", qemu_version()))
    }),
    ("another qemu-sha256", || !are_recorded(&qemu_hash())),
    ("another toolchain", || !are_recorded(&rust_version())),
    ("one CPU", has_one_cpu),
    ("one processor only", has_one_cpu),
    ("module bridge is not loaded", || {
        !Path::new("/sys/module/bridge").exists()
    }),
    ("they need root", || !is_root()),
    ("unpacking needs root", || !is_root()),
    ("by root only", || !is_root()),
    ("host is too busy", is_loaded),
    ("vm.mmap_min_addr", || !is_root()),
    ("no network with a tap", || {
        !makes_network("ip tuntap add t mode tap")
    }),
    ("no network namespace", || !makes_network("true")),
    ("discipline 'tbf'", || {
        !makes_network("tc qdisc add dev lo root tbf rate 200mbit burst 3000 limit 1000000")
    }),
    ("no built parts", || {
        std::env::var_os("TRAPLINE_PARTS").is_none()
    }),
    ("control group of version 1", || {
        !can_write("/sys/fs/cgroup/cpu/tasks")
    }),
    ("pages of 2 MiB can be reserved", || {
        !can_write("/proc/sys/vm/nr_hugepages") || is_memory_fragmented()
    }),
    ("have no access times", || {
        options_of_temporary_files().contains("noatime")
    }),
    ("may deliver an interrupt twice", || {
        !["7.2.", "10.0."]
            .iter()
            .any(|known| qemu_version().starts_with(known))
    }),
    ("opened with O_DIRECT", || !has_direct_files()),
    ("transparent_hugepage", || {
        let file = "/sys/kernel/mm/transparent_hugepage/enabled";
        reads(file, "[never]") || !Path::new(file).exists()
    }),
];

/// Words of reasons of the host's processor and of its KVM.
const OF_HARDWARE: [&str; 4] = [
    "KVM emulates ring 0",
    "a second vCPU are emulated",
    "cannot halt without leaving",
    "/dev/kvm",
];

/// Reasons that `make setup-tests` removes. Accepted unless `$TRAPLINE_TEST_PACKAGES` is `required`, as in CI, which runs every
/// test that a package is enough for.
const INSTALLABLE: &[(&str, Check)] = &[
    ("qemu-system-aarch64", || lacks("qemu-system-aarch64")),
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
    ("ovs", || {
        !Path::new("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk").is_file()
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
    // A simulated machine needs no virtualization of this host.
    let is_of_hardware = OF_HARDWARE.iter().any(|words| why.contains(words));
    let is_simulated = feature.split(' ').any(|word| word.starts_with("sim"));
    assert!(
        !(is_of_hardware && is_simulated)
            && known.any(|(words, is_true)| why.contains(words) && is_true()),
        "no reason to skip on this host (tests/skip): {line}"
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

/// Returns whether more threads than CPUs were ready in the last minute.
fn is_loaded() -> bool {
    let loads = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = loads.split(' ').next().map(str::parse::<f64>);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    load.is_some_and(|load| load.is_ok_and(|load| load > cpus as f64))
}

fn lacks(program: &str) -> bool {
    on_path(program).is_none()
}

/// Returns whether QEMU is installed in a version that is supported.
fn has_qemu() -> bool {
    let major = qemu_version().split('.').next().map(str::parse);
    major.is_some_and(|major| major.is_ok_and(|major: u32| major >= 7))
}

/// Returns the version of the installed QEMU: `7.2.22`.
fn qemu_version() -> String {
    let text = output("qemu-system-x86_64 --version");
    let version = text.split("version ").nth(1).unwrap_or_default();
    version
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Returns the hash of the installed QEMU.
fn qemu_hash() -> String {
    let program = on_path("qemu-system-x86_64").unwrap_or_default();
    let text = output(&format!("sha256sum {}", program.display()));
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Returns what the compiler says of its version.
fn rust_version() -> String {
    output("rustc --version").trim().to_owned()
}

/// Returns the version of the kernel package of simulated machines that would be downloaded.
fn kernel_version() -> String {
    candidate("linux-image-cloud-amd64")
}

/// Returns the version of a package that would be installed; nothing if the distribution has none.
fn candidate(package: &str) -> String {
    let text = output(&format!("apt-cache policy {package}"));
    let version = text.split("Candidate: ").nth(1).unwrap_or_default();
    version.lines().next().unwrap_or_default().to_owned()
}

/// Returns the directory of the baselines of the host's release, as scripts/baselines.sh does.
fn baselines() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let root = root.expect("the crate is two directories below the repository");
    let directory = output(&format!("{}/scripts/baselines.sh", root.display()));
    root.join(directory.trim())
}

/// Returns whether a baseline was measured with a version of a program.
fn are_recorded(version: &str) -> bool {
    reads(baselines().join("sim-kvm.json"), version)
}

/// Returns the standard output of a command, empty if it cannot be started.
fn output(words: &str) -> String {
    let mut words = words.split(' ');
    let output = Command::new(words.next().expect("a program"))
        .args(words)
        .output();
    output.map_or(String::new(), |output| {
        String::from_utf8_lossy(&output.stdout).into_owned()
    })
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

/// Returns whether a command succeeds in a network namespace of its own.
fn makes_network(command: &str) -> bool {
    let mut unshare = Command::new("unshare");
    let made = unshare.arg("-rn").args(command.split(' ')).output();
    made.is_ok_and(|output| output.status.success())
}

fn can_write(file: &str) -> bool {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).open(file).is_ok()
}

/// Returns whether no free block of memory has 2 MiB, the tenth order of those in the table of the kernel.
fn is_memory_fragmented() -> bool {
    let table = std::fs::read_to_string("/proc/buddyinfo").unwrap_or_default();
    // Four words are before the orders: "Node 0, zone Normal".
    let mut orders = table
        .lines()
        .flat_map(|line| line.split_whitespace().skip(4 + 9));
    !orders.any(|free| free != "0")
}

/// Returns the options of the mount with temporary files.
fn options_of_temporary_files() -> String {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let directory = std::env::temp_dir();
    let mounts = mounts.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let (place, options) = (words.get(1)?, words.get(3)?);
        directory
            .starts_with(place)
            .then(|| (place.len(), (*options).to_owned()))
    });
    // Of several at one place the last one is seen.
    mounts.max_by_key(|mount| mount.0).unwrap_or_default().1
}

/// Returns the cache of Trapline.
fn cache() -> PathBuf {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    cache.or_else(home).unwrap_or_default().join("trapline")
}

/// Returns whether temporary files can be opened past the cache.
fn has_direct_files() -> bool {
    let file = std::env::temp_dir().join(format!("trapline-direct-{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let options = options.write(true).create_new(true).custom_flags(O_DIRECT);
    let opened = options.open(&file).is_ok();
    // It exists even where the flag is refused.
    let _ = std::fs::remove_file(&file);
    opened
}

fn reads(file: impl AsRef<Path>, words: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.contains(words))
}
