//! The root in which a kernel is built: compiler, tools and prepared source, as one archive.
//!
//! It is made once from the distribution's packages, without being an administrator: they
//! are unpacked into a directory, and in a ground of its own (the agent's) the source is
//! configured and built there. What nobody has read until then is left out, all made is
//! taken back, and what remains is packed. So it is small enough for memory, and a guest
//! and its host build with the very same files.

use super::ear::Words;
use super::work::work_in;
use super::{packages, read, recipe};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trapline_host::cache::Kind;
use trapline_host::package;
use trapline_host::process::{Command, Process};
use trapline_host::{sha256_of_file, Cache, Error, Facts, Limits, Part};
use trapline_model::kernel_build::Size;
use trapline_sim::initramfs::Archive;
use trapline_sim::settings::Settings;

/// A root.
#[derive(Clone, Debug)]
pub struct Root {
    /// What is built in it.
    pub size: Size,
    /// Its archive.
    pub archive: PathBuf,
    /// What is to be told about it.
    pub facts: Facts,
}

/// Its files in the cache; the second is written last.
const ARCHIVE: &str = "root.cpio";
const ORIGIN: &str = "origin";

/// Where it has what is to be done in it.
const RECIPE: &str = "trapline/recipe";

/// What stands where the packages leave a choice to whoever installs them.
const CHOICES: [(&str, &str); 1] = [("usr/bin/awk", "mawk")];

impl Root {
    /// The root from the cache, or else made there. That takes minutes.
    ///
    /// # Errors
    /// It is not there and cannot be made.
    pub fn prepared(settings: &Settings, size: Size, limits: &Limits) -> Result<Self, Error> {
        if let Some(root) = Self::kept(&settings.cache, size)? {
            return Ok(root);
        }
        make(settings, size, limits)?;
        let made = Self::kept(&settings.cache, size)?;
        made.ok_or_else(|| Error::KernelBuild("its root has gone from the cache".to_owned()))
    }

    /// The root from the cache, if it is there.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn kept(cache: &Cache, size: Size) -> Result<Option<Self>, Error> {
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

    /// Its archive, to be read.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(&self) -> Result<Arc<File>, Error> {
        let file = File::open(&self.archive).map_err(Error::file(&self.archive))?;
        Ok(Arc::new(file))
    }
}

/// Whether [`Root::prepared`] can be expected to succeed.
///
/// # Errors
/// Why not.
pub fn check(cache: &Cache, size: Size) -> Result<(), Error> {
    match in_cache(cache, size) {
        Some(_) => Ok(()),
        None => Ok(packages::check(cache)?),
    }
}

/// What the name of its directory begins with: what is built, and how it is made ready.
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

fn make(settings: &Settings, size: Size, limits: &Limits) -> Result<(), Error> {
    let cache = &settings.cache;
    let packages = packages::fetched(cache)?;
    let work = work_in(&cache.of(Kind::KernelBuild))?;
    for package in packages::files(&packages)? {
        let name = package.file_name().unwrap_or_default();
        let link = fs::hard_link(&package, work.path().join(name));
        link.map_err(Error::file(&package))?;
    }
    package::unpack_all(work.path(), recipe::SOURCE)?;
    let workshop = Workshop {
        root: work.path().join("unpacked"),
        agent: settings.parts.get(Part::Agent)?,
        limits,
    };
    let kept = workshop.try_out(size)?;
    let complete = work.path().join("complete");
    fs::create_dir(&complete).map_err(Error::file(&complete))?;
    workshop.pack(size, &kept, &complete.join(ARCHIVE))?;
    let origin = packages::origin(&packages);
    let written = fs::write(complete.join(ORIGIN), &origin);
    written.map_err(Error::file(&complete))?;
    let place = cache.of(Kind::KernelBuild);
    let place = place.join(format!("{}{origin}", prefix(size)));
    match fs::rename(&complete, &place) {
        // Somebody else was as quick; what is there is complete as well.
        Err(_) if place.join(ORIGIN).is_file() => Ok(()),
        Err(error) => Err(Error::file(place)(error)),
        Ok(()) => Ok(()),
    }
}

/// A root in the making.
struct Workshop<'a> {
    root: PathBuf,
    agent: PathBuf,
    limits: &'a Limits,
}

