//! `trapline bisect` in the repository of another VMM or of a kernel, which has no part of Trapline.

use super::{assert_names, can_search, Repository};
use std::path::Path;
use trapline_tests::run::CommandOutput;
use trapline_tests::{has_git, has_qemu, parts};

/// A VMM: the one in its first argument behind a filter of system calls with so many redundant instructions.
const VMM: &str = r#"
use std::os::unix::process::CommandExt;

const INSTRUCTIONS: usize = include!("instructions");

#[repr(C)]
#[derive(Clone, Copy)]
struct Statement {
    code: u16,
    jumps: [u8; 2],
    operand: u32,
}

#[repr(C)]
struct Filter {
    length: u16,
    statements: *const Statement,
}

extern "C" {
    fn prctl(option: i32, ...) -> i32;
}

fn main() {
    let statement = |code, operand| Statement { code, jumps: [0; 2], operand };
    // Loads the first argument, changes it, and allows every call.
    let mut all = vec![statement(0x20, 16)];
    all.resize(1 + INSTRUCTIONS, statement(0xa4, 0x5555_5555));
    all.push(statement(0x06, 0x7fff_0000));
    let filter = Filter { length: all.len() as u16, statements: all.as_ptr() };
    unsafe {
        assert_eq!(prctl(38, 1_usize, 0_usize, 0_usize, 0_usize), 0);
        assert_eq!(prctl(22, 2_usize, &filter, 0_usize, 0_usize), 0);
    }
    let mut words = std::env::args_os().skip(1);
    let vmm = words.next().expect("the path of a VMM");
    panic!("{}", std::process::Command::new(vmm).args(words).exec());
}
"#;

const BUILD: &str = "mkdir -p out && rustc --edition 2021 -o out/vmm vmm.rs";

impl Repository {
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("write succeeds");
    }

    /// Defines the VMM `tiny` in the user's configuration.
    fn define(&self, command: &str) {
        let directory = self.place.path().join("trapline");
        std::fs::create_dir(&directory).expect("path is unused");
        let text = format!("[vmm.tiny]\ncommand = '{command}'\n");
        std::fs::write(directory.join("config.toml"), text).expect("write succeeds");
    }

    /// Runs a search with `words` in the directory of the test, which is not the repository.
    fn bisect_vmm(&self, words: &[&str]) -> CommandOutput {
        let path = self.path();
        let fixed = ["bisect", "--repo", path.to_str().expect("text")];
        let mut command = self.place.trapline(&[&fixed[..], words].concat());
        let output = command.current_dir(self.place.path()).output();
        CommandOutput::from(output.expect("program starts"))
    }
}

fn command(vmm: &str) -> String {
    let part = parts().join("trapline-vmm");
    let options = "--image {image} --memory {memory}M --cmdline {cmdline}";
    format!("{vmm} {} {options}", part.display())
}

/// Thirty instructions more in the eighth of twelve commits, of which two do not build.
#[test]
#[ignore = "slow: make test-all"]
fn commit_that_slowed_a_vmm_down_is_found() {
    if !can_search("a search in another project's repository") {
        return;
    }
    let repository = Repository::empty();
    repository.define(&command("./out/vmm"));
    repository.write(".gitignore", "/out\n");
    for number in 0..12 {
        repository.write("instructions", ["0", "30"][usize::from(number >= 8)]);
        let is_broken = [5, 6].contains(&number);
        let text = format!(
            "// Version {number}\n{}{VMM}",
            ["", "?"][usize::from(is_broken)]
        );
        repository.write("vmm.rs", &text);
        repository.commit_all(number);
    }
    let words = ["--env", "sim/tiny", "--build", BUILD];
    let range = ["--good", "HEAD~11", "--bad", "HEAD"];
    let ended = repository.bisect_vmm(&[words, range].concat());
    assert_names(&ended, 8);
    assert!(ended.stdout.contains("\nskipped "), "{}", ended.stdout);
    let changed = "\nexits/port-out";
    let (_, after) = ended.stdout.split_once(changed).expect("port-out changed");
    let mut lines = after.lines();
    assert!(lines.next().expect("a line").contains("+30.000"), "{after}");
    let function = lines.next().expect("a function");
    assert!(function.trim().starts_with("+30.000  "), "{after}");
}

/// A program of that name in the caller's directory is not measured.
#[test]
fn vmm_that_no_commit_builds_is_reported() {
    if !has_qemu("a search for a VMM that no commit builds") {
        return;
    }
    if !has_git("a VMM that no commit builds") {
        return;
    }
    let repository = Repository::empty();
    repository.define(&command("./out/vmm"));
    for number in 0..2 {
        repository.write("README", &number.to_string());
        repository.commit_all(number);
    }
    put_program(&repository.place.path().join("out/vmm"));
    let command = command("./out/vmm");
    for chosen in [["--env", "sim/tiny"], ["--vmm", &command]] {
        let range = ["--good", "HEAD~1", "--bad", "HEAD", "--build", "true"];
        let ended = repository.bisect_vmm(&[&range[..], &chosen].concat());
        assert_eq!(ended.status, Some(4), "{ended:?}");
        let reason = "/tree/out/vmm is not an executable file";
        assert!(ended.stderr.contains(reason), "{}", ended.stderr);
    }
}

/// A kernel of that name in the caller's directory is not measured.
#[test]
fn kernel_that_no_commit_builds_is_reported() {
    if !can_search("a kernel that no commit builds") {
        return;
    }
    let repository = Repository::empty();
    for number in 0..2 {
        repository.write("README", &number.to_string());
        repository.commit_all(number);
    }
    put_program(&repository.place.path().join("out/vmlinuz-7"));
    let range = ["--good", "HEAD~1", "--bad", "HEAD", "--build", "mkdir out"];
    let kernel = ["--kernel", "out/vmlinuz-7", "--modules", "out"];
    let ended = repository.bisect_vmm(&[&range[..], &kernel].concat());
    assert_eq!(ended.status, Some(4), "{ended:?}");
    let reason = "/tree/out/vmlinuz-7: no such file";
    assert!(ended.stderr.contains(reason), "{}", ended.stderr);
}

fn put_program(path: &Path) {
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("path is unused");
    trapline_tests::write_program(path, std::fs::read("/bin/true").expect("a program"));
}
