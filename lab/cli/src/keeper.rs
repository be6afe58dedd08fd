//! Which process adds to a run: written into the store, so that another one that finds the
//! run unfinished knows whether it was left.

use std::fs;

/// This process, so that no other one is called the same: the boot of the kernel, its
/// number, and when it began (proc_pid_stat(5), field 22).
pub fn myself() -> String {
    describe(std::process::id()).unwrap_or_default()
}

/// Whether the process that was described so still runs.
pub fn is_there(keeper: &str) -> bool {
    let number = keeper.split(' ').nth(1).and_then(|word| word.parse().ok());
    number.and_then(describe).as_deref() == Some(keeper)
}

fn describe(process: u32) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name, in brackets, may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let began = fields.split_whitespace().nth(19)?;
    Some(format!("{} {process} {began}", boot.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_there_until_it_ends() {
        assert!(is_there(&myself()));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let keeper = describe(child.id()).unwrap();
        assert!(is_there(&keeper));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_there(&keeper));
        for nobody in ["", "x", "boot 1 0", "other 1"] {
            assert!(!is_there(nobody), "{nobody}");
        }
    }
}
