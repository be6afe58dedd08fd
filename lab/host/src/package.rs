//! Packages of the distribution (Debian, Ubuntu), downloaded and unpacked without being installed and
//! without root.
//!
//! A package in the cache is complete, and is used until it is removed, so that figures do not change
//! with a new release.

use crate::cache::{Cache, Kind};
use crate::draft::WorkDirectory;
use crate::probe::Probe;
use crate::{find_program, private, tool, Activity, Error};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A package with libraries that may not be installed.
pub struct Package {
    /// Kind of its entry in the cache.
    pub kind: Kind,
    /// The package of the program, and those unpacked with it.
    pub names: &'static [&'static str],
    /// Path of the program in the package.
    pub program: &'static str,
    /// Directories removed after unpacking.
    pub without: &'static [&'static str],
}

impl Package {
    /// Returns its directory in the cache, the last by name, if it was downloaded.
    pub fn in_cache(&self, cache: &Cache) -> Option<PathBuf> {
        newest_in(&cache.of(self.kind), |path| {
            path.join(self.program).is_file()
        })
    }

    /// Returns its directory in the cache, downloading it if needed.
    ///
    /// # Errors
    /// It is not in the cache and cannot be downloaded.
    pub fn fetched(&self, cache: &Cache) -> Result<PathBuf, Error> {
        match self.in_cache(cache) {
            Some(directory) => Ok(directory),
            None => self.download(cache),
        }
    }

    /// Returns whether the distribution has it.
    ///
    /// # Errors
    /// `apt-cache` cannot be run.
    pub fn is_known(&self) -> Result<bool, Error> {
        Ok(KnownPackages::query()?.contains(self.names[0]))
    }

    fn download(&self, cache: &Cache) -> Result<PathBuf, Error> {
        let kind = cache.of(self.kind);
        private::create_directory(&kind)?;
        let work = WorkDirectory::create(&kind)?;
        download(self.names.iter().copied(), work.path())?;
        let main = self.names[0];
        let name = unpack_all(work.path(), main)?;
        let unpacked = work.path().join(UNPACKED);
        for removed in self.without {
            let path = unpacked.join(removed);
            fs::remove_dir_all(&path).map_err(Error::file(&path))?;
        }
        let directory = kind.join(name.unwrap_or_else(|| main.to_owned()));
        publish(&unpacked, directory, |path| {
            path.join(self.program).is_file()
        })
    }
}

/// Arguments of the query for all packages that environments may need: names, and expressions for names with
/// a version. Each query takes half a second where containers disable apt's cache.
const QUERY: [&str; 10] = [
    "depends",
    "--important",
    "^linux-image-",
    "^linux-modules-",
    "linux-source",
    "qemu-system-xen",
    "rt-tests",
    "user-mode-linux",
    "^xen-hypervisor-[0-9.]+-amd64$",
    "^xen-utils-[0-9.]+$",
];

/// Files on which the result of the query depends.
const PACKAGE_LISTS: [&str; 2] = ["/var/lib/apt/lists", "/var/lib/dpkg/status"];

/// Packages of the query that the distribution has, with their dependencies.
pub struct KnownPackages(BTreeMap<String, Vec<String>>);

/// Packages of this host's distribution, for this host or for another architecture.
#[derive(Default)]
pub struct Apt {
    /// Options of apt's tools.
    options: Vec<String>,
    /// Directory with the package lists of another architecture.
    lists: Option<String>,
}

impl Apt {
    /// Returns the packages of another architecture, with package lists in `directory`, which are downloaded if there are
    /// none.
    ///
    /// # Errors
    /// They cannot be downloaded.
    pub fn of_architecture(architecture: &str, directory: &Path) -> Result<Self, Error> {
        let is_complete = |place: &Path| place.join(LISTS).is_dir();
        if !is_complete(directory) {
            let parent = directory.parent().unwrap_or(Path::new("/"));
            private::create_directory(parent)?;
            let work = WorkDirectory::create(parent)?;
            let new = work.path().join("new");
            Self::in_directory(architecture, &new).update(architecture, &new)?;
            publish(&new, directory.to_owned(), is_complete)?;
        }
        Ok(Self::in_directory(architecture, directory))
    }

    fn in_directory(architecture: &str, directory: &Path) -> Self {
        let place = directory.display();
        let lists = directory.join(LISTS).to_string_lossy().into_owned();
        let settings = [
            format!("APT::Architecture={architecture}"),
            format!("APT::Architectures={architecture}"),
            format!("Dir::State={place}"),
            format!("Dir::Cache={place}"),
            format!("Dir::State::Lists={lists}"),
            format!("Dir::State::Status={place}/status"),
            SANDBOX.to_owned(),
        ];
        let options = settings.into_iter().flat_map(|it| ["-o".to_owned(), it]);
        Self {
            options: options.collect(),
            lists: Some(lists),
        }
    }

