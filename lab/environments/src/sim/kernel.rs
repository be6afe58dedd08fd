//! The Linux kernel of a simulated machine: one that the user names, or the
//! distribution's own, downloaded and unpacked without being installed and
//! without being root.
//!
//! What was downloaded once is kept and used from then on, so that figures do not
//! move when the distribution releases another kernel; removing the directory
//! fetches the newest. It appears in its place complete or not at all.

use super::module::{self, Module};
use crate::settings::Settings;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A kernel and the modules that give it KVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The kernel's file, as boot loaders read it.
    pub image: PathBuf,
    /// Modules in the order in which they are to be loaded.
    pub modules: Vec<Module>,
    /// Where it comes from.
    pub origin: String,
}

/// Why there is no kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A file could not be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A module is not where it should be.
    #[error("there is no module {name} below {}: give the modules of this kernel with --modules", .directory.display())]
    NoModule {
        /// Its name.
        name: String,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// A file is no module.
    #[error("{} is no kernel module", .path.display())]
    NotAModule {
        /// Which.
        path: PathBuf,
    },
    /// This is no distribution from which a kernel can be fetched.
    #[error("{0} is not here, so no kernel can be fetched: give one with --kernel FILE --modules DIRECTORY")]
    NoTool(&'static str),
    /// The distribution's lists of packages are not there.
    #[error("no kernel package is known ({}): sudo apt-get update", METAPACKAGES.join(", "))]
    NoPackage,
    /// The same of Xen.
    #[error("no Xen package (xen-hypervisor-VERSION-amd64) is known: sudo apt-get update")]
    NoXen,
    /// The same of the program that models devices for its domains.
    #[error("the distribution has no package qemu-system-xen, so no Xen domain can be fully virtualized: sudo apt-get update, then 'trapline cache prune --all' to fetch Xen anew")]
    NoDeviceModel,
    /// A hypervisor has no names for its code.
    #[error("the distribution has no package {package} of version {version}, which has the names of its code: sudo apt-get update, and 'trapline cache prune --all' to fetch a newer Xen")]
    NoXenSymbols {
        /// The package that would have them.
        package: String,
        /// Its version.
        version: String,
    },
    /// What kernels are built from is not among the distribution's packages.
    #[error("no package {0} is known, of which kernels are built: sudo apt-get update")]
    NoSource(&'static str),
    /// A tool failed.
    #[error("{command} failed: {words}")]
    Tool {
        /// The command.
        command: String,
        /// What it wrote.
        words: String,
    },
    /// A package does not hold what it should.
    #[error("package {package} holds no kernel")]
    NoKernel {
        /// Which.
        package: String,
    },
}

impl KernelError {
    /// An error about the file at `path`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

/// Whose virtualization a machine has. What is kept for one is not touched for the
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// AMD's, which QEMU's translator emulates.
    Amd,
    /// Intel's, which Bochs emulates.
    Intel,
}

impl Maker {
    /// The module that is to be loaded.
    const fn module(self) -> &'static str {
        match self {
            Self::Amd => "kvm_amd",
            Self::Intel => "kvm_intel",
        }
    }

    /// The file of the modules' order in the directory of a kernel.
    const fn order(self) -> &'static str {
        match self {
            Self::Amd => "modules",
            Self::Intel => "modules-intel",
        }
    }

    /// What the name of that directory ends with.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Amd => "",
            Self::Intel => "-intel",
        }
    }
}

/// Packages that stand for the newest kernel, the smallest first: Debian's for
/// virtual machines, Debian's, Ubuntu's for virtual machines, Ubuntu's.
const METAPACKAGES: [&str; 4] = [
    "linux-image-cloud-amd64",
    "linux-image-amd64",
    "linux-image-virtual",
    "linux-image-generic",
];

/// The file of a kernel in its directory.
const IMAGE: &str = "vmlinuz";

/// The kernel that the user names, or else the distribution's.
///
/// # Errors
/// A file is missing or broken, or there is no kernel to be had.
pub fn chosen(settings: &Settings, maker: Maker) -> Result<Kernel, KernelError> {
    match &settings.kernel {
        Some((image, modules)) => given(image, modules, maker),
        None => fetched(&settings.cache.directory, maker),
    }
}

/// The kernel at `image` with modules from below `modules`.
///
/// # Errors
/// A file is missing or broken.
pub fn given(image: &Path, modules: &Path, maker: Maker) -> Result<Kernel, KernelError> {
    fs::File::open(image).map_err(KernelError::file(image))?;
    Ok(Kernel {
        image: image.to_owned(),
        modules: module::with_needed(modules, maker.module())?,
        origin: image.display().to_string(),
    })
}

