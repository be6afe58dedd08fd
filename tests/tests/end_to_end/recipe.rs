//! The workflow of docs/ci.md and the action that it uses: their steps run in a repository that builds a VMM, here a
//! copy of ours.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use trapline_tests::run::Place;
use trapline_tests::{has_qemu, parts, root, skip};
use yaml_rust2::{Yaml, YamlLoader};

const SUBJECT: &str = "the workflow for a CI service";

/// A repository with a VMM, and the action checked out beside it.
struct Repository {
    place: Place,
    action: PathBuf,
}

impl Repository {
    fn new() -> Self {
        let place = Place::new();
        let action = place.path().join("action");
        fs::create_dir_all(action.join("target")).expect("new directory");
        fs::create_dir(place.path().join("ci")).expect("new directory");
        std::os::unix::fs::symlink(parts(), action.join("target/dist")).expect("new link");
        // Trapline was built before this test.
        fs::write(action.join("Makefile"), "build:\n\t@true\n").expect("new file");
        let vmm = parts().join("trapline-vmm");
        let makefile = format!("my-vmm:\n\tcp '{}' $@\n", vmm.display());
        fs::write(place.path().join("Makefile"), makefile).expect("new file");
        Self { place, action }
    }

    /// Runs a step as a CI service does: with bash, ending at the first failure.
    fn step(&self, steps: &Yaml, name: &str, variables: &[(&str, &str)]) -> Output {
        let mut steps = steps.as_vec().expect("list of steps").iter();
        let step = steps.find(|step| step["name"].as_str() == Some(name));
        let step = step.unwrap_or_else(|| panic!("no step {name}"));
        let mut command = Command::new("bash");
        command
            .args(["-e", "-c", step["run"].as_str().expect("script")])
            .envs(variables.iter().copied())
            .env("GITHUB_ACTION_PATH", &self.action)
            .env("GITHUB_STEP_SUMMARY", self.summary())
            .env("XDG_DATA_HOME", self.place.path())
            .env_remove("TRAPLINE_PARTS")
            .current_dir(self.place.path());
        command.output().expect("bash starts")
    }

    /// Runs the action's last step with its default inputs, this mode and this VMM.
    fn measure(&self, action: &Yaml, mode: &str, vmm: &str) -> Output {
        let default = |input: &str| action["inputs"][input]["default"].as_str();
        let variables = [
            ("VMM", vmm),
            ("MODE", mode),
            ("BASELINE", default("baseline").expect("default")),
            ("WORKLOAD", default("workload").expect("default")),
        ];
        self.step(&action["runs"]["steps"], "measure", &variables)
    }

    fn summary(&self) -> PathBuf {
        self.place.path().join("summary.md")
    }
}

fn yaml(text: &str) -> Yaml {
    YamlLoader::load_from_str(text).expect("YAML").remove(0)
}

/// Returns the workflow in docs/ci.md.
fn workflow() -> Yaml {
    let text = fs::read_to_string(root().join("docs/ci.md")).expect("readable page");
    let (_, rest) = text.split_once("```yaml\n").expect("workflow");
    yaml(rest.split_once("```").expect("end of the workflow").0)
}

#[track_caller]
fn assert_status(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
}

#[test]
#[ignore = "slow: measures and compares twice"]
fn ci_workflow_finds_the_change() {
    if !has_qemu(SUBJECT) {
        return;
    }
    let repository = Repository::new();
    let steps = &workflow()["jobs"]["figures"]["steps"];
    let action = yaml(&fs::read_to_string(root().join("action.yml")).expect("readable action"));
    let mut used = steps.as_vec().into_iter().flatten();
    let used = used.find(|step| step["with"]["vmm"].as_str().is_some());
    let inputs = &used.expect("step that uses the action")["with"];
    let known = action["inputs"].as_hash().expect("inputs");
    let mut names = inputs.as_hash().expect("inputs").keys();
    assert!(names.all(|name| known.contains_key(name)), "{inputs:?}");
    let vmm = inputs["vmm"].as_str().expect("command line");

    assert_status(&repository.step(steps, "build", &[]), 0);
    assert_status(&repository.step(&action["runs"]["steps"], "build", &[]), 0);
    let baseline = repository.measure(&action, "baseline", vmm);
    if baseline.status.code() == Some(4) {
        let reason = String::from_utf8_lossy(&baseline.stderr).into_owned();
        return skip(SUBJECT, reason.trim());
    }
    assert_status(&baseline, 0);
    let [new, stored] =
        ["figures.json", "ci/figures.json"].map(|at| repository.place.path().join(at));
    fs::rename(new, stored).expect("baseline");

    assert_status(&repository.measure(&action, "check", vmm), 0);
    let same = fs::read_to_string(repository.summary()).expect("summary");
    assert!(same.contains("same: "), "{same}");

    // A pull request that switches the filter off.
    let changed = format!("{vmm} --no-sandbox");
    assert_status(&repository.measure(&action, "check", &changed), 1);
    let summary = fs::read_to_string(repository.summary()).expect("summary");
    // Markdown has a backslash before each underscore.
    let change = summary[same.len()..].replace('\\', "");
    for text in ["exits/port-out", "__seccomp_filter"] {
        assert!(change.contains(text), "{text}: {change}");
    }
}
