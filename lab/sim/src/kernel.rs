//! Linux kernel of a simulated machine: given by the user as a file or as a package, or the distribution's newest. Packages are
//! downloaded and unpacked without being installed.
//!
//! A downloaded kernel is used until it is removed from the cache, so that figures do not change with a new
//! release.

mod names;

use crate::module::{self, Module};
use crate::settings::{GivenKernel, Settings};
use names::{candidates, concrete_image, known_package, PREFIX};
use std::fs;
use std::path::{Path, PathBuf};
use trapline_host::draft::WorkDirectory;
use trapline_host::package::{self, Apt, KnownPackages};
use trapline_host::{private, Error};

pub use crate::platform::Maker;

/// A kernel and the modules of its KVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The kernel's file, as boot loaders read it.
    pub image: PathBuf,
    /// Modules in load order.
    pub modules: Vec<Module>,
    /// Package or file that it comes from.
    pub origin: String,
}

impl Maker {
    /// Returns the modules of KVM, in load order, from below a directory.
    fn modules(self, directory: &Path) -> Result<Vec<Module>, Error> {
        match self {
            Self::Amd => module::with_needed(directory, "kvm_amd"),
            Self::Intel => module::with_needed(directory, "kvm_intel"),
            // Part of the kernel.
            Self::Arm => Ok(Vec::new()),
        }
    }

    /// Returns metapackages of the newest kernel, smallest first: Debian cloud, Debian, Ubuntu virtual, Ubuntu.
    const fn metapackages(self) -> &'static [&'static str] {
        match self {
            Self::Amd | Self::Intel => &METAPACKAGES,
            Self::Arm => &["linux-image-cloud-arm64", "linux-image-arm64"],
        }
    }

    /// Returns the distribution's packages for the processor.
    fn apt(self, cache: &Path) -> Result<Apt, Error> {
        match self {
            Self::Amd | Self::Intel => Ok(Apt::default()),
            Self::Arm => Apt::of_architecture("arm64", &cache.join("packages-arm64")),
        }
    }

    /// Returns the file with the load order of modules.
    const fn order(self) -> &'static str {
        match self {
            Self::Amd => "modules",
            Self::Intel => "modules-intel",
            Self::Arm => "modules-arm",
        }
    }

    /// Returns the suffix of kernel directories.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Amd | Self::Arm => "",
            Self::Intel => "-intel",
        }
    }
}

/// Metapackages of the newest kernel, smallest first: Debian cloud, Debian, Ubuntu virtual, Ubuntu.
const METAPACKAGES: [&str; 4] = [
    "linux-image-cloud-amd64",
    "linux-image-amd64",
    "linux-image-virtual",
    "linux-image-generic",
];

/// Name of the kernel in its directory.
const IMAGE: &str = "vmlinuz";

/// File in the directory of a kernel that was named: it is not the one that is used without a name.
const NAMED: &str = "named";

/// Returns the kernel of the settings, or else the distribution's.
///
/// # Errors
/// A file is missing or broken, or no kernel is available.
pub fn chosen(settings: &Settings, maker: Maker) -> Result<Kernel, Error> {
    let cache = &settings.cache.directory;
    match &settings.kernel {
        Some(GivenKernel::File { image, modules }) => given(image, modules, maker),
        Some(GivenKernel::Package(name)) => named(cache, name, maker),
        None => fetched(cache, maker),
    }
}

/// Checks that [`chosen`] can be expected to succeed.
///
/// # Errors
/// A file is missing or broken, or no kernel is available.
pub fn check(settings: &Settings, maker: Maker) -> Result<(), Error> {
    let cache = &settings.cache.directory;
    let found = match &settings.kernel {
        Some(GivenKernel::File { image, modules }) => {
            return given(image, modules, maker).map(drop);
        }
        Some(GivenKernel::Package(name)) => named_in_cache(cache, name, maker),
        None => in_cache(cache, maker),
    };
    match (found, &settings.kernel) {
        (Some(_), _) => Ok(()),
        // Package lists of another architecture are downloaded when they are used.
        _ if maker == Maker::Arm => KnownPackages::query().map(drop),
        (None, Some(GivenKernel::Package(name))) => {
            known_package(name, &maker.apt(cache)?).map(drop)
        }
        (None, _) => newest_image(maker.metapackages(), &maker.apt(cache)?).map(drop),
    }
}

