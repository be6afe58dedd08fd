//! The arguments of `compare`: who against whom.

use super::{workload_parser, Format, MannerArgs, Preset};
use clap::Args;
use std::str::FromStr;
use trapline_plan::{BadContender, Contender};

/// Of `trapline compare`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// Who is compared with: ENV[:SETTING=VALUE,...], measured now, or what the store has,
    /// RUN[/ENV[:SETTING=VALUE,...]]
    #[arg(value_name = "A", value_parser = Rival::from_str)]
    pub a: Rival,
    /// Who is compared: the same
    #[arg(value_name = "B", value_parser = Rival::from_str)]
    pub b: Rival,
    /// Workloads or single operations to measure, as `trapline list` names them [default: all
    /// but irq, populate and block]
    #[arg(long = "workload", value_name = "W,W/OP", value_delimiter = ',', value_parser = workload_parser(), hide_possible_values = true)]
    pub workloads: Vec<String>,
    /// How much to measure in a boot
    #[arg(long, value_enum, default_value_t = Preset::Quick)]
    pub preset: Preset,
    /// Blocks, each with a boot of both in random order, on the wall clock
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub boots: u32,
    /// What is too little to matter, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = percent)]
    pub margin: f64,
    /// How many in a hundred that are called changed may be not
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub alpha: f64,
    /// Seed of the order of boots and of resampling
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    #[command(flatten)]
    pub manner: MannerArgs,
}

const EXAMPLES: &str = "\
Settings: cpus, memory, pin, idle; and files in the place of the usual ones: image,
agent, vmm, qemu, kernel with modules. The same contender twice shows what chance does.

  trapline compare kvm qemu-kvm
  trapline compare kvm:vmm=old/trapline-vmm kvm --workload exits
  trapline compare sim/kvm sim/qemu-kvm --workload exits,boot
  trapline compare 12 15                the same environments of two runs
  trapline compare 12/kvm 12/qemu-kvm";

/// One of the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rival {
    /// To be measured.
    New(Contender),
    /// A run of the store: one of its contenders, or all that the other run has, too.
    Stored {
        /// Its number.
        run: u32,
        /// Which of its contenders.
        contender: Option<Contender>,
    },
}

impl FromStr for Rival {
    type Err = BadContender;

    fn from_str(text: &str) -> Result<Self, BadContender> {
        let (number, rest) = match text.split_once('/') {
            Some((number, rest)) => (number, Some(rest)),
            None => (text, None),
        };
        // No environment's name begins with a number alone.
        match number.parse() {
            Ok(run) => Ok(Self::Stored {
                run,
                contender: rest.map(str::parse).transpose()?,
            }),
            Err(_) => Ok(Self::New(text.parse()?)),
        }
    }
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    let text = text.strip_suffix('%').unwrap_or(text);
    let number = text.parse::<f64>().ok();
    number
        .filter(|number| (0.01..=50.0).contains(number))
        .ok_or_else(|| "a number from 0.01 to 50 is expected".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::{command, Command};
    use super::*;

    fn parsed(words: &[&str]) -> CompareArgs {
        let Command::Compare(args) = command("compare", words).unwrap() else {
            panic!("compare was parsed as another command");
        };
        args
    }

    #[test]
    fn rivals_are_environments_or_runs() {
        let args = parsed(&["kvm:memory=1G", "12/sim/kvm", "--margin", "5%"]);
        assert_eq!(args.a, Rival::New("kvm:memory=1024M".parse().unwrap()));
        let stored = Rival::Stored {
            run: 12,
            contender: Some("sim/kvm".parse().unwrap()),
        };
        assert_eq!(args.b, stored);
        assert_eq!(args.margin, 5.0);
        let whole = Rival::Stored {
            run: 3,
            contender: None,
        };
        assert_eq!(parsed(&["3", "4"]).a, whole);
    }

    #[test]
    fn what_is_no_rival_is_told_with_the_remedy() {
        let told = |words: &[&str]| command("compare", words).unwrap_err().to_string();
        assert!(told(&["qemu-kmv", "kvm"]).contains("did you mean 'qemu-kvm'"));
        assert!(told(&["kvm:cpu=2", "kvm"]).contains("choose from cpus, memory"));
        assert!(told(&["kvm", "host:memory=1G"]).contains("host has no setting 'memory'"));
        assert!(told(&["kvm", "kvm", "--margin", "0"]).contains("from 0.01 to 50"));
        assert!(told(&["kvm"]).contains("<B>"));
    }
}
