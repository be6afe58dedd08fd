//! Idle loop of the kernel of a Linux guest, as the lab configured it by options of the kernel (`--wake`).

use crate::drivers;
use std::fs;
use std::path::Path;
use trapline_workloads::Reason;

/// Driver and governors of idle CPUs (Linux, Documentation/admin-guide/pm/cpuidle.rst).
const CPUIDLE: &str = "/sys/devices/system/cpu/cpuidle";

/// Options with which the kernel was started.
const OPTIONS: &str = "/proc/cmdline";

/// Checks that the kernel polls before it halts. Loads its driver first, if that is a module.
///
/// # Errors
/// The kernel has no governor or driver for it.
pub fn check_haltpoll() -> Result<(), Reason> {
    drivers::prepare()
        .map_err(|_| "the guest's kernel rejects a module, such as cpuidle_haltpoll")?;
    check_in(Path::new(CPUIDLE))
}

fn check_in(directory: &Path) -> Result<(), Reason> {
    let words = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    let has = |file| {
        words(file)
            .split_ascii_whitespace()
            .any(|it| it == "haltpoll")
    };
    if !has("available_governors") {
        return Err(
            "the guest's kernel was built without CONFIG_CPU_IDLE_GOV_HALTPOLL: choose another with --kernel",
        );
    }
    if !has("current_driver") || !has("current_governor_ro") {
        return Err(
            "the guest's kernel does not use its driver and governor haltpoll: KVM is required",
        );
    }
    Ok(())
}

/// Checks that the kernel never halts a CPU.
///
/// # Errors
/// It was started without the option.
pub fn check_polling() -> Result<(), Reason> {
    let options = fs::read_to_string(OPTIONS).unwrap_or_default();
    let polls = options.split_ascii_whitespace().any(|it| it == "idle=poll");
    polls
        .then_some(())
        .ok_or("the guest's kernel was not started with idle=poll")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn haltpoll_is_checked_by_driver_and_governor() {
        let check = |files: [&str; 3]| {
            let directory = std::env::temp_dir().join(format!("cpuidle-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            let names = [
                "available_governors",
                "current_driver",
                "current_governor_ro",
            ];
            for (name, content) in names.iter().zip(files) {
                fs::write(directory.join(name), content).unwrap();
            }
            let checked = check_in(&directory);
            fs::remove_dir_all(&directory).unwrap();
            checked
        };
        assert_eq!(
            check(["menu haltpoll \n", "haltpoll\n", "haltpoll\n"]),
            Ok(())
        );
        let errors = [
            check(["ladder menu \n", "haltpoll\n", "menu\n"]),
            check(["ladder menu haltpoll \n", "none\n", "haltpoll\n"]),
            check(["ladder menu haltpoll \n", "haltpoll\n", "menu\n"]),
        ];
        expect![[r#"
            the guest's kernel was built without CONFIG_CPU_IDLE_GOV_HALTPOLL: choose another with --kernel
            the guest's kernel does not use its driver and governor haltpoll: KVM is required
            the guest's kernel does not use its driver and governor haltpoll: KVM is required"#]].assert_eq(&errors.map(|error| error.unwrap_err()).join("\n"));
    }
}
