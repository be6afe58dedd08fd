//! `make dist`: the archive and the package contain everything that a measurement needs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;
use trapline_tests::{on_path, parts, root, skip};

/// Packs the built parts once and returns the file whose name ends with `suffix`.
fn packed(suffix: &str) -> Option<PathBuf> {
    static PACKED: OnceLock<TempDir> = OnceLock::new();
    let output = PACKED.get_or_init(|| {
        let output = TempDir::new().expect("temporary directory");
        let mut command = Command::new(root().join("scripts/dist.sh"));
        run(command.arg(parts()).arg(output.path()));
        output
    });
    let mut files = std::fs::read_dir(output).expect("file exists").flatten();
    files.find_map(|file| {
        let path = file.path();
        path.to_string_lossy().ends_with(suffix).then_some(path)
    })
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().expect("program starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Measures with the unpacked program in an empty environment.
#[track_caller]
fn assert_measures(prefix: &Path, home: &Path) {
    let mut command = Command::new(prefix.join("bin/trapline"));
    command
        .env_clear()
        .env("HOME", home)
        .args(["run", "-q", "--env", "host", "--workload", "basic/getpid"])
        .args(["--boots", "1", "--format", "csv"]);
    let csv = run(&mut command);
    assert!(csv.contains("getpid"), "{csv}");
    for file in [
        "share/man/man1/trapline.1.gz",
        "share/bash-completion/completions/trapline",
        "share/zsh/vendor-completions/_trapline",
        "share/fish/vendor_completions.d/trapline.fish",
        "share/doc/trapline/LICENSE-MIT",
        "share/doc/trapline/SECURITY.md",
        "share/doc/trapline/baselines/debian-12/sim-kvm.json",
        "share/doc/trapline/baselines/debian-13/sim-kvm.json",
        "share/doc/trapline/plans/kernels.toml",
        "share/doc/trapline/vmms/firecracker.toml",
        "lib/trapline/trapline-image",
        "lib/trapline/trapline-vmm",
    ] {
        assert!(prefix.join(file).is_file(), "no {file}");
    }
    assert_lists_crates(&prefix.join("share/doc/trapline/sbom.cdx.json"));
}

/// Checks that a list of crates has those of other authors, and neither ours nor those of tests.
#[track_caller]
fn assert_lists_crates(file: &Path) {
    let text = std::fs::read_to_string(file).expect("file exists");
    let list: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let crates = list["components"].as_array().expect("list");
    let named = |name: &str| crates.iter().find(|it| it["name"] == name);
    let clap = named("clap").expect("it is in the program");
    assert_eq!(clap["licenses"][0]["expression"], "MIT OR Apache-2.0");
    assert_eq!(
        clap["hashes"][0]["content"].as_str().map(str::len),
        Some(64)
    );
    assert!(named("trapline").is_none() && named("expect-test").is_none());
}

/// Two packings of the same parts are the same bytes.
#[test]
fn packing_is_reproducible() {
    let again = TempDir::new().expect("temporary directory");
    let mut command = Command::new(root().join("scripts/dist.sh"));
    run(command.arg(parts()).arg(again.path()));
    for file in std::fs::read_dir(again.path())
        .expect("directory exists")
        .flatten()
    {
        let name = file.file_name().to_string_lossy().into_owned();
        let first = std::fs::read(packed(&name).expect("packed twice")).expect("file exists");
        let second = std::fs::read(file.path()).expect("file exists");
        assert!(first == second, "{name} differs");
    }
}

#[test]
fn unpacked_archive_measures() {
    let place = TempDir::new().expect("temporary directory");
    let archive = packed(".tar.gz").expect("archive exists");
    let target = place.path().join("unpacked");
    std::fs::create_dir(&target).expect("path is unused");
    run(Command::new("tar")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(&target));
    let mut trees = std::fs::read_dir(&target).expect("file exists").flatten();
    let tree = trees.next().expect("archive has one directory").path();
    assert_measures(&tree, place.path());
}

#[test]
fn unpacked_debian_package_measures() {
    if on_path("dpkg-deb").is_none() {
        return skip("the Debian package", "dpkg-deb is not installed");
    }
    let place = TempDir::new().expect("temporary directory");
    let package = packed(".deb").expect("package exists");
    let target = place.path().join("unpacked");
    run(Command::new("dpkg-deb")
        .arg("-x")
        .arg(&package)
        .arg(&target));
    assert_measures(&target.join("usr"), place.path());
    let version = run(Command::new("dpkg-deb")
        .arg("-f")
        .arg(&package)
        .arg("Version"));
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
}
