//! Arguments of `compare`.

use super::pages::after_help;
use super::{workload_parser, EnvironmentOptions, Format, Preset, RunOptions};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use trapline_model::kernel_build::Column;
use trapline_model::{time, Config, InvalidConfig};

/// Arguments of `trapline compare`.
#[derive(Args, Debug)]
#[command(after_help = after_help("compare"))]
pub struct CompareArgs {
    /// Baseline: ENV[:SETTING=VALUE,...] to measure now, or stored runs
    /// RUN[,RUN...][/ENV[:SETTING=VALUE,...]]
    #[arg(value_name = "A", value_parser = Side::from_str)]
    pub a: Side,
    /// Candidate, same syntax
    #[arg(value_name = "B", value_parser = Side::from_str)]
    pub b: Side,
    /// Workloads or operations to measure, as listed by `trapline list` [default: all but memory, irq,
    /// populate, block, files, net, ipc and smp]
    #[arg(long = "workload", value_name = "W,W/OP", value_delimiter = ',', value_parser = workload_parser(), hide_possible_values = true)]
    pub workloads: Vec<String>,
    /// Samples per boot
    #[arg(long, value_enum, default_value_t = Preset::Quick)]
    pub preset: Preset,
    /// Blocks on the wall clock, each with one boot of both sides in balanced order [default: 10; at most
    /// 60 with --sequential]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub boots: Option<u32>,
    /// Add blocks until every operation has a verdict; keeps the error rate over all looks
    #[arg(long, alias = "until-sure")]
    pub sequential: bool,
    /// Measure both at once, one per CPU, swapping CPUs each block (not for stream, memory, irq, populate, block, net)
    #[arg(long, alias = "duet")]
    pub concurrent: bool,
    /// Start no block after this time
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time::positive_from_text, hide_short_help = true)]
    pub budget: Duration,
    /// Largest difference reported as "equivalent"
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = percent, hide_short_help = true)]
    pub margin: f64,
    /// False discovery rate of "changed"
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent, hide_short_help = true)]
    pub alpha: f64,
    /// Seed for order and resampling [default: random, recorded; of stored runs that of B]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub seed: Option<u64>,
    /// Compare stored runs of other hosts or presets, too; each difference is named
    #[arg(long)]
    pub anyway: bool,
    /// Exit with status 1 if an operation changed, or changed for the worse
    #[arg(long, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Also write a page with the verdicts, and the distributions of both sides on common axes
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    /// Add the functions that changed to the page: output of `trapline explain A B W/OP --format json`
    #[arg(long = "profile", value_name = "FILE", num_args = 1.., requires = "html", hide_short_help = true)]
    pub profiles: Vec<PathBuf>,
    #[command(flatten)]
    pub environment_options: EnvironmentOptions,
    #[command(flatten)]
    pub run_options: RunOptions,
}

/// A change that is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Any change
    Changed,
    /// More time, or a lower rate
    Worse,
}

/// Default number of blocks: two more than the bootstrap needs.
const BLOCKS: u32 = 10;

/// Default limit of blocks with `--sequential`.
const MOST_BLOCKS: u32 = 60;

impl CompareArgs {
    /// Returns the largest number of blocks.
    pub fn most_blocks(&self) -> u32 {
        let usual = if self.sequential { MOST_BLOCKS } else { BLOCKS };
        self.boots.unwrap_or(usual)
    }

    /// Returns the numbers of blocks after which verdicts are computed. They are even if `--boots` is, so
    /// that at every look each side has started first equally often.
    pub fn looks(&self) -> Vec<u32> {
        let most = self.most_blocks();
        let mut looks = Vec::new();
        let mut next = BLOCKS.min(most);
        while self.sequential && next < most {
            looks.push(next);
            next = (next + (next / 2).max(1)).next_multiple_of(2);
        }
        looks.push(most);
        looks
    }
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// Measured now.
    New(Config),
    /// Stored runs that repeat each other: one of their configs, or all that both sides have.
    Stored {
        /// Numbers of the runs, at least one.
        runs: Vec<u32>,
        /// The config.
        config: Option<Config>,
    },
}

impl FromStr for Side {
    type Err = InvalidConfig;

    fn from_str(text: &str) -> Result<Self, InvalidConfig> {
        let (numbers, rest) = match text.split_once('/') {
            Some((numbers, rest)) => (numbers, Some(rest)),
            None => (text, None),
        };
        // No name of an environment starts with a component that is a number.
        let runs: Result<Vec<u32>, _> = numbers.split(',').map(str::parse).collect();
        match runs {
            Ok(runs) => Ok(Self::Stored {
                runs,
                config: rest.map(stored).transpose()?,
            }),
            Err(_) => Ok(Self::New(text.parse()?)),
        }
    }
}

