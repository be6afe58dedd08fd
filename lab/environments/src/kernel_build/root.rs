//! Root of kernel builds: compiler, tools and prepared source, as one archive.
//!
//! It is created once from the distribution's packages, without root privileges: they are unpacked into a
//! directory, and the agent configures and builds the source there in a mount namespace. Files that were not
//! read are left out, generated files are removed, and the rest is archived. So it fits into memory, and
//! guests and host build with the same files.

use super::output::LastOutput;
use super::packages::Download;
use super::work_directory::create_in;
use super::{access_times, packages, recipe};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use trapline_host::cache::Kind;
use trapline_host::package;
use trapline_host::process::{Command, Process};
use trapline_host::{sha256_of_file, Activity, Cache, Error, Facts, Limits, Part};
use trapline_model::kernel_build::Size;
use trapline_sim::initramfs::Archive;
use trapline_sim::settings::Settings;

/// A root for builds.
#[derive(Clone, Debug)]
pub struct Root {
    /// Size of the build.
    pub size: Size,
    /// Archive.
    pub archive: PathBuf,
    /// Facts about it.
    pub facts: Facts,
}

/// Roots that were prepared, each once.
#[derive(Default)]
pub struct Roots(Mutex<BTreeMap<Size, Root>>);

impl Roots {
    /// Returns [`Root::prepared`].
    ///
    /// # Errors
    /// See there.
    pub fn prepared(
        &self,
        settings: &Settings,
        size: Size,
        limits: &Limits,
    ) -> Result<Root, Error> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(root) = all.get(&size) {
            return Ok(root.clone());
        }
        let root = Root::prepared(settings, size, limits)?;
        all.insert(size, root.clone());
        Ok(root)
    }
}

/// Files of a root in the cache; the second is written last.
const ARCHIVE: &str = "root.cpio";
const ORIGIN: &str = "origin";

/// File with the commands of the build in the root.
const RECIPE: &str = "trapline/recipe";

/// Links that the installation of packages would create.
const ALTERNATIVES: [(&str, &str); 1] = [("usr/bin/awk", "mawk")];

impl Root {
    /// Returns the root from the cache, creating it if needed, which takes minutes.
    ///
    /// # Errors
    /// It is not in the cache and cannot be created.
    pub fn prepared(settings: &Settings, size: Size, limits: &Limits) -> Result<Self, Error> {
        if let Some(root) = Self::cached(&settings.cache, size)? {
            return Ok(root);
        }
        create(settings, size, limits)?;
        let made = Self::cached(&settings.cache, size)?;
        made.ok_or_else(|| Error::KernelBuild("its root was removed from the cache".to_owned()))
    }

    /// Returns the root from the cache, if it is there.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn cached(cache: &Cache, size: Size) -> Result<Option<Self>, Error> {
        let Some(directory) = in_cache(cache, size) else {
            return Ok(None);
        };
        let archive = directory.join(ARCHIVE);
        let origin = directory.join(ORIGIN);
        let origin = fs::read_to_string(&origin).map_err(Error::file(origin))?;
        let facts = [
            ("build-size", size.name().to_owned()),
            ("build-source", format!("package {}", origin.trim())),
            ("build-root-sha256", sha256_of_file(&archive)?),
        ];
        Ok(Some(Self {
            size,
            archive,
            facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
        }))
    }

    /// Opens its archive.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(&self) -> Result<Arc<File>, Error> {
        let file = File::open(&self.archive).map_err(Error::file(&self.archive))?;
        Ok(Arc::new(file))
    }
}

/// Checks the requirements of [`Root::prepared`].
///
/// # Errors
/// One is missing.
pub fn check(cache: &Cache, size: Size) -> Result<(), Error> {
    match in_cache(cache, size) {
        Some(_) => Ok(()),
        None => packages::check(cache),
    }
}

/// Returns what [`Root::prepared`] downloads, if anything.
///
/// # Errors
/// A requirement is missing.
pub fn download(cache: &Cache, size: Size) -> Result<Option<Download>, Error> {
    match in_cache(cache, size) {
        Some(_) => Ok(None),
        None => packages::download(cache),
    }
}

