//! Programs that Trapline uses, with versions, and its own parts.

use super::{Finding, Verdict};
use crate::parts;
use std::path::Path;
use std::process::Command;
use trapline_environments::tool;

/// A program that Trapline uses.
struct Tool {
    program: &'static str,
    package: &'static str,
    /// Consequence if it is missing.
    without: &'static str,
    verdict: Verdict,
}

const TOOLS: [Tool; 3] = [
    Tool {
        program: "qemu-system-x86_64",
        package: "qemu-system-x86",
        without: "the environments of QEMU and of the simulated machine are unavailable",
        verdict: Verdict::Problem,
    },
    Tool {
        program: "dpkg-deb",
        package: "dpkg",
        without: "the simulated machine needs --kernel and --modules",
        verdict: Verdict::Note,
    },
    Tool {
        program: "perf",
        package: "linux-perf",
        without: "only needed for manual analysis (perf kvm stat)",
        verdict: Verdict::Note,
    },
];

/// Checks every program and every part.
pub fn examine() -> Vec<Finding> {
    let tools = TOOLS
        .iter()
        .map(|tool| judge(tool, version_of(tool.program)));
    tools.chain([judge_parts(&parts::directory())]).collect()
}

/// Returns the first line of `program --version`; `None` if it cannot be run.
fn version_of(program: &str) -> Option<String> {
    let output = tool::output(Command::new(program).arg("--version")).ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn judge(tool: &Tool, version: Option<String>) -> Finding {
    match version {
        Some(line) => Finding::ok("tool", shorten(tool.program, &line)),
        None => {
            let found = format!("{} not found: {}", tool.program, tool.without);
            let finding = match tool.verdict {
                Verdict::Problem => Finding::problem("tool", found),
                _ => Finding::note("tool", found),
            };
            finding.remedy(format!(
                "sudo apt-get install --no-install-recommends {}",
                tool.package
            ))
        }
    }
}

/// Returns `qemu-system-x86_64 7.2.22` for `QEMU emulator version 7.2.22 (Debian 1:7.2)`.
fn shorten(program: &str, line: &str) -> String {
    let numbered =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    match line.split_whitespace().find(numbered) {
        Some(version) => format!("{program} {}", version.trim_end_matches(['.', ','])),
        None => format!("{program} (unknown version)"),
    }
}

fn judge_parts(directory: &Path) -> Finding {
    let (missing, path) = (parts::missing(directory), directory.display());
    if missing.is_empty() {
        return Finding::ok("parts", format!("all in {path}"));
    }
    let missing = missing.join(", ");
    Finding::problem("parts", format!("missing in {path}: {missing}"))
        .remedy("make build (or set TRAPLINE_PARTS to their directory)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed() {
        for (line, version) in [
            (
                "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)",
                "p 7.2.22",
            ),
            (
                "Debian 'dpkg-deb' package archive backend version 1.21.22 (amd64).",
                "p 1.21.22",
            ),
            ("perf version 6.1.158", "p 6.1.158"),
            ("", "p (unknown version)"),
        ] {
            assert_eq!(shorten("p", line), version);
        }
    }

    #[test]
    fn a_missing_program_has_a_remedy() {
        let finding = judge(&TOOLS[0], None);
        assert_eq!(finding.verdict, Verdict::Problem);
        assert!(finding
            .remedy
            .unwrap()
            .ends_with("install --no-install-recommends qemu-system-x86"));
        assert_eq!(version_of("trapline-no-such-program"), None);
    }
}
