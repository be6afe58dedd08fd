//! `make docs`: records the output of the commands in the documentation, and renders the pages.
//!
//! Arguments: the pages; without any, all. A recording stays if its command prints the same, if an environment that it
//! names is missing here, or if its figures depend on the host and only they differ; `--wall` replaces these, too.
//! Commands of blocks that are marked `kept` run with `--kept` only. `--render` runs no command.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;
use tempfile::TempDir;
use trapline_tests::examples::{names, Example, Renewal};
use trapline_tests::recordings::{self, examples_of, Recording};
use trapline_tests::{parts, root};

/// Fact that names what a page was made with, and its name in a recording.
const VERSIONS: [(&str, &str); 3] = [("qemu", "qemu"), ("l1-kernel", "kernel"), ("cpu", "host")];

fn main() -> ExitCode {
    let (options, pages): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|word| word.starts_with("--"));
    let known = ["--wall", "--kept", "--render"];
    if let Some(unknown) = options.iter().find(|it| !known.contains(&it.as_str())) {
        eprintln!("docs: unknown option {unknown}\nhelp: {}", known.join(", "));
        return ExitCode::FAILURE;
    }
    let is_given = |name: &str| options.iter().any(|option| option == name);
    let is_recorded = !is_given("--render");
    let made = match is_recorded.then(versions).transpose() {
        Ok(made) => made.unwrap_or_default(),
        Err(reason) => {
            eprintln!("docs: {reason}");
            return ExitCode::FAILURE;
        }
    };
    let pages: Vec<PathBuf> = if pages.is_empty() {
        recordings::pages_with_examples()
    } else {
        pages.iter().map(|page| root().join(page)).collect()
    };
    let mut recorder = Recorder {
        made,
        replaces_wall: is_given("--wall"),
        replaces_kept: is_given("--kept"),
        problems: Vec::new(),
    };
    for page in pages {
        if is_recorded {
            recorder.record(&page);
        }
        recorder.render(&page);
    }
    for problem in &recorder.problems {
        eprintln!("docs: {problem}");
    }
    if recorder.problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Returns what determines the output of commands on this machine.
