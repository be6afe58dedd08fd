//! The recipe of docs/ci.md, as it stands there: its steps run in a repository that
//! builds a VMM, which here is a copy of ours.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use trapline_tests::run::Place;
use trapline_tests::{has_qemu, parts, root, skip};
use yaml_rust2::{Yaml, YamlLoader};

/// A repository with a VMM, and Trapline checked out in it.
struct Repository {
    place: Place,
    recipe: Yaml,
}

impl Repository {
    fn new() -> Self {
        let place = Place::new();
        let built = place.path().join("trapline/target");
        fs::create_dir_all(&built).expect("it is new");
        fs::create_dir(place.path().join("ci")).expect("it is new");
        std::os::unix::fs::symlink(parts(), built.join("dist")).expect("it is new");
        let vmm = parts().join("trapline-vmm");
        let makefile = format!("my-vmm:\n\tcp '{}' $@\n", vmm.display());
        fs::write(place.path().join("Makefile"), makefile).expect("it is new");
        // Building Trapline is what came before this test.
        let built = place.path().join("trapline/Makefile");
        fs::write(built, "build:\n\t@true\n").expect("it is new");
        Self {
            place,
            recipe: recipe(),
        }
    }

    /// Runs a step as a CI service does: with bash, ending at the first failure.
    fn step(&self, name: &str, vmm: &str) -> Output {
        let steps = self.recipe["jobs"]["figures"]["steps"].as_vec();
        let mut steps = steps.expect("a list of steps").iter();
        let step = steps.find(|step| step["name"].as_str() == Some(name));
        let step = step.unwrap_or_else(|| panic!("there is no step {name}"));
        let script = step["run"].as_str().expect("a script");
        let mut command = Command::new("bash");
        command.args(["-e", "-c", script]).env("VMM", vmm);
        command.env("GITHUB_STEP_SUMMARY", self.summary());
        command.env("XDG_DATA_HOME", self.place.path());
        command.env_remove("TRAPLINE_PARTS");
        command.current_dir(self.place.path());
        command.output().expect("bash starts")
    }

    fn vmm(&self) -> &str {
        self.recipe["env"]["VMM"].as_str().expect("a command")
    }

    fn summary(&self) -> PathBuf {
        self.place.path().join("summary.md")
    }
}

/// The workflow in docs/ci.md.
fn recipe() -> Yaml {
    let text = fs::read_to_string(root().join("docs/ci.md")).expect("it is there");
    let (_, rest) = text.split_once("```yaml\n").expect("a workflow");
    let (workflow, _) = rest.split_once("```").expect("its end");
    let mut documents = YamlLoader::load_from_str(workflow).expect("YAML");
    documents.remove(0)
}

#[track_caller]
fn assert_status(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
}

#[test]
fn ci_recipe_finds_the_change() {
    if !has_qemu("the recipe for a CI service") {
        return;
    }
    let repository = Repository::new();
    let vmm = repository.vmm().to_owned();
    assert_status(&repository.step("build", &vmm), 0);
    assert_status(&repository.step("build Trapline", &vmm), 0);
    let baseline = repository.step("baseline", &vmm);
    if baseline.status.code() == Some(4) {
        let why = String::from_utf8_lossy(&baseline.stderr).into_owned();
        return skip("the recipe for a CI service", why.trim());
    }
    assert_status(&baseline, 0);
    let [made, kept] =
        ["figures.json", "ci/figures.json"].map(|at| repository.place.path().join(at));
    fs::rename(made, kept).expect("the step has made it");

    assert_status(&repository.step("check", &vmm), 0);
    let same = fs::read_to_string(repository.summary()).expect("it was written");
    assert!(same.contains("same: "), "{same}");

    // A pull request that takes the filter off.
    let changed = format!("{vmm} --no-sandbox");
    assert_status(&repository.step("check", &changed), 1);
    let told = fs::read_to_string(repository.summary()).expect("it was written");
    // Markdown has a backslash before each underscore.
    let told = told[same.len()..].replace('\\', "");
    for words in ["exits/port-out", "__seccomp_filter"] {
        assert!(told.contains(words), "{words}: {told}");
    }
}