/// Returns the kernel at `image` with modules from below `modules`.
///
/// # Errors
/// A file is missing or broken.
pub fn given(image: &Path, modules: &Path, maker: Maker) -> Result<Kernel, Error> {
    fs::File::open(image).map_err(Error::file(image))?;
    Ok(Kernel {
        image: image.to_owned(),
        modules: maker.modules(modules)?,
        origin: image.display().to_string(),
    })
}

/// Returns the directory of the kernel of a package or version in the cache.
fn named_in_cache(cache: &Path, name: &str, maker: Maker) -> Option<PathBuf> {
    candidates(name).find_map(|package| {
        let start = format!("{package}_");
        package::newest_in(&kernels(cache), |path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(&start) && is_complete(path, maker)
        })
    })
}

/// Returns the kernel of a package or version from the cache, downloading it if needed.
///
/// # Errors
/// It is not in the cache and cannot be downloaded.
fn named(cache: &Path, name: &str, maker: Maker) -> Result<Kernel, Error> {
    if let Some(directory) = named_in_cache(cache, name, maker) {
        return read(&directory, maker);
    }
    let apt = maker.apt(cache)?;
    let package = known_package(name, &apt)?;
    let directory = match named_in_cache(cache, &package, maker) {
        Some(directory) => directory,
        None => {
            let directory = download(cache, &with_modules(package, &apt)?, &apt, maker)?;
            let mark = directory.join(NAMED);
            fs::write(&mark, name).map_err(Error::file(&mark))?;
            directory
        }
    };
    read(&directory, maker)
}

/// Returns the distribution's kernel from the cache, downloading it if needed.
///
/// # Errors
/// It is not in the cache and cannot be downloaded.
pub fn fetched(cache: &Path, maker: Maker) -> Result<Kernel, Error> {
    let directory = match in_cache(cache, maker) {
        Some(directory) => directory,
        None => {
            let apt = maker.apt(cache)?;
            let packages = packages_of(maker.metapackages(), &apt)?;
            let directory = download(cache, &packages, &apt, maker)?;
            // It may have been named before.
            let _absent = fs::remove_file(directory.join(NAMED));
            directory
        }
    };
    read(&directory, maker)
}

fn kernels(cache: &Path) -> PathBuf {
    cache.join("kernels")
}

/// Returns the downloaded kernel, the last by name.
fn in_cache(cache: &Path, maker: Maker) -> Option<PathBuf> {
    package::newest_in(&kernels(cache), |path| {
        is_complete(path, maker) && !path.join(NAMED).exists()
    })
}

fn is_complete(path: &Path, maker: Maker) -> bool {
    path.join(maker.order()).is_file() && path.join(IMAGE).is_file()
}

fn read(directory: &Path, maker: Maker) -> Result<Kernel, Error> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let package = name.strip_suffix(maker.suffix()).unwrap_or(&name);
    Ok(Kernel {
        image: directory.join(IMAGE),
        modules: modules_in(directory, maker.order())?,
        origin: format!("package {package}"),
    })
}

/// Returns the modules in a directory of the cache, in the order of its file `order`.
///
/// # Errors
/// One cannot be read.
pub fn modules_in(directory: &Path, order: &str) -> Result<Vec<Module>, Error> {
    let order = directory.join(order);
    let names = fs::read_to_string(&order).map_err(Error::file(&order))?;
    let modules = names.lines().map(|name| {
        let path = directory.join(format!("{name}.ko"));
        let bytes = fs::read(&path).map_err(Error::file(&path))?;
        let name = name.to_owned();
        Ok(Module::new(name, bytes))
    });
    modules.collect()
}

/// Returns the packages of the first metapackage that the distribution has.
///
/// # Errors
/// It has none of them.
pub fn packages_of(metapackages: &[&str], apt: &Apt) -> Result<Vec<String>, Error> {
    with_modules(newest_image(metapackages, apt)?, apt)
}

/// Returns the package of a kernel and that of its modules, if they have one of their own.
fn with_modules(image: String, apt: &Apt) -> Result<Vec<String>, Error> {
    let modules = modules_package(&image, apt)?;
    Ok(std::iter::once(image).chain(modules).collect())
}

/// Returns the package of a kernel's modules, if they have one of their own.
///
/// # Errors
/// `apt-cache` cannot be run.
pub fn modules_package(image: &str, apt: &Apt) -> Result<Option<String>, Error> {
    let modules = image.replacen(PREFIX, "linux-modules-", 1);
    let known = apt.known()?;
    Ok(known.contains(&modules).then_some(modules))
}

