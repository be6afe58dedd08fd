//! Files of workload `files`: a directory for the host, a ustar archive for the image, an ext4 file system for Linux
//! guests. Equal sizes give equal bytes, so that figures on exact clocks do not depend on the time of creation.

use crate::disk;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use trapline_abi::files::{disk_mib, operations, File as Measured};
use trapline_abi::Job;
use trapline_host::{find_program, tool, Error};
use trapline_sim::settings::Settings;

/// Bytes of content that are computed together.
const PIECE: usize = 1 << 20;

/// Returns whether `job` reads files.
pub fn are_read(job: &Job) -> bool {
    job.run.intersects(operations())
}

/// Content of a file, as a stream.
struct Content {
    file: Measured,
    piece: Vec<u8>,
    /// Bytes of the piece that were read.
    used: usize,
    offset: u64,
    bytes: u64,
}

impl Content {
    fn new(file: Measured, large_mib: u32) -> Self {
        Self {
            file,
            piece: Vec::new(),
            used: 0,
            offset: 0,
            bytes: file.class.bytes(large_mib),
        }
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.used == self.piece.len() {
            let length = (self.bytes - self.offset).min(PIECE as u64);
            self.piece.resize(length as usize, 0);
            self.file.fill(self.offset, &mut self.piece);
            self.offset += length;
            self.used = 0;
        }
        let mut rest = &self.piece[self.used..];
        let count = rest.read(buffer)?;
        self.used += count;
        Ok(count)
    }
}

/// Writes the files below `directory`, to the disk, because only then a page cache can be emptied.
fn write_tree(directory: &Path, large_mib: u32) -> io::Result<()> {
    for file in Measured::all() {
        let path = directory.join(file.path().as_str());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut written = File::create(&path)?;
        io::copy(&mut Content::new(file, large_mib), &mut written)?;
        written.sync_data()?;
    }
    Ok(())
}

/// Creates a directory with the files in the cache's directory, which is removed when it is dropped.
///
/// # Errors
/// It cannot be written.
pub fn tree(settings: &Settings, large_mib: u32) -> Result<TempDir, Error> {
    let parent = &settings.cache.directory;
    let create = || {
        fs::create_dir_all(parent)?;
        let directory = tempfile::Builder::new()
            .prefix("files-")
            .tempdir_in(parent)?;
        write_tree(directory.path(), large_mib)?;
        Ok(directory)
    };
    create().map_err(Error::file(parent))
}

/// Returns path and content of each file.
pub fn contents(large_mib: u32) -> impl Iterator<Item = (String, Vec<u8>)> {
    Measured::all().map(move |file| {
        let mut bytes = vec![0; file.class.bytes(large_mib) as usize];
        file.fill(0, &mut bytes);
        (file.path().as_str().to_owned(), bytes)
    })
}

/// Writes a ustar archive of the files.
fn write_archive(to: impl io::Write, large_mib: u32) -> io::Result<()> {
    let mut archive = tar::Builder::new(to);
    for file in Measured::all() {
        let mut header = tar::Header::new_ustar();
        header.set_path(file.path().as_str())?;
        header.set_size(file.class.bytes(large_mib));
        header.set_mode(0o644);
        header.set_cksum();
        archive.append(&header, Content::new(file, large_mib))?;
    }
    archive.finish()
}

/// Returns a disk with a ustar archive of the files.
///
/// # Errors
/// It cannot be written.
pub fn archive_disk(settings: &Settings, large_mib: u32) -> Result<Arc<File>, Error> {
    let disk = disk::scratch(settings, disk_mib(large_mib))?;
    let written = write_archive(&*disk, large_mib).and_then(|()| disk.sync_data());
    written.map_err(Error::file(&settings.cache.directory))?;
    Ok(disk)
}

/// Returns the bytes of such a disk.
///
/// # Errors
/// There is not enough memory.
pub fn archive_bytes(large_mib: u32) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    write_archive(&mut bytes, large_mib).map_err(Error::file("archive in memory"))?;
    // A disk has whole sectors.
    bytes.resize(bytes.len().next_multiple_of(PIECE), 0);
    Ok(bytes)
}

