//! Whether a QEMU can be the simulated machine. What it says of itself decides, not
//! its version: some are built without TCG, some simulate a CPU without SVM. The
//! machine is made, asked, and ended before it has executed anything.

use crate::error::EnvError;
use crate::qemu::{Qemu, COUNTING, REMEDY};
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

/// A machine that stands still and is spoken to over standard input.
const STANDING: &str =
    "-nodefaults -no-user-config -display none -smp 1 -m 16M -M microvm -S -qmp stdio";

/// What it is told. The first device of a machine is its CPU.
const QUESTIONS: &str = r#"
{"execute": "qmp_capabilities"}
{"execute": "qom-get", "id": "svm",
 "arguments": {"path": "/machine/unattached/device[0]", "property": "svm"}}
{"execute": "quit"}
"#;

/// Whether `qemu` can count instructions.
///
/// # Errors
/// It cannot, in its own words and with the remedy.
pub fn check_counting(qemu: &Qemu) -> Result<(), EnvError> {
    counting(qemu).map(drop)
}

/// Whether `qemu` can also run a Linux that runs guests.
///
/// # Errors
/// As [`check_counting`], or its CPU has no SVM.
pub fn check_nesting(qemu: &Qemu) -> Result<(), EnvError> {
    let answers = counting(qemu)?;
    // One that does not understand the question may have it.
    match answers.lines().any(is_no) {
        false => Ok(()),
        true => Err(EnvError::Missing(format!(
            "the CPU that {} simulates has no SVM, and KVM does not load without; use QEMU as \
             the distribution builds it: {REMEDY} ('sim' works with this one)",
            of(qemu)
        ))),
    }
}

fn is_no(answer: &str) -> bool {
    let answer: Option<serde_json::Value> = serde_json::from_str(answer).ok();
    answer.is_some_and(|answer| answer["id"] == "svm" && answer["return"] == false)
}

/// What a machine that counts answers.
fn counting(qemu: &Qemu) -> Result<String, EnvError> {
    let output = ask(qemu).map_err(|source| EnvError::Start {
        program: qemu.program.clone(),
        source,
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(EnvError::Missing(format!(
        "{} cannot be the machine that counts instructions ({}); use QEMU as the distribution \
         builds it: {REMEDY}",
        of(qemu),
        words.lines().next().unwrap_or("it does not say why").trim()
    )))
}

fn of(qemu: &Qemu) -> String {
    format!("QEMU {} ({})", qemu.version, qemu.program.display())
}

fn ask(qemu: &Qemu) -> io::Result<Output> {
    let mut child = Command::new(&qemu.program)
        .args(STANDING.split_ascii_whitespace())
        .args(COUNTING.split_ascii_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Who has ended already hears nothing, and says so by its status.
        let _ = stdin.write_all(QUESTIONS.as_bytes());
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_ends_or_does_not_start_is_named_with_the_remedy() {
        let qemu = |program: &str| Qemu {
            program: program.into(),
            version: "99".to_owned(),
        };
        let error = check_counting(&qemu("/bin/false")).unwrap_err().to_string();
        assert!(error.starts_with("QEMU 99 (/bin/false) cannot"), "{error}");
        assert!(error.contains("it does not say why"), "{error}");
        assert!(error.ends_with(REMEDY), "{error}");
        let error = check_nesting(&qemu("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
    }

    #[test]
    fn only_a_clear_no_is_one() {
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
