//! Xen of the distribution: hypervisor, kernel of dom0 and toolstack, downloaded and unpacked without being
//! installed. A complete download is used until it is removed from the cache.

use crate::kernel::{self, found_in};
use crate::module::{self, Module};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use trapline_host::cache::Kind;
use trapline_host::draft::WorkDirectory;
use trapline_host::package::{self, by_package, Apt, KnownPackages};
use trapline_host::{private, tool, Cache, Error};

/// A downloaded Xen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xen {
    /// Its directory in the cache.
    pub directory: PathBuf,
}

/// Programs of dom0.
pub const PROGRAMS: [&str; 4] = ["xenstored", "xen-init-dom0", "xenconsoled", "xl"];

/// Device model of HVM domains, in a package that not every distribution has.
pub const DEVICE_MODEL: &str = "xen-qemu-system-i386";
const DEVICE_MODEL_PACKAGE: &str = "qemu-system-xen";

/// Kernel modules of dom0 for Xen's interfaces.
const MODULES: [&str; 5] = [
    "xen_privcmd",
    "xenfs",
    "xen_evtchn",
    "xen_gntdev",
    "xen_gntalloc",
];

/// A library loaded only at thread cancellation, from the directory of the C library.
const LOADED_LATE: &str = "libgcc_s.so.1";
const C_LIBRARY: &str = "libc.so.6";

/// Files of an entry in the cache; the load order of modules is written last.
const HYPERVISOR: &str = "xen";
const KERNEL: &str = "vmlinuz";
const PROGRAM_DIRECTORY: &str = "programs";
const LIBRARIES: &str = "lib";
const ORDER: &str = "modules";

/// Limit of an unpacked hypervisor, in bytes.
const LARGEST: u64 = 64 << 20;

/// Metapackages of kernels that can be dom0: Debian, Ubuntu. Kernels for virtual machines cannot.
const KERNELS: [&str; 2] = ["linux-image-amd64", "linux-image-generic"];

/// Checks that [`Xen::fetched`] can be expected to succeed.
///
/// # Errors
/// Xen is not available.
pub fn check(cache: &Cache) -> Result<(), Error> {
    match in_cache(cache) {
        Some(_) => Ok(()),
        None => {
            newest(&KnownPackages::query()?)?;
            kernel::newest_image(&KERNELS, &Apt::default()).map(drop)
        }
    }
}

/// Checks that the device model of HVM domains is available.
///
/// # Errors
/// It is not available.
pub fn check_device_model(cache: &Cache) -> Result<(), Error> {
    let known = match in_cache(cache) {
        Some(directory) => Xen { directory }.program(DEVICE_MODEL).is_file(),
        None => KnownPackages::query()?.contains(DEVICE_MODEL_PACKAGE),
    };
    known.then_some(()).ok_or_else(|| {
        Error::missing(
            "the distribution has no package qemu-system-xen, which HVM domains need",
            "sudo apt-get update, then 'trapline cache prune --all' to fetch Xen again",
        )
    })
}

impl Xen {
    /// Returns Xen from the cache, downloading it if needed.
    ///
    /// # Errors
    /// It is not in the cache and cannot be downloaded.
    pub fn fetched(cache: &Cache) -> Result<Self, Error> {
        Self::kept(cache).map_or_else(|| download(cache), Ok)
    }

    /// Returns Xen from the cache, if it was downloaded.
    pub fn kept(cache: &Cache) -> Option<Self> {
        in_cache(cache).map(|directory| Self { directory })
    }

    /// Returns its package.
    pub fn origin(&self) -> String {
        package::origin(&self.directory)
    }

    /// Returns the hypervisor as a multiboot kernel.
    pub fn hypervisor(&self) -> PathBuf {
        self.directory.join(HYPERVISOR)
    }

    /// Returns the kernel of dom0.
    pub fn kernel(&self) -> PathBuf {
        self.directory.join(KERNEL)
    }

    /// Returns the modules of that kernel, in load order.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn modules(&self) -> Result<Vec<Module>, Error> {
        kernel::modules_in(&self.directory, ORDER)
    }

    /// Returns a program of dom0.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(PROGRAM_DIRECTORY).join(name)
    }

    /// Returns the directory of its libraries.
    pub fn libraries(&self) -> PathBuf {
        self.directory.join(LIBRARIES)
    }
}

fn in_cache(cache: &Cache) -> Option<PathBuf> {
    package::newest_in(&cache.of(Kind::Xen), |path| path.join(ORDER).is_file())
}

/// Packages to download.
struct Packages {
    hypervisor: String,
    kernel: Vec<String>,
    programs: Vec<String>,
    device_model: Vec<String>,
}

