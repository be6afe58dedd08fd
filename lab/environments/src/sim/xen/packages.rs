//! Xen from the distribution's packages: the hypervisor, the kernel of its first
//! domain and its programs, downloaded and unpacked without being installed.
//!
//! What was downloaded once is kept and used from then on, as with the kernels of
//! other machines. It appears in its place complete or not at all.

use super::super::kernel::{self, KernelError};
use super::super::module::{self, Module};
use crate::cache::{Cache, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Xen, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xen {
    /// Where it is.
    pub(super) directory: PathBuf,
}

/// Programs of the first domain.
pub const PROGRAMS: [&str; 4] = ["xenstored", "xen-init-dom0", "xenconsoled", "xl"];

/// The program that models devices for fully virtualized domains, in a package of its
/// own that not every distribution has.
pub const DEVICE_MODEL: &str = "xen-qemu-system-i386";
const DEVICE_MODEL_PACKAGE: &str = "qemu-system-xen";

/// Modules by which they speak to Xen.
const MODULES: [&str; 5] = [
    "xen_privcmd",
    "xenfs",
    "xen_evtchn",
    "xen_gntdev",
    "xen_gntalloc",
];

/// A library that is loaded only when a thread is cancelled, from where the C library
/// is.
const LOADED_LATE: &str = "libgcc_s.so.1";
const C_LIBRARY: &str = "libc.so.6";

/// What an entry of the cache holds, and last of all the modules' order.
const HYPERVISOR: &str = "xen";
const KERNEL: &str = "vmlinuz";
const PROGRAM_DIRECTORY: &str = "programs";
const LIBRARIES: &str = "lib";
const ORDER: &str = "modules";

/// More than a hypervisor takes when unpacked, in bytes.
const LARGEST: u64 = 64 << 20;

/// Packages that stand for the newest kernel that can be a first domain: Debian's
/// and Ubuntu's. Those for virtual machines cannot.
const KERNELS: [&str; 2] = ["linux-image-amd64", "linux-image-generic"];

/// Whether [`Xen::fetched`] can be expected to succeed.
///
/// # Errors
/// Why not.
pub fn check(cache: &Cache) -> Result<(), KernelError> {
    match in_cache(cache) {
        Some(_) => Ok(()),
        None => Packages::known().map(drop),
    }
}

/// The same where fully virtualized domains are to be run.
///
/// # Errors
/// Why not.
pub fn check_device_model(cache: &Cache) -> Result<(), KernelError> {
    let known = match in_cache(cache) {
        Some(directory) => Xen { directory }.program(DEVICE_MODEL).is_file(),
        None => !Packages::known()?.device_model.is_empty(),
    };
    known.then_some(()).ok_or(KernelError::NoDeviceModel)
}

impl Xen {
    /// Xen from the cache, or else downloaded into it.
    ///
    /// # Errors
    /// It is not in the cache and cannot be had.
    pub fn fetched(cache: &Cache) -> Result<Self, KernelError> {
        Self::kept(cache).map_or_else(|| download(cache), Ok)
    }

    /// Xen from the cache, if it is there.
    pub fn kept(cache: &Cache) -> Option<Self> {
        in_cache(cache).map(|directory| Self { directory })
    }

    /// The package that it comes from.
    pub fn origin(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default();
        format!("package {}", name.to_string_lossy())
    }

    /// The hypervisor, as a multiboot loader reads it.
    pub fn hypervisor(&self) -> PathBuf {
        self.directory.join(HYPERVISOR)
    }

    /// The kernel of its first domain.
    pub fn kernel(&self) -> PathBuf {
        self.directory.join(KERNEL)
    }

    /// The modules of that kernel, in the order in which they are to be loaded.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn modules(&self) -> Result<Vec<Module>, KernelError> {
        kernel::modules_in(&self.directory, ORDER)
    }

    /// A program of the first domain.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(PROGRAM_DIRECTORY).join(name)
    }

    /// Its libraries.
    pub fn libraries(&self) -> PathBuf {
        self.directory.join(LIBRARIES)
    }
}

fn in_cache(cache: &Cache) -> Option<PathBuf> {
    let entries = fs::read_dir(cache.of(Kind::Xen)).ok()?;
    let complete = |path: &PathBuf| path.join(ORDER).is_file();
    let entries = entries.flatten().map(|entry| entry.path());
    entries.filter(complete).max()
}

/// What is to be downloaded.
struct Packages {
    hypervisor: String,
    kernel: Vec<String>,
    programs: Vec<String>,
    device_model: Vec<String>,
}