///
/// # Errors
/// It is not the machine of the documentation, whose figures are those of Debian 12.
fn versions() -> Result<BTreeMap<String, String>, String> {
    let shell = Shell::new();
    let baseline = root().join("baselines/debian-12/sim-kvm.json");
    let baseline = baseline.display();
    let check = shell.json(&format!(
        "trapline check --format json --baseline {baseline}"
    ));
    let check = check.ok_or("sim/kvm cannot be measured here\nhelp: trapline doctor")?;
    let list = |key: &str| check[key].as_array().cloned().unwrap_or_default();
    let is_same = list("figures").iter().all(|it| it["verdict"] == "same");
    let causes = list("causes");
    let cause = causes.iter().find(|cause| cause["around"] == true);
    if let Some(cause) = cause.filter(|_| !is_same) {
        return Err(format!(
            "the documentation is of another {}\nhelp: use the QEMU and the kernel of {baseline}",
            cause["fact"]
        ));
    }
    let run = "trapline run --env sim/kvm --workload basic/getpid --format json";
    let run = shell.json(run).ok_or("sim/kvm was not measured")?;
    let facts = &run["environments"]["sim/kvm"]["facts"];
    let versions = VERSIONS.map(|(fact, name)| (name, facts[fact].as_str().unwrap_or_default()));
    let parts = run["facts"]["parts"].as_str().unwrap_or_default();
    let date = Command::new("date").arg("-I").output();
    let date = date.map_err(|error| format!("date: {error}"))?.stdout;
    let date = String::from_utf8_lossy(&date);
    let all = [("date", date.trim()), ("parts", parts)]
        .into_iter()
        .chain(versions);
    Ok(all
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

struct Recorder {
    made: BTreeMap<String, String>,
    replaces_wall: bool,
    replaces_kept: bool,
    problems: Vec<String>,
}

impl Recorder {
    /// Runs the commands of a page in order, and writes their recordings.
    fn record(&mut self, page: &Path) {
        let old = recordings::read(page);
        let shell = Shell::new();
        println!("{}", page.display());
        let mut new = Vec::new();
        for example in examples_of(page) {
            let start = Instant::now();
            let kept = old.iter().find(|it| it.command == example.command);
            if example.renewal == Renewal::Kept && !self.replaces_kept {
                println!("       - , kept: {}", example.command);
                new.extend(kept.cloned());
                continue;
            }
            let output = shell.run(&example.command);
            let (recording, what) = self.judge(&example, &output, kept);
            println!(
                "{:6.1} s, {what}: {}",
                start.elapsed().as_secs_f64(),
                example.command
            );
            new.extend(recording);
        }
        recordings::write(page, &new);
    }

    /// Writes the recorded output into a page.
    fn render(&mut self, page: &Path) {
        match recordings::render(page, &recordings::read(page)) {
            Ok(text) => fs::write(page, text).expect("writable page"),
            Err(wrong) => self
                .problems
                .extend(wrong.iter().map(|it| format!("{}: {it}", page.display()))),
        }
    }

    /// Returns the recording of an example, and what was done. `kept` is the earlier one.
    fn judge(
        &mut self,
        example: &Example,
        output: &Output,
        kept: Option<&Recording>,
    ) -> (Option<Recording>, String) {
        let printed = String::from_utf8_lossy(&output.stdout);
        let printed: Vec<_> = printed
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        let fits = if example.output.is_empty() {
            output.status.success()
        } else {
            example.rendered(&printed).is_some()
        };
        if !fits {
            if let Some(reason) = missing_environment(&example.command) {
                return (kept.cloned(), format!("kept, {reason}"));
            }
        }
        if example.output.is_empty() {
            if !fits {
                self.problems
                    .push(format!("{} failed: {output:?}", example.command));
            }
            return (None, "not recorded".to_owned());
        }
        let is_kept = |kept: &&Recording| {
            let is_wall = example.renewal == Renewal::Wall;
            kept.output == printed || (is_wall && fits && !self.replaces_wall)
        };
        if let Some(kept) = kept.filter(is_kept) {
            return (Some(kept.clone()), "kept".to_owned());
        }
        let recording = Recording {
            command: example.command.clone(),
            made: self.made.clone(),
            output: printed,
        };
        (Some(recording), "recorded".to_owned())
    }
}

/// Returns an environment of the command, or of a plan that it names, that cannot be measured on this machine, with the
/// reason.
fn missing_environment(command: &str) -> Option<String> {
    let words = command.split_whitespace();
    let plans = words.filter_map(|word| fs::read_to_string(root().join(word)).ok());
    let text = [command.to_owned()]
        .into_iter()
        .chain(plans)
        .collect::<Vec<_>>()
        .join("\n");
    let list = Shell::new().json("trapline list --format json")?;
    let environments = list["environments"].as_array()?;
    let missing = environments.iter().find(|environment| {
        let name = environment["name"].as_str().unwrap_or_default();
        environment["ready"] == false && !name.ends_with("custom") && names(&text, name)
    })?;
    Some(format!("{}: {}", missing["name"], missing["reason"]))
}

/// Runs commands in a directory with the plans and baselines of the repository and a store of its own.
struct Shell {
    directory: TempDir,
}

impl Shell {
    fn new() -> Self {
        // The path of a VMM on the simulated machine is that of the host, and figures depend on it.
        let directory = TempDir::new_in("/tmp").expect("temporary directory");
        let link = |target: PathBuf, name: &str| {
            std::os::unix::fs::symlink(target, directory.path().join(name)).expect("new link");
        };
        link(root().join("plans"), "plans");
        link(root().join("baselines"), "baselines");
        fs::create_dir(directory.path().join("target")).expect("new directory");
        link(parts(), "target/dist");
        Self { directory }
    }

    fn run(&self, command: &str) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        let parts = self.directory.path().join("target/dist");
        Command::new("bash")
            .args(["-c", command])
            .current_dir(self.directory.path())
            .env("PATH", format!("{}:{path}", parts.display()))
            .env("XDG_DATA_HOME", self.directory.path())
            .env("COLUMNS", "80")
            .stdin(Stdio::null())
            .output()
            .expect("bash starts")
    }

    /// Returns the JSON that a command prints.
    fn json(&self, command: &str) -> Option<Value> {
        serde_json::from_slice(&self.run(command).stdout).ok()
    }
}
