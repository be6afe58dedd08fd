//! The arguments of `compare`: who against whom.

use super::{workload_parser, Format, MannerArgs, Preset};
use clap::Args;
use std::str::FromStr;
use std::time::Duration;
use trapline_model::{time, BadContender, Contender};

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
    /// Blocks, each with a boot of both in balanced order, on the wall clock [default: 10; with
    /// --until-sure 60 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub boots: Option<u32>,
    /// Go on with further blocks until every operation is settled or the time is over; the
    /// error rate is that of all looks together
    #[arg(long)]
    pub until_sure: bool,
    /// Measure both at the same time, each on a processor of its own, and let them change
    /// places from block to block; not for bandwidth, interrupts and disks
    #[arg(long)]
    pub duet: bool,
    /// Begin no block after so long
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time::from_text)]
    pub budget: Duration,
    /// What is too little to matter, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = percent)]
    pub margin: f64,
    /// How many in a hundred that are called changed may be not
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub alpha: f64,
    /// Seed of the order of boots and of resampling [default: random, recorded with the run;
    /// of stored runs that of B]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
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

/// Blocks if nobody says how many: the fewest of which the bootstrap is sound, and two.
const BLOCKS: u32 = 10;

/// The most blocks of a comparison that goes on until it is sure.
const MOST_BLOCKS: u32 = 60;

impl CompareArgs {
    /// The most blocks there may be.
    pub fn most_blocks(&self) -> u32 {
        let usual = if self.until_sure { MOST_BLOCKS } else { BLOCKS };
        self.boots.unwrap_or(usual)
    }

    /// Returns the numbers of blocks after which the boots are looked at. They are even where
    /// `--boots` is, so that at every look each side has gone first equally often.
    pub fn looks(&self) -> Vec<u32> {
        let most = self.most_blocks();
        let mut looks = Vec::new();
        let mut next = BLOCKS.min(most);
        while self.until_sure && next < most {
            looks.push(next);
            next = (next + (next / 2).max(1)).next_multiple_of(2);
        }
        looks.push(most);
        looks
    }
}

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
    fn looks_come_more_rarely_the_more_has_been_seen() {
        let looks = |words: &[&str]| parsed(&[&["kvm", "host"], words].concat()).looks();
        assert_eq!(looks(&[]), [10]);
        assert_eq!(looks(&["--boots", "3"]), [3]);
        assert_eq!(looks(&["--until-sure"]), [10, 16, 24, 36, 54, 60]);
        assert_eq!(looks(&["--until-sure", "--boots", "12"]), [10, 12]);
        assert_eq!(looks(&["--until-sure", "--boots", "4"]), [4]);
    }

    #[test]
    fn what_is_no_rival_is_told_with_the_remedy() {
        let told = |words: &[&str]| command("compare", words).unwrap_err().to_string();
        assert!(told(&["qemu-kmv", "kvm"]).contains("did you mean 'qemu-kvm'"));
        assert!(told(&["kvm:cpu=2", "kvm"]).contains("choose from cpus, memory"));
        assert!(told(&["kvm", "host:memory=1G"]).contains("host has no setting 'memory'"));
        assert!(told(&["kvm", "kvm", "--margin", "0"]).contains("from 0.01 to 50"));
        assert!(told(&["kvm", "kvm", "--budget", "soon"]).contains("like 90s"));
        assert!(told(&["kvm"]).contains("<B>"));
    }
}