impl Packages {
    /// Those of the newest Xen that the distribution knows.
    fn known() -> Result<Self, KernelError> {
        let pattern = ["search", "--names-only", "^xen-hypervisor-[0-9.]+-amd64$"];
        let found = kernel::run("apt-cache", &pattern, Path::new("/"))?;
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        let version = newest(&text).ok_or_else(missing)?;
        Ok(Self {
            hypervisor: format!("xen-hypervisor-{version}-amd64"),
            kernel: kernel::packages_of(&KERNELS)?,
            programs: with_libraries(&format!("xen-utils-{version}"))?,
            device_model: with_libraries(DEVICE_MODEL_PACKAGE)?,
        })
    }

    fn all(&self) -> BTreeSet<&str> {
        let programs = self.programs.iter().chain(&self.device_model);
        let all = self.kernel.iter().chain(programs);
        all.chain([&self.hypervisor]).map(String::as_str).collect()
    }
}

fn missing() -> KernelError {
    KernelError::NoXen
}

/// The highest version of a hypervisor in what apt-cache found.
fn newest(found: &str) -> Option<String> {
    let name = |line: &str| line.split(' ').next().map(str::to_owned);
    let version = |name: String| {
        let version = name
            .strip_prefix("xen-hypervisor-")?
            .strip_suffix("-amd64")?;
        Some(version.to_owned())
    };
    let versions = found.lines().filter_map(name).filter_map(version);
    versions.max_by_key(|version| -> Vec<u32> {
        version
            .split('.')
            .filter_map(|part| part.parse().ok())
            .collect()
    })
}

/// A package and the libraries that it depends on, but for the C library: that is
/// the host's, like the loader. Nothing if the distribution has no such package.
fn with_libraries(package: &str) -> Result<Vec<String>, KernelError> {
    let arguments = ["depends", "--recurse", "--important", package];
    let output = kernel::run("apt-cache", &arguments, Path::new("/"))?;
    let known = by_package(&String::from_utf8_lossy(&output.stdout));
    let mut wanted: Vec<_> = known
        .keys()
        .filter(|name| *name == package)
        .cloned()
        .collect();
    let mut next = 0;
    while let Some(needed) = wanted.get(next).and_then(|name| known.get(name)) {
        let of_use = needed
            .iter()
            .filter(|name| is_library(name) && !wanted.contains(name));
        let of_use: Vec<_> = of_use.cloned().collect();
        wanted.extend(of_use);
        next += 1;
    }
    Ok(wanted)
}

/// What each package depends on, in what apt-cache says of several.
fn by_package(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if !line.starts_with(' ') {
            current = line.to_owned();
        }
        let needed = kernel::dependencies(line).map(str::to_owned);
        known.entry(current.clone()).or_default().extend(needed);
    }
    known
}

fn is_library(package: &str) -> bool {
    (package.starts_with("lib") && package != "libc6") || package == "zlib1g"
}

fn download(cache: &Cache) -> Result<Xen, KernelError> {
    let packages = Packages::known()?;
    let place = cache.of(Kind::Xen);
    fs::create_dir_all(&place).map_err(KernelError::file(&place))?;
    let work = kernel::work_in(&place)?;
    kernel::download_all(packages.all().into_iter(), work.path())?;
    let unpacked = kernel::unpack_all(work.path(), &packages.hypervisor)?;
    let name = unpacked.unwrap_or_else(|| packages.hypervisor.clone());
    let complete = work.path().join("complete");
    lay_out(&work.path().join("unpacked"), &complete, &packages)?;
    let directory = place.join(name);
    match fs::rename(&complete, &directory) {
        // Somebody else was as quick; what is there is complete as well.
        Err(_) if directory.join(ORDER).is_file() => Ok(Xen { directory }),
        Err(error) => Err(KernelError::file(&directory)(error)),
        Ok(()) => Ok(Xen { directory }),
    }
}

/// Puts what is needed of the unpacked packages into a directory of its own.
fn lay_out(unpacked: &Path, place: &Path, packages: &Packages) -> Result<(), KernelError> {
    let boot = unpacked.join("boot");
    let without = |package: &str| KernelError::NoKernel {
        package: package.to_owned(),
    };
    let hypervisor = found_in(&boot, |name| {
        name.starts_with("xen-") && name.ends_with(".gz")
    });
    let hypervisor = hypervisor.ok_or_else(|| without(&packages.hypervisor))?;
    let kernel = found_in(&boot, |name| name.starts_with("vmlinuz"));
    let kernel = kernel.ok_or_else(|| without(&packages.kernel[0]))?;
    fs::create_dir(place).map_err(KernelError::file(place))?;
    gunzip(&hypervisor, &place.join(HYPERVISOR))?;
    fs::rename(&kernel, place.join(KERNEL)).map_err(KernelError::file(&kernel))?;
    programs(unpacked, place)?;
    let modules = module::all_with_needed(unpacked, &MODULES)?;
    kernel::keep_modules(&modules, place, ORDER)
}

