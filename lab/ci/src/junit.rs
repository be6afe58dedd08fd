//! JUnit XML: suites of cases that passed, were skipped, failed, or could not be judged.

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};

/// Cases that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite {
    /// What they have in common.
    pub name: String,
    /// What is known of it: names and values.
    pub facts: Vec<(String, String)>,
    /// The cases.
    pub cases: Vec<Case>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What services put before the name.
    pub class: String,
    /// With the class unique.
    pub name: String,
    /// What came of it.
    pub outcome: Outcome,
    /// What there is to be read of it: its output. Empty is none.
    pub told: String,
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Passed,
    /// It says nothing.
    Skipped(Remark),
    /// It is not as it should be.
    Failed(Remark),
    /// It could not be judged, though it should have been.
    Broken(Remark),
}

/// Why a case did not pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remark {
    /// Its kind, for programs.
    pub kind: String,
    /// In a line, for people.
    pub message: String,
    /// What else is to be said, in lines. Empty is nothing.
    pub text: String,
}

/// The XML could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the result cannot be written as JUnit XML; choose another --format")]
pub struct JunitError(#[from] quick_junit::SerializeError);

/// The suites that have a case as one report. What XML cannot hold, and what would command
/// a terminal, is left out of every text.
///
/// # Errors
/// The XML cannot be written.
pub fn junit(title: &str, suites: Vec<Suite>) -> Result<String, JunitError> {
    let mut report = Report::new(title);
    let with_cases = suites.into_iter().filter(|suite| !suite.cases.is_empty());
    report.add_test_suites(with_cases.map(of_suite));
    Ok(report.to_string()?)
}

fn of_suite(suite: Suite) -> TestSuite {
    let mut written = TestSuite::new(suite.name);
    let facts = suite.facts.into_iter();
    written.add_properties(facts.map(|(name, value)| Property::new(name, value)));
    written.add_test_cases(suite.cases.into_iter().map(of_case));
    written
}

fn of_case(case: Case) -> TestCase {
    let mut written = TestCase::new(case.name, status(case.outcome));
    written.set_classname(case.class);
    if !case.told.is_empty() {
        written.set_system_out(case.told);
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
            told: HOSTILE.to_owned(),
        }
    }

    fn hostile() -> Remark {
        Remark {
            kind: HOSTILE.to_owned(),
            message: HOSTILE.to_owned(),
            text: HOSTILE.to_owned(),
        }
    }

    /// The names of all elements, in order; everything is closed.
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
    fn what_guests_say_is_text_and_never_structure() {
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
    }

    #[test]
    fn what_is_not_there_is_not_written() {
        let case = Case {
            told: String::new(),
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