/// Returns the prefix of a root's directory: size, and hash of the recipe.
fn prefix(size: Size) -> String {
    format!("{size}-{}-", recipe::digest(size))
}

fn in_cache(cache: &Cache, size: Size) -> Option<PathBuf> {
    let entries = fs::read_dir(cache.of(Kind::KernelBuild)).ok()?;
    let prefix = prefix(size);
    let entries = entries.flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    let complete = ours.map(|entry| entry.path());
    complete.filter(|path| path.join(ORIGIN).is_file()).max()
}

fn create(settings: &Settings, size: Size, limits: &Limits) -> Result<(), Error> {
    let cache = &settings.cache;
    let packages = packages::fetched(cache)?;
    let _activity = Activity::begin(format!("preparing kernel build {size}"));
    let work = create_in(&cache.of(Kind::KernelBuild))?;
    for package in packages::files(&packages)? {
        let name = package.file_name().unwrap_or_default();
        let link = fs::hard_link(&package, work.path().join(name));
        link.map_err(Error::file(&package))?;
    }
    package::unpack_all(work.path(), recipe::SOURCE)?;
    let draft = Draft {
        root: work.path().join("unpacked"),
        agent: settings.parts.get(Part::Agent)?,
        limits,
    };
    let kept = draft.build_once(size)?;
    let complete = work.path().join("complete");
    fs::create_dir(&complete).map_err(Error::file(&complete))?;
    draft.pack(size, &kept, &complete.join(ARCHIVE))?;
    let origin = packages::origin(&packages);
    let written = fs::write(complete.join(ORIGIN), &origin);
    written.map_err(Error::file(&complete))?;
    let place = cache.of(Kind::KernelBuild);
    let place = place.join(format!("{}{origin}", prefix(size)));
    match fs::rename(&complete, &place) {
        // Another process was faster; its root is complete.
        Err(_) if place.join(ORIGIN).is_file() => Ok(()),
        Err(error) => Err(Error::file(place)(error)),
        Ok(()) => Ok(()),
    }
}

/// An incomplete root.
struct Draft<'a> {
    root: PathBuf,
    agent: PathBuf,
    limits: &'a Limits,
}

impl Draft<'_> {
    /// Prepares the source, builds it once, and prepares it again. Returns the files to archive.
    fn build_once(&self, size: Size) -> Result<BTreeSet<PathBuf>, Error> {
        let failed = |error| Error::file(&self.root)(error);
        for (name, target) in ALTERNATIVES {
            let path = self.root.join(name);
            if !path.exists() {
                symlink(target, &path).map_err(Error::file(path))?;
            }
        }
        self.unpack_source()?;
        let original = access_times::files(&self.root).map_err(failed)?;
        access_times::reset_all(&self.root).map_err(failed)?;
        self.run(&recipe::prepare(size))?;
        self.run(&recipe::build(size))?;
        let needed = access_times::accessed(&self.root).map_err(failed)?;
        if needed.is_empty() {
            return Err(Error::missing(
                format!(
                    "{} is on a file system without access times (noatime)",
                    self.root.display()
                ),
                "set XDG_CACHE_HOME to a directory on another file system",
            ));
        }
        self.run(&recipe::clean())?;
        self.run(&recipe::prepare(size))?;
        let mut all = access_times::files(&self.root).map_err(failed)?;
        all.retain(|path| needed.contains(path) || self.is_generated(path, &original));
        Ok(all)
    }

    /// Returns whether a file of the source was generated, or is empty: such files are never read.
    fn is_generated(&self, path: &Path, original: &BTreeSet<PathBuf>) -> bool {
        let source = recipe::DIRECTORY.trim_start_matches('/');
        let is_empty =
            || fs::metadata(self.root.join(path)).is_ok_and(|metadata| metadata.len() == 0);
        path.starts_with(source) && (!original.contains(path) || is_empty())
    }

    fn unpack_source(&self) -> Result<(), Error> {
        let directory = self.root.join("usr/src");
        let packed = access_times::files(&directory).map_err(Error::file(&directory))?;
        let is_source = |path: &&PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(recipe::SOURCE) && name.contains(".tar.")
        };
        let packed = packed.iter().find(is_source);
        let packed = packed.ok_or_else(packages::no_source)?;
        let excluded = recipe::EXCLUDED.map(|pattern| format!("--exclude='{pattern}'"));
        let directory = recipe::DIRECTORY;
        self.run(&format!(
            "mkdir {directory} && tar -xf '/usr/src/{}' -C {directory} --strip-components=1 \
             --no-same-owner {}",
            packed.display(),
            excluded.join(" ")
        ))
    }

    /// Runs a shell command in the root.
    fn run(&self, line: &str) -> Result<(), Error> {
        let mut confine = std::ffi::OsString::from("trapline.confine=");
        confine.push(&self.root);
        let command = Command::new(&self.agent)
            .arg(confine)
            .words("/bin/sh -c")
            .arg(line);
        let mut output = LastOutput::default();
        let exited = Process::start(&command)?.wait(&mut output, self.limits)?;
        if exited.status.success() {
            Ok(())
        } else {
            Err(Error::KernelBuild(output.lines()))
        }
    }

    fn pack(&self, size: Size, kept: &BTreeSet<PathBuf>, to: &Path) -> Result<(), Error> {
        let mut archive = Archive::default();
        for directory in ["dev", "proc", "tmp"] {
            archive.directory(directory);
        }
        for path in kept {
            let from = self.root.join(path);
            add(&mut archive, path, &from).map_err(Error::file(&from))?;
        }
        archive.document(RECIPE, recipe::text(size).into_bytes());
        fs::write(to, archive.bytes()).map_err(Error::file(to))
    }
}

