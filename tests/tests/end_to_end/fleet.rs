//! `trapline fleet`: processes and Slurm execute the slices of a plan, and kills lose none.

use serde_json::{json, Value};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trapline_tests::measurements::cells;
use trapline_tests::processes::{all_children, signal, wait_until};
use trapline_tests::run::{CommandOutput, Place};
use trapline_tests::skip;
use trapline_tests::slurm::Cluster;

/// Creates a fleet of a plan with exact figures only, and returns its directory.
fn create(place: &Place, boots: u32, slices: u32) -> String {
    let plan = place.path().join("plan.toml");
    let text = format!(
        "environments = ['sim']\nworkloads = ['basic/getpid', 'basic/yield']\nexact-boots = {boots}"
    );
    fs::write(&plan, text).expect("file can be written");
    let directory = place.path().join("fleet");
    let directory = directory.to_str().expect("path is UTF-8").to_owned();
    let plan = plan.to_str().expect("path is UTF-8");
    let slices = slices.to_string();
    let created = place.run(&["fleet", "create", &directory, plan, "--slices", &slices]);
    assert_eq!(created.status, Some(0), "{created:?}");
    directory
}

fn status(place: &Place, directory: &str) -> Value {
    place
        .run(&["fleet", "status", directory, "--format", "json"])
        .json()
}

fn missing(place: &Place, directory: &str) -> usize {
    let status = status(place, directory);
    status["missing"].as_array().map_or(usize::MAX, Vec::len)
}

fn collect(place: &Place, directory: &str, words: &[&str]) -> CommandOutput {
    let store = place.store();
    let store = store.to_str().expect("path is UTF-8");
    let fixed = ["fleet", "collect", directory, "--store", store];
    place.run(&[&fixed[..], words].concat())
}

/// Collects a fleet and checks that its figures are those of `boots` boots, as a serial run gives them.
#[track_caller]
fn assert_collected(place: &Place, directory: &str, boots: u32) -> Value {
    let run = collect(place, directory, &["--format", "json"]).json();
    let serial = place.measure(&[
        "-q",
        "--env",
        "sim",
        "--workload",
        "basic/getpid,basic/yield",
    ]);
    assert_eq!(cells(&run).len(), 2);
    for (cell, serial) in cells(&run).iter().zip(cells(&serial)) {
        assert_eq!(cell["boots"], boots, "{cell:#}");
        for key in ["operation", "estimate", "min", "max", "samples"] {
            assert_eq!(cell[key], serial[key], "{key}: {cell:#}");
        }
    }
    run
}

#[test]
fn slices_are_executed_and_collected() {
    let place = Place::new();
    let directory = create(&place, 8, 4);
    let early = collect(&place, &directory, &[]);
    assert_eq!(early.status, Some(1));
    assert!(
        early.stderr.contains("4 of 4 slices are not done"),
        "{early:?}"
    );
    let worked = place.run(&["fleet", "work", &directory, "2"]);
    assert_eq!(
        (worked.status, worked.stdout.as_str()),
        (Some(0), "slice 2: done\n")
    );
    let again = place.run(&["fleet", "work", &directory, "2"]);
    assert_eq!(
        (again.status, again.stdout.as_str()),
        (Some(0), "slice 2: was done before\n")
    );
    let beyond = place.run(&["fleet", "work", &directory, "5"]);
    assert!(
        beyond
            .stderr
            .contains("has no slice 5\n  help: its slices are 1 to 4"),
        "{beyond:?}"
    );
    let partial = collect(&place, &directory, &["--partial", "--format", "json"]);
    assert_eq!(cells(&partial.json())[0]["boots"], 2);
    let submitted = place.run(&["fleet", "submit", &directory, "--on", "local:2"]);
    assert_eq!(submitted.status, Some(0), "{submitted:?}");
    assert!(
        submitted.stderr.contains("4 of 4 slices, 1 host"),
        "{submitted:?}"
    );
    assert_collected(&place, &directory, 8);
}

