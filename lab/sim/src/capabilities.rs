//! Checks that a QEMU can simulate the machine: some are built without TCG, some simulate a CPU without
//! SVM. The machine is created, queried and ended before it executes anything.

use crate::qemu::{Qemu, COUNTING, REMEDY};
use std::sync::Arc;
use trapline_host::probe::{Probe, ProbeOutput};
use trapline_host::Error;

/// Options of a paused machine with QMP on standard input.
const STANDING: &str =
    "-nodefaults -no-user-config -display none -smp 1 -m 16M -M microvm -S -qmp stdio";

/// QMP commands. The first device of a machine is its CPU.
const QUESTIONS: &str = r#"
{"execute": "qmp_capabilities"}
{"execute": "qom-get", "id": "svm",
 "arguments": {"path": "/machine/unattached/device[0]", "property": "svm"}}
{"execute": "quit"}
"#;

/// Checks that `qemu` can count instructions.
///
/// # Errors
/// It cannot; with the message of QEMU.
pub fn check_counting(qemu: &Qemu) -> Result<(), Error> {
    counting(qemu).map(drop)
}

/// Checks that `qemu` can run a Linux with KVM, too.
///
/// # Errors
/// See [`check_counting`], or its CPU has no SVM.
pub fn check_nesting(qemu: &Qemu) -> Result<(), Error> {
    let output = counting(qemu)?;
    // A QEMU that does not know the property may have SVM.
    if output.stdout.lines().any(is_no) {
        Err(Error::missing(
            format!(
                "the CPU that {} simulates has no SVM, and KVM does not load without",
                of(qemu)
            ),
            format!("use QEMU of the distribution ('sim' works with this one): {REMEDY}"),
        ))
    } else {
        Ok(())
    }
}

fn is_no(answer: &str) -> bool {
    let answer: Option<serde_json::Value> = serde_json::from_str(answer).ok();
    answer.is_some_and(|answer| answer["id"] == "svm" && answer["return"] == false)
}

/// Returns the answers of the counting machine.
fn counting(qemu: &Qemu) -> Result<Arc<ProbeOutput>, Error> {
    let options = STANDING.split_ascii_whitespace();
    let options: Vec<_> = options.chain(COUNTING.split_ascii_whitespace()).collect();
    let probe = Probe {
        input: QUESTIONS,
        ..Probe::new(&qemu.program, &options)
    };
    let output = probe.output()?;
    if output.success {
        return Ok(output);
    }
    Err(Error::missing(
        format!(
            "{} cannot be the machine that counts instructions ({})",
            of(qemu),
            output
                .stderr
                .lines()
                .next()
                .unwrap_or("without a message")
                .trim()
        ),
        format!("use QEMU of the distribution: {REMEDY}"),
    ))
}

fn of(qemu: &Qemu) -> String {
    format!("QEMU {} ({})", qemu.version, qemu.program.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn failing_qemu_is_named_with_a_remedy() {
        let qemu = |program: &str| Qemu {
            program: program.into(),
            version: "99".to_owned(),
        };
        let failing = check_counting(&qemu("/bin/false")).unwrap_err();
        let missing = check_nesting(&qemu("/nonexistent")).unwrap_err();
        expect![[r#"
            QEMU 99 (/bin/false) cannot be the machine that counts instructions (without a message): use QEMU of the distribution: sudo apt-get install --no-install-recommends qemu-system-x86
            cannot start /nonexistent: No such file or directory (os error 2)"#]].assert_eq(&format!("{failing}\n{missing}"));
    }

    #[test]
    fn only_an_explicit_false_means_no_svm() {
        assert!(is_no(r#"{"return": false, "id": "svm"}"#));
        for other in [
            r#"{"return": true, "id": "svm"}"#,
            r#"{"error": {"desc": "no such property"}, "id": "svm"}"#,
            r#"{"return": false}"#,
            "no JSON",
        ] {
            assert!(!is_no(other), "{other}");
        }
    }
}
