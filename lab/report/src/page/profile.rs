//! Call stacks of a profile as a tree, read from what `trapline explain` prints or from
//! folded stacks (`caller;callee count`, a line each).
//!
//! Both come from files, so everything about them is checked.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Instruction profile of an operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The operation and its environment.
    pub title: String,
    /// The call tree.
    pub(crate) root: Frame,
}

/// A function under its callers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Frame {
    /// Instructions executed in it and its callees.
    pub total: f64,
    /// Instructions executed in it alone.
    pub own: f64,
    pub callees: BTreeMap<String, Frame>,
}

/// A file that is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProfile {
    /// It is JSON, but nothing that `trapline explain` prints.
    #[error("no stacks in the JSON document: {0}")]
    Json(String),
    /// A line is no stack.
    #[error("line {0}: not a stack and its count")]
    Line(usize),
    /// There is nothing in it.
    #[error("no stacks")]
    Empty,
}

impl BadProfile {
    /// Returns the remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Line(_) => "write a stack and its count a line: `caller;callee 12`",
            Self::Json(_) | Self::Empty => {
                "make it with `trapline explain ENV WORKLOAD/OP --format json --flamegraph FILE.svg`"
            }
        }
    }
}

/// Most frames of a stack.
const DEEPEST: usize = 256;

#[derive(Deserialize)]
struct Explained {
    environment: String,
    operation: String,
    stacks: Vec<Stack>,
}

#[derive(Deserialize)]
struct Stack {
    frames: Vec<String>,
    insn: f64,
}

impl Profile {
    /// Reads the text of a file called `name`.
    ///
    /// # Errors
    /// It is no profile.
    pub fn parse(name: &str, text: &str) -> Result<Self, BadProfile> {
        let profile = if text.trim_start().starts_with('{') {
            Self::from_json(text)?
        } else {
            Self::from_folded(name, text)?
        };
        if profile.root.total > 0.0 {
            Ok(profile)
        } else {
            Err(BadProfile::Empty)
        }
    }

    fn from_json(text: &str) -> Result<Self, BadProfile> {
        let explained: Explained =
            serde_json::from_str(text).map_err(|error| BadProfile::Json(error.to_string()))?;
        let mut root = Frame::default();
        for stack in &explained.stacks {
            root.add(stack.frames.iter().map(String::as_str), stack.insn);
        }
        Ok(Self {
            title: format!("{} in {}", explained.operation, explained.environment),
            root,
        })
    }

    fn from_folded(name: &str, text: &str) -> Result<Self, BadProfile> {
        let mut root = Frame::default();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() {
                continue;
            }
            let parts = line.trim_end().rsplit_once(' ');
            let parts = parts.and_then(|(frames, count)| Some((frames, count.parse().ok()?)));
            let (frames, count) = parts.ok_or(BadProfile::Line(number))?;
            root.add(frames.split(';'), count);
        }
        Ok(Self {
            title: name.to_owned(),
            root,
        })
    }

    /// Returns the instructions executed in each function alone, most first.
    pub(crate) fn functions(&self) -> Vec<(String, f64)> {
        let mut all = BTreeMap::new();
        self.root.functions(&mut all);
        let mut all: Vec<(String, f64)> = all.into_iter().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }
}

impl Frame {
    fn add<'a>(&mut self, frames: impl Iterator<Item = &'a str>, insn: f64) {
        if !insn.is_finite() || insn <= 0.0 {
            return;
        }
        self.total += insn;
        let mut at = self;
        for frame in frames.take(DEEPEST) {
            at = at.callees.entry(frame.to_owned()).or_default();
            at.total += insn;
        }
        at.own += insn;
    }

    fn functions(&self, all: &mut BTreeMap<String, f64>) {
        for (name, callee) in &self.callees {
            *all.entry(name.clone()).or_default() += callee.own;
            callee.functions(all);
        }
    }

    /// Frames from here to the deepest.
    pub(crate) fn depth(&self) -> usize {
        let callees = self.callees.values().map(Frame::depth);
        callees.max().map_or(0, |deepest| deepest + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn both_formats_give_the_same_tree() {
        let folded = "kernel`a;kvm`b 30\nkernel`a 10\n\n";
        let json = r#"{"environment": "sim/kvm", "operation": "exits/port-out", "total": 40.0,
            "stacks": [{"frames": ["kernel`a", "kvm`b"], "insn": 30.0}, {"frames": ["kernel`a"], "insn": 10.0}]}"#;
        let folded = Profile::parse("port-out", folded).unwrap();
        let json = Profile::parse("profile.json", json).unwrap();
        assert_eq!(folded.root, json.root);
        assert_eq!(json.title, "exits/port-out in sim/kvm");
        assert_eq!((json.root.total, json.root.depth()), (40.0, 2));
        let functions = [("kvm`b".to_owned(), 30.0), ("kernel`a".to_owned(), 10.0)];
        assert_eq!(json.functions(), functions);
    }

    #[test]
    fn invalid_profiles_are_rejected() {
        let texts = ["a;b 3\na;c many\n", "", "a -3", "{\"total\": 3}", "{"];
        let errors = texts.map(|text| {
            let error = Profile::parse("file", text).unwrap_err();
            format!("{text:?} -> {error}\n  help: {}\n", error.remedy())
        });
        expect![[r#"
            "a;b 3\na;c many\n" -> line 2: not a stack and its count
              help: write a stack and its count a line: `caller;callee 12`
            "" -> no stacks
              help: make it with `trapline explain ENV WORKLOAD/OP --format json --flamegraph FILE.svg`
            "a -3" -> no stacks
              help: make it with `trapline explain ENV WORKLOAD/OP --format json --flamegraph FILE.svg`
            "{\"total\": 3}" -> no stacks in the JSON document: missing field `environment` at line 1 column 12
              help: make it with `trapline explain ENV WORKLOAD/OP --format json --flamegraph FILE.svg`
            "{" -> no stacks in the JSON document: EOF while parsing an object at line 1 column 1
              help: make it with `trapline explain ENV WORKLOAD/OP --format json --flamegraph FILE.svg`
        "#]].assert_eq(&errors.concat());
        let deep = format!("{} 1", vec!["f"; 100_000].join(";"));
        assert_eq!(Profile::parse("deep", &deep).unwrap().root.depth(), DEEPEST);
    }
}