#[test]
fn damaged_package_runs_nothing() {
    let place = Place::new();
    let directory = create(&place, 12, 6);
    let image = format!("{directory}/package/trapline-image");
    fs::write(&image, "no image").expect("file can be written");
    let submit = ["fleet", "submit", &directory, "--on", "local:1"];
    for words in [&submit[..], &["fleet", "work", &directory, "1"]] {
        let refused = place.run(words);
        assert_eq!(refused.status, Some(1), "{refused:?}");
        assert!(
            refused.stderr.contains("trapline-image is damaged"),
            "{refused:?}"
        );
    }
    let found = status(&place, &directory);
    assert_eq!(found["missing"].as_array().map(Vec::len), Some(6));
    assert_eq!(found["unfit_hosts"], json!([]), "{found:#}");
    // Nor is it tested: a test executes it.
    let mark = place.path().join("mark");
    let program = format!("#!/bin/sh\ntouch {}\n", mark.display());
    fs::write(format!("{directory}/package/trapline"), program).expect("file can be written");
    let refused = place.run(&["fleet", "work", &directory, "1"]);
    assert_eq!(
        (refused.status, mark.exists()),
        (Some(1), false),
        "{refused:?}"
    );
}

/// Changes what the fleet's self-test must print.
fn break_self_test(directory: &str) {
    let file = format!("{directory}/fleet.json");
    let text = fs::read_to_string(&file).expect("file exists");
    fs::write(&file, text.replace("6.0", "7.0")).expect("file can be written");
}

#[test]
fn broken_host_takes_two_slices_at_most() {
    let place = Place::new();
    let directory = create(&place, 12, 6);
    break_self_test(&directory);
    let submitted = place.run(&["fleet", "submit", &directory, "--on", "local:1"]);
    assert_eq!(submitted.status, Some(1), "{submitted:?}");
    assert!(
        submitted.stderr.contains("the self-test printed"),
        "{submitted:?}"
    );
    let found = status(&place, &directory);
    let attempts = found["attempts"].as_array().expect("list");
    assert_eq!(attempts.len(), 2, "{found:#}");
    assert!(
        attempts.iter().all(|it| it["is-unfit"] == json!(true)),
        "{found:#}"
    );
    assert_eq!(found["missing"].as_array().map(Vec::len), Some(6));
    assert_eq!(found["unfit_hosts"].as_array().map(Vec::len), Some(1));
    let text = place.run(&["fleet", "status", &directory]).stdout;
    assert!(text.contains("0 done, 2 failed, excluded\n"), "{text}");
}

/// A file in its place is no result of a slice.
#[test]
fn only_complete_stores_of_a_slice_are_results() {
    let place = Place::new();
    let directory = create(&place, 4, 2);
    let worked = place.run(&["fleet", "work", &directory, "1"]);
    assert_eq!(worked.status, Some(0), "{worked:?}");
    for text in ["garbage", ""] {
        fs::write(format!("{directory}/results/2.db"), text).expect("file can be written");
        let refused = collect(&place, &directory, &[]);
        assert_eq!(refused.status, Some(1), "{refused:?}");
        let help = "help: remove it, and submit again";
        assert!(
            refused.stderr.contains("results/2.db: ") && refused.stderr.contains(help),
            "{refused:?}"
        );
    }
    let first = format!("{directory}/results/1.db");
    fs::copy(first, format!("{directory}/results/2.db")).expect("file can be copied");
    let other = collect(&place, &directory, &[]);
    assert!(
        other
            .stderr
            .contains("2.db: its store is that of another slice"),
        "{other:?}"
    );
}

#[test]
fn engine_without_a_plan_or_with_options_of_this_host_is_refused() {
    let place = Place::new();
    let plan = place.path().join("plan.toml");
    fs::write(&plan, "environments = ['sim']").expect("file can be written");
    let plan = plan.to_str().expect("path is UTF-8");
    for (words, message) in [
        (
            &["run", "--on", "local:1", "--env", "sim"][..],
            "--on executes plans only",
        ),
        (
            &["run", plan, "--on", "local:1", "--fact", "team=x"],
            "have no effect on other machines",
        ),
        (
            &["run", plan, "--on", "local:1", "--timeout", "5"],
            "have no effect on other machines",
        ),
    ] {
        let refused = place.run(words);
        assert_eq!(refused.status, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(message), "{refused:?}");
    }
}

