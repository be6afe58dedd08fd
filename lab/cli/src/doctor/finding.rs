//! Findings and their output.

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::fmt::{self, Write};

/// Effect of a finding on figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No effect.
    Ok,
    /// Changes figures, or limits what can be measured.
    Note,
    /// Prevents measurements, or invalidates figures.
    Problem,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Subject.
    pub topic: &'static str,
    /// Effect on figures.
    pub verdict: Verdict,
    /// Description.
    pub found: String,
    /// Command that fixes it, or an instruction.
    pub remedy: Option<String>,
}

impl Finding {
    /// Creates a finding without effect.
    pub fn ok(topic: &'static str, found: impl Into<String>) -> Self {
        Self::new(topic, Verdict::Ok, found)
    }

    /// Creates a note.
    pub fn note(topic: &'static str, found: impl Into<String>) -> Self {
        Self::new(topic, Verdict::Note, found)
    }

    /// Creates a problem.
    pub fn problem(topic: &'static str, found: impl Into<String>) -> Self {
        Self::new(topic, Verdict::Problem, found)
    }

    fn new(topic: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self {
            topic,
            verdict,
            found: found.into(),
            remedy: None,
        }
    }

    /// Sets the remedy.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// Indentation of the text: width of verdict and topic.
const INDENT: &str = "                     ";

/// Formats one paragraph per finding, wrapped at `width` columns.
pub fn text(findings: &[Finding], width: usize) -> String {
    let mut out = String::new();
    for finding in findings {
        // Writing to a String cannot fail.
        let _ = print_one(finding, width, &mut out);
    }
    let count = |verdict| findings.iter().filter(|f| f.verdict == verdict).count();
    let (problems, notes) = (count(Verdict::Problem), count(Verdict::Note));
    let plural = |n| if n == 1 { "" } else { "s" };
    let _ = writeln!(
        out,
        "\n{problems} problem{}, {notes} note{}, {} ok",
        plural(problems),
        plural(notes),
        count(Verdict::Ok)
    );
    out
}

fn print_one(finding: &Finding, width: usize, out: &mut String) -> fmt::Result {
    let (word, color) = match finding.verdict {
        Verdict::Ok => ("ok", AnsiColor::Green),
        Verdict::Note => ("note", AnsiColor::Yellow),
        Verdict::Problem => ("problem", AnsiColor::Red),
    };
    let style = Style::new().fg_color(Some(color.into()));
    let lines = wrap(&finding.found, "", width);
    write!(out, "{style}{word:<8}{style:#} {:<11} ", finding.topic)?;
    writeln!(out, "{}", lines.join(&format!("\n{INDENT}")))?;
    if let Some(remedy) = &finding.remedy {
        let lines = wrap(&format!("help: {remedy}"), "      ", width);
        writeln!(out, "{INDENT}{}", lines.join(&format!("\n{INDENT}")))?;
    }
    Ok(())
}

fn wrap(text: &str, hanging: &str, width: usize) -> Vec<String> {
    let room = width.saturating_sub(INDENT.len()).max(20);
    let options = textwrap::Options::new(room)
        .subsequent_indent(hanging)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    let lines = textwrap::wrap(text, options).into_iter();
    lines.map(|line| line.into_owned()).collect()
}

/// Returns all findings as one JSON object.
pub fn to_json(findings: &[Finding]) -> serde_json::Value {
    serde_json::json!({ "trapline": env!("CARGO_PKG_VERSION"), "findings": findings })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn printed(findings: &[Finding]) -> String {
        anstream::adapter::strip_str(&text(findings, 80)).to_string()
    }

    #[test]
    fn findings_keep_to_eighty_columns() {
        let long = "word ".repeat(20);
        let text = printed(&[
            Finding::ok("cpu", long.clone()),
            Finding::problem("kvm", "gone").remedy(long),
        ]);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        expect![[r#"
            ok       cpu         word word word word word word word word word word word word
                                 word word word word word word word word
            problem  kvm         gone
                                 help: word word word word word word word word word word
                                       word word word word word word word word word word

            1 problem, 0 notes, 1 ok
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn json_has_every_field() {
        let json = to_json(&[Finding::note("smt", "on").remedy("off")]);
        let expected = serde_json::json!(
            [{"topic": "smt", "verdict": "note", "found": "on", "remedy": "off"}]
        );
        assert_eq!(json["findings"], expected);
    }
}
