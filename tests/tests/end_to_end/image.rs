//! `make image`: the container image measures with what it contains.

use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use trapline_tests::{on_path, parts, root, skip};

const SUBJECT: &str = "the container image";

/// Runs a command and returns its standard output.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().expect("program starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the reason why this machine cannot build or unpack the image, if there is one.
fn missing() -> Option<&'static str> {
    // SAFETY: takes no argument and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let tools = ["mmdebstrap", "umoci", "dpkg-deb", "unshare"];
    match (
        is_root,
        tools.into_iter().all(|tool| on_path(tool).is_some()),
    ) {
        (false, _) => Some("unpacking needs root"),
        (_, false) => Some("mmdebstrap, umoci, dpkg-deb or unshare is not installed"),
        _ => None,
    }
}

/// Builds the image and unpacks its root file system into `directory`.
fn unpacked_image(directory: &Path) -> std::path::PathBuf {
    run(Command::new(root().join("scripts/dist.sh"))
        .arg(parts())
        .arg(directory));
    run(Command::new(root().join("scripts/image.sh")).arg(directory));
    let layout = directory.join("layout");
    std::fs::create_dir(&layout).expect("new directory");
    let version = env!("CARGO_PKG_VERSION");
    let archive = directory.join(format!("trapline-{version}.oci.tar"));
    run(Command::new("tar")
        .arg("-C")
        .arg(&layout)
        .arg("-xf")
        .arg(archive));
    let bundle = directory.join("bundle");
    let image = format!("{}:trapline:{version}", layout.display());
    run(Command::new("umoci")
        .args(["unpack", "--image", &image])
        .arg(&bundle));
    bundle.join("rootfs")
}

#[test]
#[ignore = "slow: make test-all"]
fn image_measures_without_the_host_files() {
    if let Some(reason) = missing() {
        return skip(SUBJECT, reason);
    }
    let directory = TempDir::new().expect("temporary directory");
    let rootfs = unpacked_image(directory.path());
    let csv = run(Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--mount-proc", "--root"])
        .arg(rootfs)
        .args([
            "env",
            "-i",
            "PATH=/usr/bin:/bin",
            "XDG_DATA_HOME=/data",
            "XDG_CACHE_HOME=/data/cache",
        ])
        .args([
            "trapline",
            "run",
            "--quiet",
            "--env",
            "sim",
            "--workload",
            "exits/port-out",
        ])
        .args(["--format", "csv"]));
    assert!(csv.contains("sim,exits,port-out,insn,insn,3,"), "{csv}");
}