/// Whether [`fetched`] can be expected to succeed.
///
/// # Errors
/// Why not.
pub fn check(cache: &Path, maker: Maker) -> Result<(), KernelError> {
    match in_cache(cache, maker) {
        Some(_) => Ok(()),
        None => packages().map(|_| ()),
    }
}

/// The distribution's kernel, from the cache or else downloaded into it.
///
/// # Errors
/// It is not in the cache and cannot be had.
pub fn fetched(cache: &Path, maker: Maker) -> Result<Kernel, KernelError> {
    let directory = match in_cache(cache, maker) {
        Some(directory) => directory,
        None => download(cache, maker)?,
    };
    read(&directory, maker)
}

fn kernels(cache: &Path) -> PathBuf {
    cache.join("kernels")
}

/// The kernel that was fetched before; of several the last by name.
fn in_cache(cache: &Path, maker: Maker) -> Option<PathBuf> {
    let entries = fs::read_dir(kernels(cache)).ok()?;
    let complete =
        |path: &PathBuf| path.join(maker.order()).is_file() && path.join(IMAGE).is_file();
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(complete)
        .max()
}

fn read(directory: &Path, maker: Maker) -> Result<Kernel, KernelError> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let package = name.strip_suffix(maker.suffix()).unwrap_or(&name);
    Ok(Kernel {
        image: directory.join(IMAGE),
        modules: modules_in(directory, maker.order())?,
        origin: format!("package {package}"),
    })
}

/// The modules in a directory of the cache, in the order that the file `order` says.
///
/// # Errors
/// One cannot be read.
pub(super) fn modules_in(directory: &Path, order: &str) -> Result<Vec<Module>, KernelError> {
    let order = directory.join(order);
    let names = fs::read_to_string(&order).map_err(KernelError::file(&order))?;
    let modules = names.lines().map(|name| {
        let path = directory.join(format!("{name}.ko"));
        let bytes = fs::read(&path).map_err(KernelError::file(&path))?;
        let name = name.to_owned();
        Ok(Module { name, bytes })
    });
    modules.collect()
}

/// The packages that hold the newest kernel and its modules.
fn packages() -> Result<Vec<String>, KernelError> {
    packages_of(&METAPACKAGES)
}

/// The same of the first of these packages that the distribution has.
///
/// # Errors
/// It has none.
pub(super) fn packages_of(metapackages: &[&str]) -> Result<Vec<String>, KernelError> {
    for meta in metapackages {
        let output = run(
            "apt-cache",
            &["depends", "--important", meta],
            Path::new("/"),
        )?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if let Some(image) = concrete_image(&text) {
            let modules = image.replacen("linux-image-", "linux-modules-", 1);
            let known = run("apt-cache", &["show", &modules], Path::new("/"))?;
            let modules = known.status.success().then_some(modules);
            return Ok(std::iter::once(image).chain(modules).collect());
        }
    }
    Err(KernelError::NoPackage)
}

/// The package of one kernel that a metapackage depends on.
fn concrete_image(text: &str) -> Option<String> {
    dependencies(text)
        .find(|name| {
            name.starts_with("linux-image-") && name.contains(|c: char| c.is_ascii_digit())
        })
        .map(str::to_owned)
}

/// The packages in what apt-cache says that one depends on.
pub(crate) fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines();
    lines.filter_map(|line| line.trim().strip_prefix("Depends: "))
}

/// Downloads packages into a directory.
///
/// # Errors
/// One cannot be had.
pub(crate) fn download_all<'a>(
    packages: impl Iterator<Item = &'a str>,
    directory: &Path,
) -> Result<(), KernelError> {
    let mut arguments = vec!["-o", "APT::Sandbox::User=root", "download"];
    arguments.extend(packages);
    succeed("apt-get", &arguments, directory)
}

fn download(cache: &Path, maker: Maker) -> Result<PathBuf, KernelError> {
    let packages = packages()?;
    let kernels = kernels(cache);
    fs::create_dir_all(&kernels).map_err(KernelError::file(&kernels))?;
    let work = work_in(&kernels)?;
    download_all(packages.iter().map(String::as_str), work.path())?;
    let name = unpack_all(work.path(), "linux-image-")?.unwrap_or_else(|| packages[0].clone());
    let complete = work.path().join("complete");
    let unpacked = work.path().join("unpacked");
    lay_out(&unpacked, &complete, &packages[0], maker)?;
    let place = kernels.join(name + maker.suffix());
    match fs::rename(&complete, &place) {
        // Somebody else was as quick; what is there is complete as well.
        Err(_) if place.join(maker.order()).is_file() => Ok(place),
        Err(error) => Err(KernelError::file(&place)(error)),
        Ok(()) => Ok(place),
    }
}