    /// Downloads the package lists of an architecture into a new directory.
    fn update(&self, architecture: &str, directory: &Path) -> Result<(), Error> {
        let _activity = Activity::begin(format!("downloading package lists of {architecture}"));
        for place in ["lists/partial", "archives/partial"] {
            let place = directory.join(place);
            fs::create_dir_all(&place).map_err(Error::file(&place))?;
        }
        let status = directory.join("status");
        fs::write(&status, []).map_err(Error::file(&status))?;
        run_checked("apt-get", &self.arguments(&["-q", "update"]), directory)
    }

    fn arguments<'a>(&'a self, further: &[&'a str]) -> Vec<&'a str> {
        let options = self.options.iter().map(String::as_str);
        options.chain(further.iter().copied()).collect()
    }

    /// Queries `apt-cache` once; the result is cached until package lists change.
    ///
    /// # Errors
    /// `apt-cache` cannot be run.
    pub fn known(&self) -> Result<KnownPackages, Error> {
        let program = find_program("apt-cache").ok_or_else(|| not_installed("apt-cache"))?;
        let own = self.lists.as_deref().map(|lists| [lists]);
        let arguments = self.arguments(&QUERY);
        let probe = Probe {
            depends: own.as_ref().map_or(&PACKAGE_LISTS[..], |own| own),
            ..Probe::new(&program, &arguments)
        };
        Ok(KnownPackages(by_package(&probe.output()?.stdout)))
    }

    /// Downloads packages into a directory.
    ///
    /// # Errors
    /// One is not available.
    pub fn download<'a>(
        &self,
        packages: impl Iterator<Item = &'a str>,
        directory: &Path,
    ) -> Result<(), Error> {
        let packages: Vec<&str> = packages.collect();
        let size = self.size(&packages, directory)?;
        let text = format!("downloading {}", described(&packages));
        let _activity = Activity::begin_download(text, directory, size);
        let wanted = [&["-o", SANDBOX, "download"], &packages[..]].concat();
        run_checked("apt-get", &self.arguments(&wanted), directory)
    }

    /// Returns the bytes of packages to be downloaded; 0 if they are unknown.
    ///
    /// # Errors
    /// `apt-get` is not installed, or a stop was requested.
    pub fn size(&self, packages: &[&str], directory: &Path) -> Result<u64, Error> {
        let wanted = [&["--print-uris", "download"], packages].concat();
        let output = run("apt-get", &self.arguments(&wanted), directory)?;
        Ok(sizes(&String::from_utf8_lossy(&output.stdout)).sum())
    }
}

/// Directory with package lists.
const LISTS: &str = "lists";

/// Option without which downloads into the directories of one user fail.
const SANDBOX: &str = "APT::Sandbox::User=root";

impl KnownPackages {
    /// Returns those for this host, see [`Apt::known`].
    ///
    /// # Errors
    /// `apt-cache` cannot be run.
    pub fn query() -> Result<Self, Error> {
        Apt::default().known()
    }

    /// Returns the names of all packages.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns whether the distribution has a package.
    pub fn contains(&self, package: &str) -> bool {
        self.0.contains_key(package)
    }

    /// Returns the dependencies of a package; none if the distribution does not have it.
    pub fn dependencies(&self, package: &str) -> &[String] {
        self.0.get(package).map_or(&[], Vec::as_slice)
    }
}

/// Parses the output of `apt-cache depends`: each package begins a line, its dependencies follow indented.
/// Virtual packages, in angle brackets, are left out.
pub fn by_package(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if !line.starts_with(' ') {
            current = line.to_owned();
        }
        if current.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            let needed = dependencies(line).map(str::to_owned);
            known.entry(current.clone()).or_default().extend(needed);
        }
    }
    known
}

/// Name of the directory with unpacked packages in a work directory.
pub const UNPACKED: &str = "unpacked";

/// Returns the last entry by name of a directory that `is_complete`.
pub fn newest_in(directory: &Path, is_complete: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| is_complete(path)).max()
}

/// Moves a complete directory to its place in the cache. Another process may have been faster: then
/// its directory is used.
///
/// # Errors
/// It cannot be moved.
pub fn publish(
    from: &Path,
    to: PathBuf,
    is_complete: impl Fn(&Path) -> bool,
) -> Result<PathBuf, Error> {
    match fs::rename(from, &to) {
        Err(_) if is_complete(&to) => Ok(to),
        Err(error) => Err(Error::file(&to)(error)),
        Ok(()) => Ok(to),
    }
}

/// Formats the package of a directory of the cache for the facts.
pub fn origin(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default();
    format!("package {}", name.to_string_lossy())
}

/// Returns the dependencies in the output of `apt-cache depends`.
fn dependencies(output: &str) -> impl Iterator<Item = &str> {
    let lines = output.lines();
    lines.filter_map(|line| line.trim().strip_prefix("Depends: "))
}

/// Downloads packages for this host into a directory, see [`Apt::download`].
///
/// # Errors
/// One is not available.
pub fn download<'a>(
    packages: impl Iterator<Item = &'a str>,
    directory: &Path,
) -> Result<(), Error> {
    Apt::default().download(packages, directory)
}

/// Most packages that are named.
const MOST_NAMED: usize = 4;

/// Returns the names of packages, or the number of many.
fn described(packages: &[&str]) -> String {
    match packages.len() {
        0..=MOST_NAMED => packages.join(" "),
        count => format!("{} and {} other packages", packages[0], count - 1),
    }
}