#[test]
fn plans_run_by_an_engine_end_in_the_store() {
    let place = Place::new();
    let plan = place.path().join("plan.toml");
    let text = "environments = ['sim']\nworkloads = ['basic/getpid']\nexact-boots = 4";
    fs::write(&plan, text).expect("file can be written");
    // One more than there are boots: it is done, and empty.
    let words = format!("{} --on local:2 --slices 5 --format json", plan.display());
    let run = place.run_storing("run", &words);
    assert_eq!(cells(&run.json())[0]["boots"], 4);
    let left = fs::read_dir(place.path().join("fleets")).expect("directory");
    assert_eq!(left.count(), 0, "the fleet is in the store");
    let wall = "environments = ['host']\nworkloads = ['basic/getpid']";
    fs::write(&plan, wall).expect("file can be written");
    let refused = place.run_storing("run", &words);
    assert_eq!(refused.status, Some(2));
    assert!(
        refused
            .stderr
            .contains("several processes of a host disturb"),
        "{refused:?}"
    );
}

/// A sequence of numbers that looks random.
fn pseudo_random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    *state >> 33
}

/// Kills of submitter or worker.
const KILLS: usize = 50;

#[test]
#[ignore = "slow: make test-all"]
fn kills_of_submitter_and_workers_lose_no_slice() {
    const BOOTS: u32 = 100;
    let place = Place::new();
    let directory = create(&place, BOOTS, 50);
    let mut random = 7;
    let mut kills = 0;
    while missing(&place, &directory) > 0 && kills < KILLS {
        let mut command = place.trapline(&["fleet", "submit", &directory, "--on", "local:2"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut submitter = command.spawn().expect("trapline starts");
        std::thread::sleep(Duration::from_millis(
            200 + pseudo_random(&mut random) % 1000,
        ));
        let workers = all_children(submitter.id());
        match workers
            .first()
            .filter(|_| pseudo_random(&mut random).is_multiple_of(2))
        {
            // SAFETY: a process of this test.
            Some(worker) => _ = unsafe { libc::kill(*worker, libc::SIGKILL) },
            None => signal(&submitter, libc::SIGKILL),
        }
        kills += 1;
        if workers.is_empty() {
            continue;
        }
        std::thread::sleep(Duration::from_millis(pseudo_random(&mut random) % 300));
        signal(&submitter, libc::SIGKILL);
        submitter.wait().expect("a child");
    }
    let rest = place.run(&["fleet", "submit", &directory, "--on", "local:2"]);
    assert_eq!(rest.status, Some(0), "{rest:?}");
    assert_collected(&place, &directory, BOOTS);
}

#[test]
#[ignore = "slow: make test-all"]
fn slurm_executes_all_slices_although_a_node_dies() {
    if let Some(reason) = Cluster::missing() {
        return skip("slices in Slurm", &reason);
    }
    let mut cluster = Cluster::start(17_600);
    let place = Place::new();
    let boots = 100;
    let directory = create(&place, boots, boots / 5);
    let slices = missing(&place, &directory);
    let begin = Instant::now();
    let mut command = place.trapline(&["fleet", "submit", &directory, "--on", "slurm"]);
    cluster.configured(&mut command);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let submitter = command.spawn().expect("trapline starts");
    let has_begun = || {
        let status = status(&place, &directory);
        let missing = status["missing"].as_array().map_or(slices, Vec::len);
        let mut attempts = status["attempts"].as_array().into_iter().flatten();
        let is_of_n2 = |it: &Value| it["label"] == "n2" && it["ended-at"].is_number();
        attempts.any(is_of_n2) && (slices - missing) * 4 >= slices
    };
    assert!(
        wait_until(Duration::from_secs(600), has_begun),
        "{}",
        cluster.logs()
    );
    cluster.kill("n2");
    let output = CommandOutput::from(submitter.wait_with_output().expect("a child"));
    assert_eq!(output.status, Some(0), "{output:?}\n{}", cluster.logs());
    let run = assert_collected(&place, &directory, boots);
    let hosts = run["hosts"].as_array().expect("list").len();
    assert_eq!(hosts, 3, "{:#}", run["hosts"]);
    println!(
        "{boots} boots in {slices} slices on 3 nodes, one of which died: {:.0} s",
        begin.elapsed().as_secs_f64()
    );
    let mut queue = cluster.command("squeue");
    let left = queue.args(["-h"]).output().expect("squeue runs");
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
    let running: Vec<_> = running_tasks(&directory);
    assert!(running.is_empty(), "{running:?}");
}

/// Returns the commands of processes that name the directory.
fn running_tasks(directory: &str) -> Vec<String> {
    let listed = Command::new("ps")
        .args(["-eo", "args"])
        .output()
        .expect("ps runs");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let lines = text.lines().filter(|line| line.contains(directory));
    lines.map(str::to_owned).collect()
}
