//! Commands that repeat stored runs, for pasting into a shell.

use std::borrow::Cow;
use trapline_abi::{block, OpSet};
use trapline_model::{irq, names};

/// Returns the command of a run from its request.
pub fn command(request: &str) -> String {
    let options = options(request);
    if let ("check", Some(baseline)) = (options[0].0, value(&options, "baseline")) {
        return format!("trapline check --baseline {}", quoted(baseline));
    }
    let (is_baseline, options) = match options.as_slice() {
        [("baseline", ""), options @ ..] => (true, options),
        options => (false, options),
    };
    let Some(workloads) = value(options, "workload") else {
        let spaces = || request.split_whitespace().map(str::to_owned).collect();
        let words: Vec<String> = shlex::split(request).unwrap_or_else(spaces);
        let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        return format!("trapline {}", words.join(" "));
    };
    let set = names::operations(workloads).unwrap_or_default();
    let is_all_of = |family: OpSet| !set.is_empty() && set.is_subset(family);
    let (name, rename): (_, Rename) = match () {
        () if is_baseline => ("baseline", baseline_option),
        () if is_all_of(irq::operations()) => ("irq", irq_option),
        () if is_all_of(block::operations()) => ("block", block_option),
        () => ("run", run_option),
    };
    let options = options
        .iter()
        .filter_map(|(name, value)| rename(name, value));
    let words: Vec<String> = options.collect();
    format!("trapline {name} {}", words.join(" "))
}

/// Returns an option of the command, or nothing if it has none.
type Rename = fn(&str, &str) -> Option<String>;

fn options(request: &str) -> Vec<(&str, &str)> {
    let words = request.strip_prefix("--").unwrap_or(request).split(" --");
    words
        .map(|word| word.split_once(' ').unwrap_or((word, "")))
        .collect()
}

fn value<'a>(options: &[(&'a str, &'a str)], name: &str) -> Option<&'a str> {
    let found = options.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

fn option(name: &str, value: &str) -> Option<String> {
    let name = quoted(&format!("--{name}")).into_owned();
    Some(match value {
        "" => name,
        value => format!("{name} {}", quoted(value)),
    })
}

/// Quotes a word for a shell, if it needs that.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        shlex::Quoter::new()
            .allow_nul(true)
            .quote(word)
            .unwrap_or_default()
    }
}

/// Settings of interrupts and disks have no option here.
fn run_option(name: &str, value: &str) -> Option<String> {
    const OTHERS: [&str; 11] = [
        "between",
        "halt",
        "load",
        "period",
        "require",
        "samples",
        "threshold",
        "vcpus-per-cpu",
        "size",
        "requests",
        "policy",
    ];
    option(name, value).filter(|_| !OTHERS.contains(&name))
}

/// Boots and samples of baselines do not depend on a preset.
fn baseline_option(name: &str, value: &str) -> Option<String> {
    run_option(name, value).filter(|_| name != "preset")
}

fn irq_option(name: &str, value: &str) -> Option<String> {
    match (name, value) {
        ("workload", "irq/own-timer") => option("timer", "own"),
        ("workload", "irq/host-timer") => option("timer", "host"),
        ("between", "poll") => option("idle", "poll"),
        ("halt", "in-guest") => option("idle", "halt-in-guest"),
        ("workload" | "between" | "halt", _) => None,
        _ => option(name, value),
    }
}

fn block_option(name: &str, value: &str) -> Option<String> {
    match (name, value) {
        ("workload", "block") => None,
        ("workload", list) => option("op", &list.replace("block/", "")),
        _ => option(name, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;
    use trapline_model::{Config, EnvironmentId, Halt, Request, Scheduling};
    use trapline_runner::request_text::describe;

    fn request(operations: OpSet) -> Request {
        Request {
            configs: vec![Config::new(EnvironmentId::HOST)],
            operations,
            ..Request::default()
        }
    }

    fn assert_parses(request: &Request, start: &str) {
        let text = command(&describe(request));
        assert!(text.starts_with(start), "{text}");
        let parsed = Cli::try_parse_from(text.split(' '));
        assert!(parsed.is_ok(), "{text}: {:?}", parsed.err());
    }

    #[test]
    fn every_kind_of_run_is_repeated_by_its_command() {
        assert_parses(
            &request(names::operations("basic,irq").unwrap()),
            "trapline run --env host",
        );
        assert_parses(
            &request(block::operations()),
            "trapline block --env host --preset",
        );
        assert_parses(
            &request(irq::operations()),
            "trapline irq --env host --preset",
        );
        let halting = irq::Settings {
            scheduling: Scheduling {
                halt: Halt::InGuest,
                ..Scheduling::DEFAULT
            },
            ..irq::Settings::default()
        };
        let halting = Request {
            irq: halting,
            ..request(irq::operations())
        };
        assert!(command(&describe(&halting)).contains("--idle halt-in-guest"));
        assert_parses(&halting, "trapline irq");
    }

    /// A shell must take a pasted command as one command with these words.
    #[test]
    fn no_request_becomes_another_command() {
        let hostile = [
            ";touch x",
            "$(touch x)",
            "`touch x`",
            "&& x",
            "| x",
            "> x",
            "'",
            "\"",
            "\\",
            "\n x",
            "#",
            "*",
            "~",
            "!x",
            "\0",
        ];
        let places = [
            "--env {}",
            "--env sim{} --workload basic",
            "--env sim --workload basic --load {}",
            "--env sim --workload basic --{} 1",
            "--env sim --workload irq/own-timer --load {}",
            "--env sim --workload block --size {}",
            "kernel-build --env {}",
            "{}",
        ];
        for text in hostile {
            for place in places {
                let command = command(&place.replace("{}", text));
                let words = shlex::split(&command).expect("quotes are closed");
                let again = words.iter().map(|word| quoted(word)).collect::<Vec<_>>();
                assert_eq!(again.join(" "), command.trim_end());
            }
        }
    }

    #[test]
    fn baselines_and_checks_have_their_own_commands() {
        let of = |command: &str| {
            let request = Request {
                command: command.to_owned(),
                ..request(names::operations("exits/port-out").unwrap())
            };
            super::command(&describe(&request))
        };
        assert_eq!(
            of("check --baseline sim kvm.json"),
            "trapline check --baseline 'sim kvm.json'"
        );
        let baseline = of("baseline");
        assert!(
            baseline.starts_with("trapline baseline --env host "),
            "{baseline}"
        );
        assert!(!baseline.contains("--preset"), "{baseline}");
    }

    #[test]
    fn kernel_builds_have_a_command_of_their_own() {
        let text = "kernel-build --env host --size mini --cpus 1";
        assert_eq!(command(text), format!("trapline {text}"));
    }
}