/// Parses the output of `apt-get --print-uris`: a line has address, file name, size and hash.
fn sizes(text: &str) -> impl Iterator<Item = u64> + '_ {
    text.lines()
        .filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok())
}

/// Unpacks all packages of a directory into its [`UNPACKED`]. Returns name and version of the one
/// whose name begins with `main`.
///
/// # Errors
/// One cannot be unpacked.
pub fn unpack_all(directory: &Path, main: &str) -> Result<Option<String>, Error> {
    let mut name = None;
    for entry in fs::read_dir(directory).map_err(Error::file(directory))? {
        let path = entry.map_err(Error::file(directory))?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let of_package = file.strip_suffix(".deb").and_then(|it| it.rsplit_once('_'));
        let Some((stem, _architecture)) = of_package else {
            continue;
        };
        if stem.starts_with(main) {
            name = Some(stem.replace('%', "-"));
        }
        unpack(&file, directory)?;
    }
    Ok(name)
}

/// Unpacks the files of a package. `dpkg --extract` does the same with processes that would outlive this one.
fn unpack(file: &str, directory: &Path) -> Result<(), Error> {
    fs::create_dir_all(directory.join(UNPACKED)).map_err(Error::file(directory))?;
    let mut contents = Command::new("dpkg-deb");
    contents.args(["--fsys-tarfile", file]);
    let mut tar = Command::new("tar");
    tar.args(["-x", "-p", "--warning=no-timestamp", "-C", UNPACKED]);
    for command in [&mut contents, &mut tar] {
        command.current_dir(directory).env("LC_ALL", "C");
    }
    let output = tool::pipe(&mut contents, &mut tar).map_err(|error| match error {
        Error::Start { .. } => not_installed("dpkg-deb"),
        other => other,
    })?;
    check_status(&output, || format!("dpkg-deb --fsys-tarfile {file}"))
}

/// Runs a tool of the distribution, in English and without questions.
///
/// # Errors
/// The tool is not installed, or a stop was requested.
pub fn run(tool: &'static str, arguments: &[&str], directory: &Path) -> Result<Output, Error> {
    let mut command = Command::new(tool);
    command
        .args(arguments)
        .current_dir(directory)
        .env("LC_ALL", "C");
    tool::output(&mut command).map_err(|error| match error {
        Error::Start { .. } => not_installed(tool),
        other => other,
    })
}

fn not_installed(tool: &str) -> Error {
    Error::missing(
        format!("{tool} is not installed, so no package can be downloaded"),
        "for a kernel, use --kernel FILE",
    )
}

fn run_checked(tool: &'static str, arguments: &[&str], directory: &Path) -> Result<(), Error> {
    let output = run(tool, arguments, directory)?;
    check_status(&output, || format!("{tool} {}", arguments.join(" ")))
}

fn check_status(output: &Output, command: impl Fn() -> String) -> Result<(), Error> {
    if output.status.success() {
        return Ok(());
    }
    Err(Error::unavailable(format!(
        "{} failed: {}",
        command(),
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_packages_are_counted() {
        assert_eq!(described(&["gcc", "make"]), "gcc make");
        assert_eq!(described(&["gcc"; 90]), "gcc and 89 other packages");
    }

    #[test]
    fn dependencies_are_parsed_by_package() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\nxen-utils-4.17\n  \
                    Depends: libc6\n |Depends: a\n  Depends: <python3:any>\n    python3\n<virtual>\n";
        let known = KnownPackages(by_package(text));
        let names: Vec<_> = known.names().collect();
        assert_eq!(names, ["linux-image-amd64", "xen-utils-4.17"]);
        let kernel = known.dependencies("linux-image-amd64");
        assert_eq!(kernel, ["linux-image-6.1.0-56-amd64"]);
        assert!(known
            .dependencies("xen-utils-4.17")
            .contains(&"libc6".to_owned()));
        assert!(!known.contains("<virtual>") && known.dependencies("none").is_empty());
    }

    #[test]
    fn sizes_of_packages_are_summed() {
        let text = "'http://host/a_1%2b2_amd64.deb' a_1%2b2_amd64.deb 53080 SHA256:2e\n\
                    'http://host/b_1_all.deb' b_1_all.deb 143256 SHA256:2e\nN: a note of apt\n";
        assert_eq!(sizes(text).sum::<u64>(), 53_080 + 143_256);
    }

    #[test]
    fn incomplete_download_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
            limit: 0,
        };
        let package = Package {
            kind: Kind::RtTests,
            names: &["rt-tests"],
            program: "usr/bin/cyclictest",
            without: &[],
        };
        let place = cache.of(Kind::RtTests).join("rt-tests_2.4-1");
        fs::create_dir_all(place.join("usr/bin")).unwrap();
        assert_eq!(package.in_cache(&cache), None);
        fs::write(place.join(package.program), "").unwrap();
        assert_eq!(package.in_cache(&cache), Some(place.clone()));
        assert_eq!(origin(&place), "package rt-tests_2.4-1");
    }
}
