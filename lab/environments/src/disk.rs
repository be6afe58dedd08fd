//! Files of measured disks: created for one launch and unlinked at once, so that none is left behind and no
//! existing file is overwritten.

use rustix::fs::{fallocate, FallocateFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trapline_host::{private, Error, Facts};
use trapline_sim::settings::Settings;

/// Creates a file of `mib` MiB at the path of the settings, or else in the cache.
///
/// # Errors
/// The path exists, or the file system is full.
pub fn scratch(settings: &Settings, mib: u32) -> Result<Arc<File>, Error> {
    let (file, path) = match &settings.disk {
        Some(path) => (create_unlinked(path)?, path.clone()),
        None => create_in(&settings.cache.directory)?,
    };
    let bytes = u64::from(mib) << 20;
    match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        // Without support for allocation, a full file system fails later writes.
        Err(Errno::OPNOTSUPP) => file.set_len(bytes),
        reserved => reserved.map_err(Into::into),
    }
    .map_err(Error::file(&path))?;
    Ok(Arc::new(file))
}

/// Returns whether its file system supports direct I/O.
pub fn is_direct(file: &File) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_DIRECT);
    options.open(path).is_ok()
}

/// Creates a new file and unlinks it.
fn create_unlinked(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true);
    let file = options.open(path).map_err(Error::file(path))?;
    fs::remove_file(path).map_err(Error::file(path))?;
    Ok(file)
}

fn create_in(directory: &Path) -> Result<(File, PathBuf), Error> {
    private::create_directory(directory)?;
    let file = tempfile::tempfile_in(directory).map_err(Error::file(directory))?;
    Ok((file, directory.to_owned()))
}

/// Returns facts about a disk of `mib` MiB, which may be a file of this host.
pub fn facts(settings: &Settings, mib: u32, on_host: bool) -> Facts {
    let directory = match &settings.disk {
        Some(path) => path.parent().unwrap_or(Path::new(".")).to_owned(),
        None => settings.cache.directory.clone(),
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let directory = existing(&directory);
    let mut facts = Facts::from([("disk-mib".to_owned(), mib.to_string())]);
    if !on_host {
        return facts;
    }
    let found = file_system(&mounts, &directory);
    facts.extend(found.map(|found| ("disk-file-system".to_owned(), found)));
    facts
}

/// Returns the nearest existing ancestor.
fn existing(directory: &Path) -> PathBuf {
    let mut above = directory.ancestors();
    let found = above.find_map(|above| fs::canonicalize(above).ok());
    found.unwrap_or_else(|| "/".into())
}

/// Returns file system and device of `directory`, from the text of `/proc/self/mountinfo` (Linux `proc(5)`).
fn file_system(mounts: &str, directory: &Path) -> Option<String> {
    let mount = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let at = PathBuf::from(front.split(' ').nth(4)?);
        let mut back = back.split(' ');
        let text = format!("{} on {}", back.next()?, back.next()?);
        directory
            .starts_with(&at)
            .then(|| (at.as_os_str().len(), text))
    };
    // A later mount at the same place hides an earlier one.
    let all = mounts.lines().filter_map(mount);
    all.max_by_key(|(length, _)| *length).map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn disk_is_unlinked_and_overwrites_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let settings = Settings {
            disk: Some(path.clone()),
            ..Settings::find().unwrap()
        };
        let file = scratch(&settings, 1).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        assert!(!path.exists());
        File::create(&path).unwrap().write_all(b"precious").unwrap();
        let error = scratch(&settings, 1).unwrap_err().to_string();
        assert!(error.contains("disk"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        assert!(facts(&settings, 1, true).contains_key("disk-file-system"));
    }

    #[test]
    fn longest_mount_point_determines_the_file_system() {
        let mounts = "\
            22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            40 22 0:35 / /home/me rw - tmpfs tmp rw\n\
            41 22 0:36 / /home rw - btrfs /dev/vdb rw\n";
        let of = |path: &str| file_system(mounts, Path::new(path)).unwrap();
        assert_eq!(of("/home/me/.cache"), "tmpfs on tmp");
        assert_eq!(of("/home/you"), "btrfs on /dev/vdb");
        assert_eq!(of("/homes"), "ext4 on /dev/vda");
        assert_eq!(file_system("nonsense", Path::new("/")), None);
    }
}