/// Returns a disk with an ext4 file system of the files.
///
/// # Errors
/// The tools of ext4 are missing or fail.
pub fn ext4_disk(settings: &Settings, large_mib: u32) -> Result<Arc<File>, Error> {
    let tree = tree(settings, large_mib)?;
    let path = tree.path().join("disk");
    let disk = File::create_new(&path).map_err(Error::file(&path))?;
    let length = u64::from(disk_mib(large_mib)) << 20;
    disk.set_len(length).map_err(Error::file(&path))?;
    // The same in each file system, as are all times.
    const ID: &str = "00000000-0000-4000-8000-000000000001";
    let seed = format!("hash_seed={ID},lazy_itable_init=0,nodiscard");
    let options = [
        "-q",
        "-F",
        "-b",
        "4096",
        "-O",
        "^has_journal",
        "-m",
        "0",
        "-U",
        ID,
        "-E",
        &seed,
    ];
    run(ext4_tool("mkfs.ext4")?.args(options).arg(&path), "")?;
    let mut commands = String::new();
    let mut directories = std::collections::BTreeSet::new();
    for file in Measured::all() {
        let file = file.path();
        let ancestors: Vec<_> = Path::new(file.as_str()).ancestors().skip(1).collect();
        for parent in ancestors
            .into_iter()
            .rev()
            .filter(|path| *path != Path::new(""))
        {
            if directories.insert(parent.to_owned()) {
                commands += &format!("mkdir \"/{}\"\n", parent.display());
            }
        }
        let source = tree.path().join(file.as_str());
        commands += &format!("write \"{}\" \"/{}\"\n", source.display(), file.as_str());
    }
    run(
        ext4_tool("debugfs")?.args(["-w", "-f", "-"]).arg(&path),
        &commands,
    )?;
    let opened = File::options().read(true).write(true).open(&path);
    let disk = opened.map_err(Error::file(&path))?;
    disk.sync_data().map_err(Error::file(&path))?;
    Ok(Arc::new(disk))
}

/// Returns the bytes of such a disk.
///
/// # Errors
/// See [`ext4_disk`].
pub fn ext4_bytes(settings: &Settings, large_mib: u32) -> Result<Vec<u8>, Error> {
    let disk = ext4_disk(settings, large_mib)?;
    let mut bytes = Vec::new();
    let read = (&*disk)
        .rewind()
        .and_then(|()| (&*disk).read_to_end(&mut bytes));
    read.map_err(Error::file("ext4 file system"))?;
    Ok(bytes)
}

/// Returns a command of a tool of ext4, which need not be in a user's `$PATH`, with a constant time.
fn ext4_tool(name: &str) -> Result<Command, Error> {
    let usual = ["/usr/sbin", "/sbin"].map(|directory| Path::new(directory).join(name));
    let found: Option<PathBuf> = find_program(name).or_else(|| {
        let mut usual = usual.into_iter();
        usual.find(|program| program.is_file())
    });
    let program = found.ok_or_else(|| {
        Error::missing(
            format!("{name} is not installed, which writes the file system of a Linux guest"),
            "sudo apt-get install --no-install-recommends e2fsprogs",
        )
    })?;
    let mut command = Command::new(program);
    command.env("E2FSPROGS_FAKE_TIME", "1");
    Ok(command)
}

/// Runs a tool with `input`. `debugfs` reports errors of its commands on standard error only.
fn run(command: &mut Command, input: &str) -> Result<(), Error> {
    let output = tool::output_with_input(command, input)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    // Its first line is its version.
    let mut lines = errors.lines().filter(|line| !line.is_empty());
    let failed = lines.find(|line| !line.starts_with("debugfs "));
    match (output.status.success(), failed) {
        (true, None) => Ok(()),
        (_, reason) => Err(Error::unavailable(format!(
            "cannot write an ext4 file system: {}: {}",
            command.get_program().display(),
            reason.unwrap_or("failed")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE_MIB: u32 = 1;

    fn expected(path: &str) -> Vec<u8> {
        let found = contents(LARGE_MIB).find(|(name, _)| name == path);
        found.expect("the file exists").1
    }

    #[test]
    fn directories_and_archives_have_the_content_of_all_files() {
        let directory = tempfile::tempdir().unwrap();
        write_tree(directory.path(), LARGE_MIB).unwrap();
        let bytes = archive_bytes(LARGE_MIB).unwrap();
        assert_eq!(bytes, archive_bytes(LARGE_MIB).unwrap());
        let mut count = 0;
        for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut archived = Vec::new();
            entry.read_to_end(&mut archived).unwrap();
            assert_eq!(archived, expected(&path), "{path}");
            assert_eq!(archived, fs::read(directory.path().join(&path)).unwrap());
            count += 1;
        }
        assert_eq!(count, Measured::all().count());
    }

    #[test]
    fn ext4_file_systems_are_equal_and_have_the_content() {
        let cache = tempfile::tempdir().unwrap();
        let mut settings = Settings::find().unwrap();
        settings.cache.directory = cache.path().to_owned();
        let one = match ext4_bytes(&settings, LARGE_MIB) {
            Err(Error::Unavailable(missing)) => {
                return trapline_skip::skip("file systems of ext4", &missing.reason)
            }
            bytes => bytes.unwrap(),
        };
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert!(one == ext4_bytes(&settings, LARGE_MIB).unwrap());
        let image = cache.path().join("image");
        fs::write(&image, &one).unwrap();
        let mut dump = ext4_tool("debugfs").unwrap();
        let dumped = tool::output(dump.args(["-R", "cat /64k/g1/f07"]).arg(&image)).unwrap();
        assert!(dumped.stdout == expected("64k/g1/f07"));
        assert_eq!(
            fs::read_dir(cache.path()).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }
}