/// Parses a configuration of a stored run, which may be one of kernel builds or packets.
fn stored(text: &str) -> Result<Config, InvalidConfig> {
    text.parse().or_else(|error| {
        let recorded = Config::from_recorded(text).filter(|config| {
            Column::of(config).is_some() || config.environment.forwarder().is_some()
        });
        recorded.ok_or(error)
    })
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    let text = text.strip_suffix('%').unwrap_or(text);
    let number = text.parse::<f64>().ok();
    number
        .filter(|number| (0.01..=50.0).contains(number))
        .ok_or_else(|| "expected a number from 0.01 to 50".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::{command, Command};
    use super::*;
    use expect_test::expect;

    fn parsed(words: &[&str]) -> CompareArgs {
        let Command::Compare(args) = command("compare", words).unwrap() else {
            panic!("compare was parsed as another command");
        };
        args
    }

    #[test]
    fn sides_are_environments_or_runs() {
        let args = parsed(&["kvm:memory=1G", "12/sim/kvm", "--margin", "5%"]);
        assert_eq!(args.a, Side::New("kvm:memory=1024M".parse().unwrap()));
        let stored = Side::Stored {
            runs: vec![12],
            config: Some("sim/kvm".parse().unwrap()),
        };
        assert_eq!(args.b, stored);
        assert_eq!(args.margin, 5.0);
        let args = parsed(&["12/net/switch", "12/host:jobs=2,place=same"]);
        let names = [args.a, args.b].map(|side| match side {
            Side::Stored { config, .. } => config.map(|config| config.to_string()),
            Side::New(_) => None,
        });
        let expected = ["net/switch", "host:jobs=2,place=same"];
        assert_eq!(names, expected.map(|name| Some(name.to_owned())));
        let whole = |runs: &[u32]| Side::Stored {
            runs: runs.to_vec(),
            config: None,
        };
        let args = parsed(&["3", "4,7"]);
        assert_eq!((args.a, args.b), (whole(&[3]), whole(&[4, 7])));
    }

    #[test]
    fn intervals_between_looks_grow() {
        let looks = |words: &[&str]| parsed(&[&["kvm", "host"], words].concat()).looks();
        assert_eq!(looks(&[]), [10]);
        assert_eq!(looks(&["--boots", "3"]), [3]);
        assert_eq!(looks(&["--sequential"]), [10, 16, 24, 36, 54, 60]);
        assert_eq!(looks(&["--sequential", "--boots", "12"]), [10, 12]);
        assert_eq!(looks(&["--sequential", "--boots", "4"]), [4]);
        assert_eq!(looks(&["--until-sure", "--boots", "12"]), [10, 12]);
    }

    #[test]
    fn invalid_sides_are_rejected_with_a_remedy() {
        let message = |words: &str| {
            let words: Vec<_> = words.split(' ').collect();
            let error = command("compare", &words).unwrap_err().to_string();
            error.lines().next().unwrap_or_default().to_owned()
        };
        let sides = [
            "qemu-kmv kvm",
            "kvm:cpu=2 kvm",
            "kvm host:memory=1G",
            "kvm kvm --margin 0",
            "kvm kvm --budget soon",
            "kvm kvm --budget 0s",
        ];
        expect![[r#"
            error: invalid value 'qemu-kmv' for '<A>': unknown environment 'qemu-kmv'; did you mean 'qemu-kvm'?
            error: invalid value 'kvm:cpu=2' for '<A>': unknown setting: cpu: choose from cpus, guests, memory, pages, crossing, spaces, switch, batching, state, paging, thp, cgroup, mitigations, layout, wake, path, peer, zeroing, isolation, file-mib, pin, competitor, idle, sched, cap, weight, jobs, place, ring, queues, image, agent, vmm, nova, qemu, kernel, modules
            error: invalid value 'host:memory=1G' for '<B>': setting 'memory' is not supported by host, as nothing is virtualized there: leave it out, or choose from kvm, process, qemu-kvm, qemu-tcg, custom, kvm/linux, qemu-kvm/linux, qemu-tcg/linux, uml, sim/kvm, sim/kvm-user-apic, sim/process, sim/qemu-kvm, sim/qemu-kvm-pc, sim/kvm/linux, sim/qemu-kvm/linux, sim/kvm/kvm, sim/kvm/kvm/kvm, sim/xen-pvh, sim/xen-hvm, sim/xen/trapline, sim/kvm/xen-pvh, sim/kvm/xen-hvm, sim/custom, sim-vmx/kvm, sim-vmx/qemu-kvm, sim-vmx/xen-pvh, sim-vmx/xen/trapline
            error: invalid value '0' for '--margin <PERCENT>': expected a number from 0.01 to 50
            error: invalid value 'soon' for '--budget <TIME>': expected a time above zero, like 90s, 20m or 2h
            error: invalid value '0s' for '--budget <TIME>': expected a time above zero, like 90s, 20m or 2h"#]].assert_eq(&sides.map(message).join("\n"));
        let missing = command("compare", &["kvm"]).unwrap_err().to_string();
        assert!(missing.contains("<B>"), "{missing}");
    }
}
