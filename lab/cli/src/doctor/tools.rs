//! Programs of others that Trapline uses, and its own parts, with versions.

use super::{Finding, Verdict};
use crate::parts;
use std::process::{Command, Stdio};

/// A program that something here uses.
struct Tool {
    program: &'static str,
    package: &'static str,
    /// What cannot be done without it.
    without: &'static str,
    verdict: Verdict,
}

const TOOLS: [Tool; 3] = [
    Tool {
        program: "qemu-system-x86_64",
        package: "qemu-system-x86",
        without: "neither QEMU's environments nor the simulated machine run",
        verdict: Verdict::Problem,
    },
    Tool {
        program: "dpkg-deb",
        package: "dpkg",
        without: "the simulated machine's Linux must be given with --kernel and --modules",
        verdict: Verdict::Note,
    },
    Tool {
        program: "perf",
        package: "linux-perf",
        without: "only what you look at yourself is missing (perf kvm stat)",
        verdict: Verdict::Note,
    },
];

/// Looks for every program and every part.
pub fn examine() -> Vec<Finding> {
    let tools = TOOLS
        .iter()
        .map(|tool| judge(tool, version_of(tool.program)));
    tools.chain([judge_parts(&parts::found())]).collect()
}

/// First line of what `program --version` prints; `None` where it cannot be run.
fn version_of(program: &str) -> Option<String> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .ok()?;
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
            finding.mend(format!(
                "sudo apt-get install --no-install-recommends {}",
                tool.package
            ))
        }
    }
}

/// `QEMU emulator version 7.2.22 (Debian 1:7.2)` is `qemu-system-x86_64 7.2.22`.
fn shorten(program: &str, line: &str) -> String {
    let numbered =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    match line.split_whitespace().find(numbered) {
        Some(version) => format!("{program} {}", version.trim_end_matches(['.', ','])),
        None => format!("{program} (version not told)"),
    }
}

fn judge_parts(found: &parts::Found) -> Finding {
    if found.missing.is_empty() {
        return Finding::ok("parts", format!("all in {}", found.directory.display()));
    }
    let missing = found.missing.join(", ");
    Finding::problem(
        "parts",
        format!("missing in {}: {missing}", found.directory.display()),
    )
    .mend("make build (or set TRAPLINE_PARTS to the directory that holds them)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_greetings() {
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
            ("", "p (version not told)"),
        ] {
            assert_eq!(shorten("p", line), version);
        }
    }

    #[test]
    fn a_missing_program_says_what_is_lost_and_how_to_get_it() {
        let finding = judge(&TOOLS[0], None);
        assert_eq!(finding.verdict, Verdict::Problem);
        assert!(finding
            .remedy
            .unwrap()
            .ends_with("install --no-install-recommends qemu-system-x86"));
        assert_eq!(version_of("trapline-no-such-program"), None);
    }
}
