//! Directories and files that no other user can change.
//!
//! Programs of the cache are executed, figures of the store are compared, and the configuration names commands. So each
//! of them belongs to this user or to root, or the user has named it, and no other user can write it.

use crate::files::{open_text, read_open};
use crate::Error;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Origin of a path, which decides whether another user may own it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An option names it: any user may own it.
    Option,
    /// It is in a directory that an XDG variable names: the owner of that directory may own it.
    Variable,
    /// It is in the home directory: this user owns it.
    Home,
}

/// Mode bits that let the group or everybody write.
const WRITABLE: u32 = 0o022;

/// Mode bit of a directory in which only the owner of a file can remove it.
const STICKY: u32 = 0o1000;

/// Files that SQLite reads beside a store.
const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];

/// Returns the directory `trapline` in the one that `variable` names, or in `folder` of the home directory. The XDG base
/// directory specification ignores relative paths.
///
/// # Errors
/// Neither `variable` nor `HOME` is an absolute path.
pub fn user_directory(variable: &str, folder: &str) -> Result<(PathBuf, Origin), Error> {
    let absolute = |variable| {
        let path = PathBuf::from(std::env::var_os(variable)?);
        path.is_absolute().then_some(path)
    };
    let named = absolute(variable).map(|base| (base, Origin::Variable));
    let home = || Some((absolute("HOME")?.join(folder), Origin::Home));
    let (base, origin) = named.or_else(home).ok_or_else(|| {
        Error::missing(
            format!("no directory for trapline: neither {variable} nor HOME is an absolute path"),
            format!("set {variable} to a directory that only you can write"),
        )
    })?;
    Ok((base.join("trapline"), origin))
}

/// Checks that no other user can change a file or directory. One that does not exist, or cannot be examined and thus not be
/// opened, passes.
///
/// # Errors
/// Another user owns it, and `origin` does not permit that; or the group or everybody can write it.
pub fn check(path: &Path, origin: Origin) -> Result<(), Error> {
    let is_free = match origin {
        Origin::Option => true,
        Origin::Variable => !fs::metadata(parent(path)).is_ok_and(|about| is_writable(&about)),
        Origin::Home => false,
    };
    if origin == Origin::Home {
        check_above(path)?;
    }
    // The link itself, if it is one, and its target.
    for about in [fs::symlink_metadata(path), fs::metadata(path)] {
        let Ok(about) = about else {
            return Ok(());
        };
        if !is_free && !is_ours(about.uid()) {
            return Err(foreign(path, about.uid()));
        }
        if !about.is_symlink() && is_writable(&about) {
            return Err(writable(path, about.mode()));
        }
    }
    Ok(())
}

/// Checks the owners of the two directories above a path in the home directory. If others can write that, they can put theirs
/// between it and a directory of ours, and exchange them later.
fn check_above(path: &Path) -> Result<(), Error> {
    for place in path.ancestors().skip(1).take(2) {
        for about in [fs::symlink_metadata(place), fs::metadata(place)] {
            let uid = about.ok().map(|about| about.uid());
            if let Some(uid) = uid.filter(|uid| !is_ours(*uid)) {
                return Err(foreign(place, uid));
            }
        }
    }
    Ok(())
}

/// Checks that no other user can change a store, its directory, or the files that SQLite reads beside it. In a sticky
/// directory such as /tmp others can add such files, but not replace a store. What is no regular file is no store, and passes.
///
/// # Errors
/// See [`check`].
pub fn check_store(path: &Path, origin: Origin) -> Result<(), Error> {
    if fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        return Ok(());
    }
    check_place(path, origin)?;
    // SQLite follows a link, and reads what is beside its target.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    check_place(&real, origin)?;
    let owner = fs::metadata(&real).ok().map(|about| about.uid());
    for suffix in COMPANIONS {
        let mut companion = real.as_os_str().to_owned();
        companion.push(suffix);
        let companion = PathBuf::from(companion);
        let found = fs::symlink_metadata(&companion).ok();
        if let Some(found) = found.filter(|it| !is_ours(it.uid()) && Some(it.uid()) != owner) {
            return Err(foreign(&companion, found.uid()));
        }
        check(&companion, Origin::Option)?;
    }
    Ok(())
}

/// Checks a file and its directory.
fn check_place(path: &Path, origin: Origin) -> Result<(), Error> {
    let directory = parent(path);
    match fs::metadata(directory) {
        Ok(about) if origin == Origin::Option && about.mode() & STICKY != 0 => {}
        _ => check(directory, origin)?,
    }
    check(path, origin)
}