impl Packages {
    /// Returns the packages of the newest Xen of the distribution.
    fn known() -> Result<Self, Error> {
        let version = newest(&KnownPackages::query()?)?;
        Ok(Self {
            hypervisor: format!("xen-hypervisor-{version}-amd64"),
            kernel: kernel::packages_of(&KERNELS, &Apt::default())?,
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

/// Returns the highest version of Xen that the distribution has.
fn newest(known: &KnownPackages) -> Result<String, Error> {
    newest_version(known.names()).ok_or_else(|| {
        Error::missing(
            "no Xen package (xen-hypervisor-VERSION-amd64) is known",
            "sudo apt-get update",
        )
    })
}

fn newest_version<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let version = |name: &'a str| name.strip_prefix("xen-hypervisor-")?.strip_suffix("-amd64");
    let newest = names.filter_map(version).max_by_key(|version| -> Vec<u32> {
        let parts = version.split('.');
        parts.filter_map(|part| part.parse().ok()).collect()
    });
    newest.map(str::to_owned)
}

/// Returns a package and its libraries without the C library, which is the host's. Empty if the distribution
/// has no such package.
fn with_libraries(package: &str) -> Result<Vec<String>, Error> {
    let arguments = ["depends", "--recurse", "--important", package];
    let output = package::run("apt-cache", &arguments, Path::new("/"))?;
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

fn is_library(package: &str) -> bool {
    (package.starts_with("lib") && package != "libc6") || package == "zlib1g"
}

fn download(cache: &Cache) -> Result<Xen, Error> {
    let packages = Packages::known()?;
    let place = cache.of(Kind::Xen);
    private::create_directory(&place)?;
    let work = WorkDirectory::create(&place)?;
    package::download(packages.all().into_iter(), work.path())?;
    let unpacked = package::unpack_all(work.path(), &packages.hypervisor)?;
    let name = unpacked.unwrap_or_else(|| packages.hypervisor.clone());
    let complete = work.path().join("complete");
    lay_out(&work.path().join("unpacked"), &complete, &packages)?;
    let directory = place.join(name);
    let directory = package::publish(&complete, directory, |path| path.join(ORDER).is_file())?;
    Ok(Xen { directory })
}

/// Moves the needed files of unpacked packages to a directory.
fn lay_out(unpacked: &Path, place: &Path, packages: &Packages) -> Result<(), Error> {
    let boot = unpacked.join("boot");
    let without =
        |package: &str| Error::unavailable(format!("package {package} contains no kernel"));
    let hypervisor = found_in(&boot, |name| {
        name.starts_with("xen-") && name.ends_with(".gz")
    });
    let hypervisor = hypervisor.ok_or_else(|| without(&packages.hypervisor))?;
    let kernel = found_in(&boot, |name| name.starts_with("vmlinuz"));
    let kernel = kernel.ok_or_else(|| without(&packages.kernel[0]))?;
    fs::create_dir(place).map_err(Error::file(place))?;
    gunzip(&hypervisor, &place.join(HYPERVISOR))?;
    fs::rename(&kernel, place.join(KERNEL)).map_err(Error::file(&kernel))?;
    programs(unpacked, place)?;
    let modules = module::all_with_needed(unpacked, &MODULES)?;
    kernel::keep_modules(&modules, place, ORDER)
}

fn gunzip(from: &Path, to: &Path) -> Result<(), Error> {
    let packed = File::open(from).map_err(Error::file(from))?;
    let mut bytes = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(packed).take(LARGEST);
    reader.read_to_end(&mut bytes).map_err(Error::file(from))?;
    fs::write(to, bytes).map_err(Error::file(to))
}

/// Copies the programs, and all unpacked libraries.
fn programs(unpacked: &Path, place: &Path) -> Result<(), Error> {
    let (programs, libraries) = (place.join(PROGRAM_DIRECTORY), place.join(LIBRARIES));
    for directory in [&programs, &libraries] {
        fs::create_dir(directory).map_err(Error::file(directory))?;
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

/// Follows symbolic links.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    fs::copy(from, to).map(drop).map_err(Error::file(from))
}

/// Returns all libraries that the loader loads for programs of Xen.
///
/// # Errors
/// A library is missing.
pub fn libraries(xen: &Xen, programs: &[&str], loader: &str) -> Result<BTreeSet<PathBuf>, Error> {
    let mut all = BTreeSet::new();
    for name in programs {
        let program = xen.program(name);
        let mut command = Command::new(loader);
        let command = command.arg("--library-path").arg(xen.libraries());
        let output = tool::output(command.arg("--list").arg(&program))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let error = io::Error::other(format!("its libraries are not all here: {words}"));
            return Err(Error::file(program)(error));
        }
        all.extend(crate::closure::paths_in(&String::from_utf8_lossy(
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
    fn newest_xen_has_the_highest_version() {
        let names = [
            "xen-hypervisor-4.9-amd64",
            "xen-hypervisor-4.17-amd64",
            "xen-hypervisor-common",
        ];
        assert_eq!(newest_version(names.into_iter()).as_deref(), Some("4.17"));
        assert_eq!(newest_version([].into_iter()), None);
    }

    #[test]
    fn incomplete_download_is_not_used() {
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
    fn dependencies_are_parsed_per_package() {
        let known = by_package("a\n  Depends: libb\n  Depends: libc6\nlibb\n  Depends: d\n");
        assert_eq!(known["a"], ["libb", "libc6"]);
        assert_eq!(known["libb"], ["d"]);
    }

    #[test]
    fn libraries_are_distinguished_from_other_packages() {
        assert!(is_library("libxenmisc4.17") && is_library("zlib1g"));
        assert!(!is_library("libc6") && !is_library("python3"));
    }
}