impl Workshop<'_> {
    /// Makes the source ready, builds it once, and makes it ready again; what is to be
    /// kept.
    fn try_out(&self, size: Size) -> Result<BTreeSet<PathBuf>, Error> {
        let about = |error| Error::file(&self.root)(error);
        for (name, target) in CHOICES {
            let path = self.root.join(name);
            if !path.exists() {
                symlink(target, &path).map_err(Error::file(path))?;
            }
        }
        self.unpack_source()?;
        let original = read::all(&self.root).map_err(about)?;
        read::forget(&self.root).map_err(about)?;
        self.run(&recipe::prepare(size))?;
        self.run(&recipe::build(size))?;
        let needed = read::since(&self.root).map_err(about)?;
        if needed.is_empty() {
            return Err(Error::KernelBuild(format!(
                "{} does not note when files are read (it is mounted with noatime): set \
                 XDG_CACHE_HOME to a directory on another file system",
                self.root.display()
            )));
        }
        self.run(&recipe::clean())?;
        self.run(&recipe::prepare(size))?;
        let mut all = read::all(&self.root).map_err(about)?;
        all.retain(|path| needed.contains(path) || self.was_made(path, &original));
        Ok(all)
    }

    /// Whether a file of the source was made, or only is there: such are never read.
    fn was_made(&self, path: &Path, original: &BTreeSet<PathBuf>) -> bool {
        let source = recipe::DIRECTORY.trim_start_matches('/');
        let is_empty = || fs::metadata(self.root.join(path)).is_ok_and(|about| about.len() == 0);
        path.starts_with(source) && (!original.contains(path) || is_empty())
    }

    fn unpack_source(&self) -> Result<(), Error> {
        let directory = self.root.join("usr/src");
        let packed = read::all(&directory).map_err(Error::file(&directory))?;
        let is_source = |path: &&PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(recipe::SOURCE) && name.contains(".tar.")
        };
        let packed = packed.iter().find(is_source);
        let packed = packed.ok_or_else(packages::no_source)?;
        let without = recipe::WITHOUT.map(|pattern| format!("--exclude='{pattern}'"));
        let place = recipe::DIRECTORY;
        self.run(&format!(
            "mkdir {place} && tar -xf '/usr/src/{}' -C {place} --strip-components=1 \
             --no-same-owner {}",
            packed.display(),
            without.join(" ")
        ))
    }

    /// Lets a shell in the root do something.
    fn run(&self, line: &str) -> Result<(), Error> {
        let mut confine = std::ffi::OsString::from("trapline.confine=");
        confine.push(&self.root);
        let command = Command::new(&self.agent)
            .arg(confine)
            .words("/bin/sh -c")
            .arg(line);
        let mut ear = Words::default();
        let over = Process::start(&command)?.wait(&mut ear, self.limits)?;
        match over.status.success() {
            true => Ok(()),
            false => Err(Error::KernelBuild(ear.last())),
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
    let about = fs::symlink_metadata(from)?;
    if about.is_symlink() {
        archive.link(path, &fs::read_link(from)?);
    } else if about.permissions().mode() & 0o100 != 0 {
        archive.file(path, fs::read(from)?);
    } else {
        archive.document(path, fs::read(from)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_build::work::MAKING;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
            limit: 0,
        };
        (directory, cache)
    }

    #[test]
    fn a_root_that_is_not_complete_is_never_used() {
        let (_directory, cache) = cache();
        let name = format!("{}linux-source-1_1", prefix(Size::Mini));
        let place = cache.of(Kind::KernelBuild).join(name);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(ARCHIVE), "archive").unwrap();
        assert!(Root::kept(&cache, Size::Mini).unwrap().is_none());
        fs::write(place.join(ORIGIN), "linux-source-1_1").unwrap();
        let root = Root::kept(&cache, Size::Mini).unwrap().unwrap();
        assert_eq!(root.facts["build-source"], "package linux-source-1_1");
        assert_eq!(root.facts["build-root-sha256"].len(), 64);
        assert!(Root::kept(&cache, Size::Tiny).unwrap().is_none());
    }

    #[test]
    fn what_a_killed_process_left_behind_goes() {
        let (_directory, cache) = cache();
        let place = cache.of(Kind::KernelBuild);
        let ours = work_in(&place).unwrap();
        let orphan = place.join(format!("{MAKING}{}-x", u32::MAX));
        let other = place.join(format!("{MAKING}1-x"));
        fs::create_dir(&orphan).unwrap();
        fs::create_dir(&other).unwrap();
        let _second = work_in(&place).unwrap();
        assert!(ours.path().is_dir() && other.is_dir());
        assert!(!orphan.exists());
    }

    #[test]
    fn what_is_packed_is_what_it_was() {
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