pub(super) fn found_in(directory: &Path, is_it: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.find(|path| is_it(&path.file_name().unwrap_or_default().to_string_lossy()))
}

fn gunzip(from: &Path, to: &Path) -> Result<(), KernelError> {
    let packed = File::open(from).map_err(KernelError::file(from))?;
    let mut bytes = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(packed).take(LARGEST);
    reader
        .read_to_end(&mut bytes)
        .map_err(KernelError::file(from))?;
    fs::write(to, bytes).map_err(KernelError::file(to))
}

/// Copies the programs, and of the unpacked libraries all.
fn programs(unpacked: &Path, place: &Path) -> Result<(), KernelError> {
    let (programs, libraries) = (place.join(PROGRAM_DIRECTORY), place.join(LIBRARIES));
    for directory in [&programs, &libraries] {
        fs::create_dir(directory).map_err(KernelError::file(directory))?;
    }
    let xen = found_in(&unpacked.join("usr/lib"), |name| {
        name.strip_prefix("xen-")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    let bin = xen.unwrap_or_default().join("bin");
    for name in PROGRAMS {
        copy(&bin.join(name), &programs.join(name))?;
    }
    let device_model = unpacked.join("usr/libexec").join(DEVICE_MODEL);
    if device_model.is_file() {
        copy(&device_model, &programs.join(DEVICE_MODEL))?;
    }
    for directory in ["lib", "usr/lib"] {
        let directory = unpacked.join(directory).join("x86_64-linux-gnu");
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| is_shared(&entry.file_name().to_string_lossy())) {
            copy(&entry.path(), &libraries.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn is_shared(name: &str) -> bool {
    name.contains(".so")
}

/// What a symbolic link leads to counts.
fn copy(from: &Path, to: &Path) -> Result<(), KernelError> {
    fs::copy(from, to)
        .map(drop)
        .map_err(KernelError::file(from))
}

/// All that the loader loads for these of Xen's programs.
///
/// # Errors
/// It does not find something.
pub fn libraries(
    xen: &Xen,
    programs: &[&str],
    loader: &str,
) -> Result<BTreeSet<PathBuf>, KernelError> {
    let mut all = BTreeSet::new();
    for name in programs {
        let program = xen.program(name);
        let output = Command::new(loader)
            .arg("--library-path")
            .arg(xen.libraries())
            .arg("--list")
            .arg(&program)
            .output()
            .map_err(KernelError::file(loader))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let error = io::Error::other(format!("its libraries are not all here: {words}"));
            return Err(KernelError::file(program)(error));
        }
        all.extend(super::super::closure::paths_in(&String::from_utf8_lossy(
            &output.stdout,
        )));
    }
    let of_c = all.iter().find(|library| library.ends_with(C_LIBRARY));
    let late = of_c.map(|library| library.with_file_name(LOADED_LATE));
    all.extend(late);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_xen_is_the_one_with_the_highest_version() {
        let found = "xen-hypervisor-4.9-amd64 - Xen Hypervisor on AMD64\n\
                     xen-hypervisor-4.17-amd64 - Xen Hypervisor on AMD64\n\
                     xen-hypervisor-common - Xen Hypervisor - common files\n";
        assert_eq!(newest(found).as_deref(), Some("4.17"));
        assert_eq!(newest(""), None);
    }

    #[test]
    fn an_interrupted_download_is_never_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
            limit: 0,
        };
        let place = cache.of(Kind::Xen).join("xen-hypervisor-1-amd64_1");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(HYPERVISOR), "xen").unwrap();
        assert_eq!(in_cache(&cache), None);
        fs::write(place.join(ORDER), "").unwrap();
        assert_eq!(in_cache(&cache), Some(place));
    }

    #[test]
    fn what_several_packages_depend_on_is_told_apart() {
        let known = by_package("a\n  Depends: libb\n  Depends: libc6\nlibb\n  Depends: d\n");
        assert_eq!(known["a"], ["libb", "libc6"]);
        assert_eq!(known["libb"], ["d"]);
    }

    #[test]
    fn libraries_are_told_from_other_packages() {
        assert!(is_library("libxenmisc4.17") && is_library("zlib1g"));
        assert!(!is_library("libc6") && !is_library("python3"));
    }
}