fn add(archive: &mut Archive, path: &Path, from: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(from)?;
    if metadata.is_symlink() {
        archive.link(path, &fs::read_link(from)?);
    } else if metadata.permissions().mode() & 0o100 != 0 {
        archive.file(path, fs::read(from)?);
    } else {
        archive.document(path, fs::read(from)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_build::work_directory::PREFIX;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
            limit: 0,
        };
        (directory, cache)
    }

    #[test]
    fn incomplete_root_is_not_used() {
        let (_directory, cache) = cache();
        let name = format!("{}linux-source-1_1", prefix(Size::Mini));
        let place = cache.of(Kind::KernelBuild).join(name);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(ARCHIVE), "archive").unwrap();
        assert!(Root::cached(&cache, Size::Mini).unwrap().is_none());
        fs::write(place.join(ORIGIN), "linux-source-1_1").unwrap();
        let root = Root::cached(&cache, Size::Mini).unwrap().unwrap();
        assert_eq!(root.facts["build-source"], "package linux-source-1_1");
        assert_eq!(root.facts["build-root-sha256"].len(), 64);
        assert!(Root::cached(&cache, Size::Tiny).unwrap().is_none());
    }

    #[test]
    fn directories_of_killed_processes_are_removed() {
        let (_directory, cache) = cache();
        let place = cache.of(Kind::KernelBuild);
        let ours = create_in(&place).unwrap();
        let orphan = place.join(format!("{PREFIX}{}-x", u32::MAX));
        let other = place.join(format!("{PREFIX}1-x"));
        fs::create_dir(&orphan).unwrap();
        fs::create_dir(&other).unwrap();
        let _second = create_in(&place).unwrap();
        assert!(ours.path().is_dir() && other.is_dir());
        assert!(!orphan.exists());
    }

    #[test]
    fn modes_and_links_are_archived() {
        let (directory, _) = cache();
        let root = directory.path();
        fs::write(root.join("document"), "text").unwrap();
        symlink("document", root.join("link")).unwrap();
        let mut archive = Archive::default();
        for name in ["document", "link"] {
            add(&mut archive, Path::new(name), &root.join(name)).unwrap();
        }
        let mut same = Archive::default();
        same.document("document", b"text".to_vec());
        same.link("link", Path::new("document"));
        assert_eq!(archive.bytes(), same.bytes());
    }
}