/// Checks that a home directory in which this program creates files exists and is this user's or root's.
///
/// # Errors
/// It does not exist, or another user owns it.
pub fn check_home(origin: Origin) -> Result<(), Error> {
    match std::env::var_os("HOME") {
        Some(home) if origin == Origin::Home => check_home_at(Path::new(&home)),
        _ => Ok(()),
    }
}

fn check_home_at(home: &Path) -> Result<(), Error> {
    let problem = match fs::metadata(home) {
        Ok(about) if is_ours(about.uid()) => return Ok(()),
        Ok(about) => format!("belongs to another user, uid {}", about.uid()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "does not exist".to_owned(),
        Err(_) => return Ok(()), // What is opened there fails with the reason.
    };
    Err(Error::missing(
        format!("{}: the home directory {problem}", home.display()),
        "set HOME to yours, or name another place: XDG_CACHE_HOME for the cache, --store for a store",
    ))
}

/// Checks that no other user can change a directory below `top`, a directory that was checked. One that does not exist passes.
///
/// # Errors
/// See [`check_tree`].
pub fn check_below(top: &Path, path: &Path) -> Result<(), Error> {
    match (fs::symlink_metadata(path), fs::metadata(path)) {
        (Ok(link), Ok(about)) => {
            check_owner(path, link.uid(), owner(top))?;
            check_inside(path, &about, owner(top))
        }
        _ => Ok(()),
    }
}

/// Returns the text of a file below `top`, a directory that was checked, if no other user can change the file.
///
/// # Errors
/// The file cannot be read as text, or others can change it. A file that does not exist has none.
pub fn read_inside(top: &Path, path: &Path, limit: u64) -> Result<Option<String>, Error> {
    let read = || -> io::Result<Result<String, Error>> {
        let file = open_text(path)?;
        match check_inside(path, &file.metadata()?, owner(top)) {
            Ok(()) => Ok(Ok(read_open(file, limit)?)),
            Err(error) => Ok(Err(error)),
        }
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file(path)(error)),
        Ok(text) => text.map(Some),
    }
}

/// Depth to which all entries of a cache are checked: kinds, and packages, snapshots and the like in them.
const DEPTH: u32 = 2;

/// Checks that no other user can change what is below `top`, a directory that was checked. What is in a directory that
/// others cannot enter may have any mode, and is checked to [`DEPTH`] only.
///
/// # Errors
/// Another user, who is not the owner of `top`, owns an entry, or the group or everybody can write it.
pub fn check_tree(top: &Path) -> Result<(), Error> {
    let Ok(about) = fs::metadata(top) else {
        return Ok(());
    };
    check_entries(top, about.uid(), may_enter(&about), 1)
}

fn check_entries(place: &Path, owner: u32, is_open: bool, depth: u32) -> Result<(), Error> {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(mut about) = entry.metadata() else {
            continue; // Another process has removed it.
        };
        if about.is_symlink() {
            check_owner(&path, about.uid(), owner)?;
            match fs::metadata(&path) {
                Ok(target) if depth <= DEPTH => about = target,
                _ => continue,
            }
        }
        if is_open && (about.is_dir() || about.is_file()) {
            check_inside(&path, &about, owner)?
        } else {
            check_owner(&path, about.uid(), owner)?
        }
        let is_open = is_open && may_enter(&about);
        if about.is_dir() && (is_open || depth < DEPTH) {
            check_entries(&path, owner, is_open, depth + 1)?;
        }
    }
    Ok(())
}

/// Checks an entry of a directory of `owner`.
fn check_inside(path: &Path, about: &Metadata, owner: u32) -> Result<(), Error> {
    check_owner(path, about.uid(), owner)?;
    if is_writable(about) {
        Err(writable(path, about.mode()))
    } else {
        Ok(())
    }
}

fn check_owner(path: &Path, found: u32, owner: u32) -> Result<(), Error> {
    if is_ours(found) || found == owner {
        Ok(())
    } else {
        Err(foreign(path, found))
    }
}

/// Returns the owner of a directory; root if it does not exist.
fn owner(directory: &Path) -> u32 {
    fs::metadata(directory).map_or(0, |about| about.uid())
}

