//! Power-cycles of a Linux guest in trapline-vmm. A run ends by a power-off, by SIGKILL of the VMM
//! while the guest writes to a journalled disk, or by a power cut of the VMM's machine. Every record
//! that was flushed must exist at the next boot.
//!
//! The VMM runs on a QEMU machine without instruction counter, since KVM of the host may emulate
//! ring 0. The disk is a file of the host: a power cut discards the caches of the machine's kernel.

mod judge;
mod machine;
mod schedule;

pub use judge::{Judge, Sum};
pub use machine::Parts;
pub use schedule::{Cut, Plan};

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time limit of each run of a machine, and of its start.
const PATIENCE: Duration = Duration::from_secs(120);

/// Executes a plan with a new disk in `directory`, and calls `progress` with every line about a run.
///
/// # Errors
/// A file or program is missing, or a record is lost; with the last console lines.
pub fn run(
    parts: &Parts,
    plan: &Plan,
    directory: &Path,
    progress: &mut dyn FnMut(&Sum, &str),
) -> Result<Sum, String> {
    let disk = directory.join("disk");
    make(&disk)?;
    let mut judge = Judge::default();
    for part in plan.parts() {
        let patience = PATIENCE * (part.runs.len() as u32 + 1);
        let initrd = directory.join("initrd");
        std::fs::write(&initrd, parts.root(&part.runs)?).map_err(|error| error.to_string())?;
        let mut machine = parts.start(&initrd, &disk, patience)?;
        let end = judge.follow(&mut machine, part.cut, progress);
        machine.end();
        end?;
        check(&disk, part.cut)?;
    }
    Ok(judge.sum)
}

/// Bytes of the disk.
const DISK: u64 = 64 << 20;

/// The tools of ext4, in the Debian package e2fsprogs.
const MAKER: &str = "mkfs.ext4";
const CHECKER: &str = "e2fsck";

/// Returns whether both tools are installed.
pub fn has_tools() -> bool {
    [MAKER, CHECKER]
        .into_iter()
        .all(|tool| find(tool).is_some())
}

/// Returns the path of a tool, which may be outside of a user's $PATH.
fn find(tool: &str) -> Option<PathBuf> {
    let place = Path::new("/usr/sbin").join(tool);
    super::on_path(tool).or_else(|| place.is_file().then_some(place))
}

fn make(disk: &Path) -> Result<(), String> {
    let file = std::fs::File::create(disk).map_err(|error| error.to_string())?;
    file.set_len(DISK).map_err(|error| error.to_string())?;
    tool(MAKER, &["-q", "-F", "-E", "lazy_itable_init=0"], disk)
}

/// Checks the filesystem after replay of its journal, on a copy: the guest replays the journal itself.
fn check(disk: &Path, cut: Option<Cut>) -> Result<(), String> {
    let copy = disk.with_extension("copy");
    std::fs::copy(disk, &copy).map_err(|error| error.to_string())?;
    if cut.is_some() {
        tool(CHECKER, &["-E", "journal_only", "-p"], &copy)?;
    }
    tool(CHECKER, &["-f", "-n"], &copy)
}

fn tool(tool: &str, words: &[&str], disk: &Path) -> Result<(), String> {
    let missing = || format!("{tool} is not installed (package e2fsprogs)");
    let mut command = Command::new(find(tool).ok_or_else(missing)?);
    let ran = command.args(words).arg(disk).output();
    let ran = ran.map_err(|error| format!("{tool}: {error}"))?;
    // 1: e2fsck replayed the journal.
    let is_well = ran.status.success() || words.contains(&"-p") && ran.status.code() == Some(1);
    if is_well {
        Ok(())
    } else {
        Err(format!(
            "{tool} {}: {}{}",
            ran.status,
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr)
        ))
    }
}
