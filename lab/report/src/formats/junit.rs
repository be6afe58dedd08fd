//! JUnit XML: suites of cases that passed, were skipped, failed, or had an error.

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};
use std::time::Duration;

/// A group of cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite {
    /// Name of the suite.
    pub name: String,
    /// Properties: names and values.
    pub facts: Vec<(String, String)>,
    /// The cases.
    pub cases: Vec<Case>,
}

/// A test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Class, which services print before the name.
    pub class: String,
    /// Name, unique within the class.
    pub name: String,
    /// Outcome.
    pub outcome: Outcome,
    /// Time that the case takes, if it is a time.
    pub time: Option<Duration>,
    /// Standard output; may be empty.
    pub output: String,
}

/// Outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The case passed.
    Passed,
    /// The case was not run, or has no result.
    Skipped(Remark),
    /// The case failed.
    Failed(Remark),
    /// The case has an error instead of a result.
    Broken(Remark),
}

/// Reason why a case did not pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remark {
    /// Kind, for programs.
    pub kind: String,
    /// One line, for people.
    pub message: String,
    /// Further lines; may be empty.
    pub text: String,
}

/// The XML could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the result cannot be written as JUnit XML; choose another --format")]
pub struct JunitError(#[from] quick_junit::SerializeError);

/// Formats the non-empty suites as one report. Characters that XML cannot represent, and control characters,
/// are removed from all texts.
///
/// # Errors
/// The XML cannot be written.
pub fn junit(title: &str, suites: Vec<Suite>) -> Result<String, JunitError> {
    let mut report = Report::new(title);
    let with_cases = suites.into_iter().filter(|suite| !suite.cases.is_empty());
    report.add_test_suites(with_cases.map(of_suite));
    let times = report.test_suites.iter().filter_map(|suite| suite.time);
    report.set_time(times.sum());
    Ok(report.to_string()?)
}

fn of_suite(suite: Suite) -> TestSuite {
    let mut written = TestSuite::new(suite.name);
    let facts = suite.facts.into_iter();
    written.add_properties(facts.map(|(name, value)| Property::new(name, value)));
    let is_skipped = |case: &&Case| matches!(case.outcome, Outcome::Skipped(_));
    let skipped = suite.cases.iter().filter(is_skipped).count();
    // The attribute of Jenkins; the library writes only "disabled", that of older schemas.
    let skipped = skipped.to_string().as_str().into();
    written.extra.insert("skipped".into(), skipped);
    written.set_time(suite.cases.iter().filter_map(|case| case.time).sum());
    written.add_test_cases(suite.cases.into_iter().map(of_case));
    written
}

fn of_case(case: Case) -> TestCase {
    let mut written = TestCase::new(case.name, status(case.outcome));
    written.set_classname(case.class);
    // Services expect a time of every case.
    written.set_time(case.time.unwrap_or_default());
    if !case.output.is_empty() {
        written.set_system_out(case.output);
    }
    written
}

fn status(outcome: Outcome) -> TestCaseStatus {
    let (mut status, remark) = match outcome {
        Outcome::Passed => return TestCaseStatus::success(),
        Outcome::Skipped(remark) => (TestCaseStatus::skipped(), remark),
        Outcome::Failed(remark) => (TestCaseStatus::non_success(NonSuccessKind::Failure), remark),
        Outcome::Broken(remark) => (TestCaseStatus::non_success(NonSuccessKind::Error), remark),
    };
    status.set_type(remark.kind).set_message(remark.message);
    if !remark.text.is_empty() {
        status.set_description(remark.text);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use quick_xml::events::Event;
    use quick_xml::Reader;

    const HOSTILE: &str = "\u{1b}[31m</testcase>\"&<!-- ]]> \u{0}it's";

    fn case(name: &str, outcome: Outcome) -> Case {
        Case {
            class: "sim/kvm".to_owned(),
            name: name.to_owned(),
            outcome,
            time: Some(Duration::from_micros(26)),
            output: HOSTILE.to_owned(),
        }
    }

    fn hostile() -> Remark {
        Remark {
            kind: HOSTILE.to_owned(),
            message: HOSTILE.to_owned(),
            text: HOSTILE.to_owned(),
        }
    }

    /// Returns the names of all elements, in order.
    fn elements(xml: &str) -> Vec<String> {
        let mut reader = Reader::from_str(xml);
        let mut names = Vec::new();
        loop {
            match reader.read_event().unwrap() {
                Event::Eof => return names,
                Event::Start(tag) | Event::Empty(tag) => {
                    let name = String::from_utf8_lossy(tag.name().as_ref()).into_owned();
                    assert!(tag.attributes().all(|attribute| attribute.is_ok()));
                    names.push(name);
                }
                Event::Comment(_) | Event::CData(_) => panic!("a text became structure: {xml}"),
                _ => {}
            }
        }
    }

    #[test]
    fn foreign_text_is_escaped() {
        let cases = vec![
            case("passed", Outcome::Passed),
            case("skipped", Outcome::Skipped(hostile())),
            case("failed", Outcome::Failed(hostile())),
            case("broken", Outcome::Broken(hostile())),
        ];
        let suite = Suite {
            name: HOSTILE.to_owned(),
            facts: vec![(HOSTILE.to_owned(), HOSTILE.to_owned())],
            cases,
        };
        let xml = junit("a title", vec![suite, Suite::default()]).unwrap();
        let expected = "testsuites testsuite properties property testcase system-out \
                        testcase skipped system-out testcase failure system-out \
                        testcase error system-out";
        assert_eq!(elements(&xml).join(" "), expected, "{xml}");
        assert!(!xml.contains(['\u{1b}', '\u{0}']), "{xml}");
        assert!(
            xml.contains("tests=\"4\" failures=\"1\" errors=\"1\""),
            "{xml}"
        );
        assert!(xml.contains(" skipped=\"1\""), "{xml}");
        // Of the report, of its suite and of four cases.
        assert_eq!(xml.matches(" time=\"").count(), 6, "{xml}");
    }

    #[test]
    fn empty_parts_are_not_written() {
        let case = Case {
            output: String::new(),
            ..case("quiet", Outcome::Failed(Remark::default()))
        };
        let suite = Suite {
            cases: vec![case],
            ..Suite::default()
        };
        let xml = junit("a title", vec![suite]).unwrap();
        assert_eq!(
            elements(&xml).join(" "),
            "testsuites testsuite testcase failure"
        );
    }
}