/// A directory in `place` to download into, which goes when it is dropped.
///
/// # Errors
/// It cannot be made.
pub(crate) fn work_in(place: &Path) -> Result<tempfile::TempDir, KernelError> {
    let mut builder = tempfile::Builder::new();
    let made = builder.prefix(".fetching-").tempdir_in(place);
    made.map_err(KernelError::file(place))
}

/// Unpacks every package in `directory`; name and version of the one whose name
/// begins with `main`.
pub(crate) fn unpack_all(directory: &Path, main: &str) -> Result<Option<String>, KernelError> {
    let mut name = None;
    for entry in fs::read_dir(directory).map_err(KernelError::file(directory))? {
        let path = entry.map_err(KernelError::file(directory))?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let stem = file.strip_suffix("_amd64.deb");
        let Some(stem) = stem.or_else(|| file.strip_suffix("_all.deb")) else {
            continue;
        };
        if stem.starts_with(main) {
            name = Some(stem.replace('%', "-"));
        }
        succeed("dpkg", &["-x", &file, "unpacked"], directory)?;
    }
    Ok(name)
}

/// Puts what is needed of an unpacked package into a directory of its own.
fn lay_out(unpacked: &Path, place: &Path, package: &str, maker: Maker) -> Result<(), KernelError> {
    let image = image_below(unpacked).ok_or_else(|| KernelError::NoKernel {
        package: package.to_owned(),
    })?;
    let modules = module::with_needed(unpacked, maker.module())?;
    fs::create_dir(place).map_err(KernelError::file(place))?;
    fs::rename(&image, place.join(IMAGE)).map_err(KernelError::file(&image))?;
    keep_modules(&modules, place, maker.order())
}

/// Writes modules into a directory of the cache, and last of all their order.
///
/// # Errors
/// One cannot be written.
pub(super) fn keep_modules(
    modules: &[Module],
    place: &Path,
    order: &str,
) -> Result<(), KernelError> {
    let mut names = String::new();
    for module in modules {
        let path = place.join(format!("{}.ko", module.name));
        fs::write(&path, &module.bytes).map_err(KernelError::file(&path))?;
        names += &format!("{}\n", module.name);
    }
    fs::write(place.join(order), names).map_err(KernelError::file(place))
}

fn image_below(unpacked: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(unpacked.join("boot")).ok()?;
    let is_image =
        |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("vmlinuz");
    Some(entries.flatten().find(is_image)?.path())
}

/// Runs a tool of the distribution, in English and without questions.
pub(crate) fn run(
    tool: &'static str,
    arguments: &[&str],
    directory: &Path,
) -> Result<Output, KernelError> {
    Command::new(tool)
        .args(arguments)
        .current_dir(directory)
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|_| KernelError::NoTool(tool))
}

fn succeed(tool: &'static str, arguments: &[&str], directory: &Path) -> Result<(), KernelError> {
    let output = run(tool, arguments, directory)?;
    if output.status.success() {
        return Ok(());
    }
    Err(KernelError::Tool {
        command: format!("{tool} {}", arguments.join(" ")),
        words: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metapackage_leads_to_one_kernel() {
        let debian = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        let found = concrete_image(debian);
        assert_eq!(found.as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        let ubuntu =
            "linux-image-virtual\n  Depends: linux-base\n  Depends: linux-image-6.8.0-31-generic\n";
        let found = concrete_image(ubuntu);
        assert_eq!(found.as_deref(), Some("linux-image-6.8.0-31-generic"));
        assert_eq!(concrete_image("linux-image-generic\n"), None);
    }

    #[test]
    fn an_interrupted_download_is_never_used() {
        let cache = tempfile::tempdir().unwrap();
        let place = kernels(cache.path()).join("linux-image-1_1");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(IMAGE), "kernel").unwrap();
        let maker = Maker::Amd;
        assert_eq!(in_cache(cache.path(), maker), None);
        fs::write(place.join(maker.order()), "kvm\n").unwrap();
        fs::write(place.join("kvm.ko"), "module").unwrap();
        assert_eq!(in_cache(cache.path(), maker), Some(place.clone()));
        assert_eq!(in_cache(cache.path(), Maker::Intel), None);
        let kernel = fetched(cache.path(), maker).unwrap();
        assert_eq!(kernel.image, place.join(IMAGE));
        assert_eq!(kernel.modules[0].name, "kvm");
        assert_eq!(kernel.origin, "package linux-image-1_1");
    }

    #[test]
    fn a_kernel_that_is_not_there_is_named() {
        let error = given(
            Path::new("/nonexistent/vmlinuz"),
            Path::new("/"),
            Maker::Amd,
        )
        .unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/vmlinuz: "));
    }
}