/// Creates a directory and those above it, for this user only.
///
/// # Errors
/// It cannot be created.
pub fn create_directory(path: &Path) -> Result<(), Error> {
    let mut builder = DirBuilder::new();
    let created = builder.recursive(true).mode(0o700).create(path);
    created.map_err(Error::file(path))
}

fn parent(path: &Path) -> &Path {
    let parent = path.parent().unwrap_or(path);
    if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    }
}

/// Returns whether files of this user are trusted: those of root, and our own.
pub(crate) fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Returns whether the group or everybody can use what is in a directory.
fn may_enter(about: &Metadata) -> bool {
    about.mode() & 0o011 != 0
}

fn is_writable(about: &Metadata) -> bool {
    about.mode() & WRITABLE != 0
}

fn foreign(path: &Path, uid: u32) -> Error {
    Error::missing(
        format!("{}: it belongs to another user, uid {uid}", path.display()),
        "remove it, or name another place: XDG_CACHE_HOME for the cache, XDG_CONFIG_HOME for the configuration, --store \
         for a store",
    )
}

fn writable(path: &Path, mode: u32) -> Error {
    let (path, mode) = (path.display(), mode & 0o7777);
    Error::missing(
        format!("{path}: other users can write it, mode {mode:04o}"),
        format!("chmod go-w {path}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink, PermissionsExt};

    /// A user without files.
    const STRANGER: u32 = 54_321;

    const ORIGINS: [Origin; 3] = [Origin::Option, Origin::Variable, Origin::Home];

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Returns a directory of mode 0700 with an entry of each kind.
    fn entries() -> (tempfile::TempDir, [PathBuf; 2]) {
        let place = tempfile::tempdir().unwrap();
        let paths = ["directory", "file"].map(|name| place.path().join(name));
        create_directory(&paths[0]).unwrap();
        fs::write(&paths[1], "").unwrap();
        set_mode(&paths[1], 0o644);
        (place, paths)
    }

    #[test]
    fn entries_that_others_can_write_are_refused_wherever_their_name_is_from() {
        let (place, paths) = entries();
        for path in &paths {
            let link = place.path().join("link");
            symlink(path, &link).unwrap();
            for mode in 0..=0o1777 {
                let is_safe = mode & 0o022 == 0;
                set_mode(path, mode);
                for origin in ORIGINS {
                    for named in [path, &link] {
                        assert_eq!(check(named, origin).is_ok(), is_safe, "{mode:o} {origin:?}");
                    }
                }
            }
            set_mode(path, 0o757);
            let error = check(path, Origin::Option).unwrap_err();
            let remedy = format!("chmod go-w {}", path.display());
            assert_eq!(error.remedy(), Some(&remedy[..]));
            fs::remove_file(link).unwrap();
        }
        assert!(check(&place.path().join("missing"), Origin::Home).is_ok());
    }

    #[test]
    fn entries_of_others_are_refused_unless_they_are_named() {
        let (place, paths) = entries();
        if chown(&paths[0], Some(STRANGER), None).is_err() {
            return trapline_skip::skip("entries of others", "files are given away by root only");
        }
        chown(&paths[1], Some(STRANGER), None).unwrap();
        let link = place.path().join("link");
        symlink(&paths[0], &link).unwrap();
        for path in paths.iter().chain([&link]) {
            let allowed = ORIGINS.map(|origin| check(path, origin).is_ok());
            assert_eq!(allowed, [true, true, false], "{}", path.display());
        }
        // Any user can make a directory there.
        set_mode(place.path(), 0o1777);
        let allowed = ORIGINS.map(|origin| check(&paths[0], origin).is_ok());
        assert_eq!(allowed, [true, false, false]);
    }

    #[test]
    fn text_that_others_can_change_is_not_read() {
        let (place, [_, file]) = entries();
        let read = |path: &Path| read_inside(place.path(), path, 10);
        fs::write(&file, "text").unwrap();
        let link = place.path().join("link");
        symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            set_mode(&file, 0o644);
            assert_eq!(read(path).unwrap().as_deref(), Some("text"));
            for mode in [0o664, 0o646, 0o666] {
                set_mode(&file, mode);
                let remedy = format!("chmod go-w {}", path.display());
                assert_eq!(read(path).unwrap_err().remedy(), Some(&remedy[..]));
            }
        }
        assert_eq!(read(&place.path().join("missing")).unwrap(), None);
        set_mode(&file, 0o644);
        if chown(&file, Some(STRANGER), None).is_ok() {
            assert!(read(&file).is_err() && read(&link).is_err());
            chown(place.path(), Some(STRANGER), None).unwrap();
            assert!(
                read(&file).is_ok(),
                "who owns the directory can change all of it"
            );
        }
    }

    #[test]
    fn trees_that_others_can_change_are_refused() {
        let (place, _) = entries();
        let top = place.path();
        let paths = ["a", "a/b", "a/b/c", "a/b/c/file"].map(|name| top.join(name));
        create_directory(&paths[2]).unwrap();
        fs::write(&paths[3], "").unwrap();
        for open in [0o700, 0o755] {
            set_mode(top, open);
            paths.iter().for_each(|path| set_mode(path, 0o755));
            assert!(check_tree(top).is_ok());
            for path in &paths {
                set_mode(path, 0o777);
                let others = if open == 0o755 { Some(path) } else { None };
                let error = check_tree(top).err().map(|error| error.to_string());
                let named = others.map(|path| format!("{}: other users", path.display()));
                assert_eq!(error.is_some(), named.is_some());
                assert!(error
                    .unwrap_or_default()
                    .starts_with(&named.unwrap_or_default()));
                set_mode(path, 0o755);
            }
        }
        set_mode(top, 0o700);
        for (path, is_seen) in paths.iter().zip([true, true, false, false]) {
            if chown(path, Some(STRANGER), None).is_ok() {
                assert_eq!(check_tree(top).is_err(), is_seen, "{}", path.display());
                set_mode(top, 0o755);
                assert!(check_tree(top).is_err());
                set_mode(top, 0o700);
                chown(path, Some(0), None).unwrap();
            }
        }
        assert!(check_tree(&top.join("missing")).is_ok());
    }

    #[test]
    fn homes_of_others_and_missing_ones_are_errors() {
        let (place, [home, _]) = entries();
        assert!(check_home_at(&home).is_ok());
        let error = check_home_at(&place.path().join("missing")).unwrap_err();
        assert!(error
            .to_string()
            .contains("the home directory does not exist"));
        if chown(&home, Some(STRANGER), None).is_ok() {
            let error = check_home_at(&home).unwrap_err();
            assert!(error.to_string().contains("uid 54321") && error.remedy().is_some());
        }
    }

    /// Creates the journal of the store that `named` leads to.
    #[track_caller]
    fn assert_journal_is_checked(named: &Path, journal: &Path) {
        fs::write(journal, "").unwrap();
        for origin in ORIGINS {
            set_mode(journal, 0o644);
            assert!(check_store(named, origin).is_ok());
            set_mode(journal, 0o666);
            assert!(check_store(named, origin).is_err());
        }
        set_mode(journal, 0o644);
    }

    #[test]
    fn a_store_beside_which_others_put_files_is_refused() {
        let (place, [_, store]) = entries();
        let journal = place.path().join("file-journal");
        assert_journal_is_checked(&store, &journal);
        for (mode, allowed) in [(0o777, [false; 3]), (0o1777, [true, false, false])] {
            set_mode(place.path(), mode);
            let found = ORIGINS.map(|origin| check_store(&store, origin).is_ok());
            assert_eq!(found, allowed, "{mode:o}");
        }
        if chown(&journal, Some(STRANGER), None).is_ok() {
            assert!(check_store(&store, Origin::Option).is_err());
            chown(&store, Some(STRANGER), None).unwrap();
            assert!(check_store(&store, Origin::Option).is_ok());
        }
    }

    #[test]
    fn a_link_to_a_store_is_checked_as_the_store() {
        let (place, [folder, store]) = entries();
        let link = folder.join("link.db");
        symlink(&store, &link).unwrap();
        let journal = place.path().join("file-journal");
        assert_journal_is_checked(&link, &journal);
        if chown(&journal, Some(STRANGER), None).is_ok() {
            assert!(check_store(&link, Origin::Option).is_err());
        }
    }

    #[test]
    fn directories_of_others_above_those_in_a_home_are_refused() {
        let (_place, [cache, _]) = entries();
        let own = cache.join("trapline");
        create_directory(&own).unwrap();
        assert!(check(&own, Origin::Home).is_ok());
        if chown(&cache, Some(STRANGER), None).is_ok() {
            let error = check(&own, Origin::Home).unwrap_err();
            assert!(error.to_string().contains("uid 54321"), "{error}");
            assert!(check(&own, Origin::Option).is_ok());
        }
    }
}
