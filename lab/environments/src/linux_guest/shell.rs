//! Initramfs with a shell, for a Linux that has no root file system of its own: busybox of the distribution, which is
//! downloaded and not installed.

use std::path::{Path, PathBuf};
use trapline_host::cache::Kind;
use trapline_host::package::Package;
use trapline_host::{Cache, Error};
use trapline_sim::initramfs::Archive;

const PACKAGE: Package = Package {
    kind: Kind::Shell,
    names: &["busybox-static"],
    // Its program is in another directory in each release.
    program: "usr/share/doc/busybox-static/copyright",
    without: &[],
};

/// Places of the program in the package.
const PROGRAMS: [&str; 2] = ["bin/busybox", "usr/bin/busybox"];

/// First program of the guest. The machine ends with the shell.
const INIT: &str = "\
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
echo \"This shell is in memory: 'exit' powers the machine off.\"
sh
poweroff -f
";

/// Returns the bytes of the initramfs.
///
/// # Errors
/// The package is neither in the cache nor available for download.
pub fn shell_root(cache: &Cache) -> Result<Vec<u8>, Error> {
    let directory = PACKAGE.fetched(cache)?;
    let program = program_in(&directory)
        .ok_or_else(|| Error::unavailable(format!("{} has no busybox", directory.display())))?;
    let busybox = std::fs::read(&program).map_err(Error::file(&program))?;
    Ok(archive(busybox).bytes())
}

fn program_in(directory: &Path) -> Option<PathBuf> {
    let places = PROGRAMS.map(|place| directory.join(place));
    places.into_iter().find(|place| place.is_file())
}

fn archive(busybox: Vec<u8>) -> Archive {
    let mut archive = Archive::default();
    for directory in ["proc", "sys", "dev"] {
        archive.directory(directory);
    }
    archive.file("bin/busybox", busybox);
    archive.file("init", INIT.into());
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_a_program_that_its_first_program_starts() {
        let bytes = archive(b"the program".to_vec()).bytes();
        let text = String::from_utf8_lossy(&bytes);
        for word in [
            "bin/busybox",
            "the program",
            "init",
            "#!/bin/busybox sh",
            "dev",
        ] {
            assert!(text.contains(word), "{word}");
        }
    }

    #[test]
    fn the_program_is_found_in_both_releases() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(program_in(directory.path()), None);
        let usr = directory.path().join("usr/bin");
        std::fs::create_dir_all(&usr).unwrap();
        std::fs::write(usr.join("busybox"), "").unwrap();
        assert_eq!(program_in(directory.path()), Some(usr.join("busybox")));
    }
}
