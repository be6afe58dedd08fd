//! Functions that differ between two environments, as `trapline explain A B WORKLOAD/OP --format json` prints
//! them.

use serde::Deserialize;

/// Functions that differ in one operation, the largest difference first.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    operation: String,
    environments: [String; 2],
    pub(crate) functions: Vec<FunctionChange>,
}

/// Instructions per operation of a function.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct FunctionChange {
    pub component: String,
    pub function: String,
    pub before: f64,
    pub after: f64,
}

/// A file without differences of functions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no differences of functions: {0}")]
pub struct BadChanges(String);

impl BadChanges {
    /// The remedy.
    pub const REMEDY: &'static str =
        "make it with `trapline explain A B WORKLOAD/OP --format json`";
}

/// One operation, or a workload.
#[derive(Deserialize)]
#[serde(untagged, expecting = "neither an operation nor a workload")]
enum Explained {
    Workload { ledgers: Vec<Difference> },
    Operation(Difference),
}

#[derive(Deserialize)]
struct Difference {
    before: Side,
    after: Side,
    changes: Vec<FunctionChange>,
}

#[derive(Deserialize)]
struct Side {
    environment: String,
    operation: String,
}

impl Changes {
    /// Parses the output for one operation, or for a workload.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(text: &str) -> Result<Vec<Self>, BadChanges> {
        let explained = serde_json::from_str(text);
        let all = match explained.map_err(|error| BadChanges(error.to_string()))? {
            Explained::Workload { ledgers } => ledgers,
            Explained::Operation(one) => vec![one],
        };
        let changes = all.into_iter().map(|one| Self {
            operation: one.before.operation,
            environments: [one.before.environment, one.after.environment],
            functions: one.changes,
        });
        Ok(changes.collect())
    }

    /// Returns operation and environments.
    pub(crate) fn title(&self) -> String {
        let [before, after] = &self.environments;
        format!("{}, {before} and {after}", self.operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    const ONE: &str = r#"{"before": {"environment": "sim/kvm", "operation": "exits/port-out"},
        "after": {"environment": "sim/qemu-kvm", "operation": "exits/port-out"}, "difference": 2.0,
        "changes": [{"component": "kvm", "function": "f", "before": 1.0, "after": 3.0, "difference": 2.0}]}"#;

    #[test]
    fn operations_and_workloads_are_parsed() {
        let one = Changes::parse(ONE).unwrap();
        assert_eq!(one[0].title(), "exits/port-out, sim/kvm and sim/qemu-kvm");
        assert_eq!(one[0].functions[0].after, 3.0);
        let two = Changes::parse(&format!(r#"{{"ledgers": [{ONE}, {ONE}]}}"#)).unwrap();
        assert_eq!(two.len(), 2);
        assert_eq!(two[1], one[0]);
    }

    #[test]
    fn other_files_are_rejected() {
        let error = |text: &&str| Changes::parse(text).unwrap_err().to_string();
        let errors = ["", r#"{"functions": []}"#].each_ref().map(error);
        expect![[r#"
            no differences of functions: EOF while parsing a value at line 1 column 0
            no differences of functions: neither an operation nor a workload"#]]
        .assert_eq(&errors.join("\n"));
    }
}