/// Returns the kernel package of the first metapackage that the distribution has.
///
/// # Errors
/// It has none of them.
pub fn newest_image(metapackages: &[&str], apt: &Apt) -> Result<String, Error> {
    let known = apt.known()?;
    let mut all = metapackages.iter().map(|meta| known.dependencies(meta));
    all.find_map(concrete_image).ok_or_else(|| {
        Error::missing(
            format!("no kernel package is known ({})", metapackages.join(", ")),
            "sudo apt-get update",
        )
    })
}

/// Downloads packages, of which the first is that of the kernel, and returns its directory in the cache.
fn download(cache: &Path, packages: &[String], apt: &Apt, maker: Maker) -> Result<PathBuf, Error> {
    let kernels = kernels(cache);
    private::create_directory(&kernels)?;
    let work = WorkDirectory::create(&kernels)?;
    apt.download(packages.iter().map(String::as_str), work.path())?;
    let name = package::unpack_all(work.path(), PREFIX)?.unwrap_or_else(|| packages[0].clone());
    let complete = work.path().join("complete");
    let unpacked = work.path().join("unpacked");
    lay_out(&unpacked, &complete, &packages[0], maker)?;
    let place = kernels.join(name + maker.suffix());
    package::publish(&complete, place, |place| {
        place.join(maker.order()).is_file()
    })
}

/// Moves the needed files of an unpacked package to a directory.
fn lay_out(unpacked: &Path, place: &Path, package: &str, maker: Maker) -> Result<(), Error> {
    let image = found_in(&unpacked.join("boot"), |name| name.starts_with(IMAGE))
        .ok_or_else(|| Error::unavailable(format!("package {package} contains no kernel")))?;
    let modules = maker.modules(unpacked)?;
    fs::create_dir(place).map_err(Error::file(place))?;
    fs::rename(&image, place.join(IMAGE)).map_err(Error::file(&image))?;
    keep_modules(&modules, place, maker.order())
}

/// Writes modules into a directory of the cache, and last their order.
///
/// # Errors
/// One cannot be written.
pub fn keep_modules(modules: &[Module], place: &Path, order: &str) -> Result<(), Error> {
    let mut names = String::new();
    for module in modules {
        let path = place.join(format!("{}.ko", module.name));
        fs::write(&path, &module.bytes).map_err(Error::file(&path))?;
        names += &format!("{}\n", module.name);
    }
    fs::write(place.join(order), names).map_err(Error::file(place))
}

/// Returns the first entry of a directory whose name satisfies a predicate.
pub fn found_in(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.find(|path| is_wanted(&path.file_name().unwrap_or_default().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn incomplete_download_is_not_used() {
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
    fn missing_kernel_is_named() {
        let error = given(
            Path::new("/nonexistent/vmlinuz"),
            Path::new("/"),
            Maker::Amd,
        )
        .unwrap_err();
        expect!["/nonexistent/vmlinuz: No such file or directory (os error 2)"]
            .assert_eq(&error.to_string());
    }

    #[test]
    fn named_kernels_are_found_by_version_and_not_used_without_a_name() {
        let cache = tempfile::tempdir().unwrap();
        let cache = cache.path();
        let add = |name: &str, files: &[&str]| {
            let place = kernels(cache).join(name);
            fs::create_dir_all(&place).unwrap();
            for file in files {
                fs::write(place.join(file), []).unwrap();
            }
            place
        };
        let complete = [IMAGE, "modules"];
        let newest = add("linux-image-6.1.0-9-cloud-amd64_6.1.9-1", &complete);
        let named = [IMAGE, "modules", NAMED];
        let old = add("linux-image-6.1.0-8-cloud-amd64_6.1.8-1", &named);
        let new = add("linux-image-6.12.3-amd64_6.12.3-1", &named);
        add("linux-image-6.12.4-amd64_6.12.4-1", &[NAMED]);
        let find = |name: &str| named_in_cache(cache, name, Maker::Amd);
        for name in [
            "6.1.0-8",
            "6.1.0-8-cloud-amd64",
            "linux-image-6.1.0-8-cloud-amd64",
        ] {
            assert_eq!(find(name).as_ref(), Some(&old), "{name}");
        }
        assert_eq!(find("6.12.3").as_ref(), Some(&new));
        for name in ["6.1.0", "6.12.4", "", "linux-image-6.1"] {
            assert_eq!(find(name), None, "{name}");
        }
        assert_eq!(named_in_cache(cache, "6.12.3", Maker::Intel), None);
        assert_eq!(in_cache(cache, Maker::Amd), Some(newest));
    }
}
