//! Arguments of `run`, and the options that all measuring commands share.

use super::pages::after_help;
use super::settings::GuestOptions;
use super::{environment_parser, workload_parser, Engine, EnvironmentOptions, Format, Preset};
use clap::Args;
use std::path::PathBuf;
use trapline_model::{slice, EnvironmentId, Overrides, Request, Slice, EXACT_BOOTS, LAYOUTS};
use trapline_runner::random_seed;

/// Arguments of `trapline run`.
#[derive(Args, Debug)]
#[command(after_help = after_help("run"))]
pub struct RunArgs {
    /// Plan file, in place of the options below; an unfinished run of it is resumed
    #[arg(value_name = "PLAN.toml", conflicts_with_all = ["environments", "workloads", "preset", "boots", "seed", "layouts"])]
    pub plan: Option<PathBuf>,
    /// Start another run of the plan even if one is unfinished
    #[arg(long, alias = "anew", requires = "plan", hide_short_help = true)]
    pub restart: bool,
    /// Environments to measure, as listed by `trapline list` [default: all]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser(), hide_possible_values = true)]
    pub environments: Vec<EnvironmentId>,
    /// Workloads or operations to measure, as listed by `trapline list` [default: all but memory, irq,
    /// populate, block, files, net, ipc and smp]
    #[arg(long = "workload", value_name = "W,W/OP", value_delimiter = ',', value_parser = workload_parser(), hide_possible_values = true)]
    pub workloads: Vec<String>,
    #[command(flatten)]
    pub size_options: SizeOptions,
    /// Slice of the boots to execute, such as 1/4 of four: other hosts or tasks execute the others, and `trapline store
    /// merge` unites them
    #[arg(long, value_name = "I/N", value_parser = clap::value_parser!(Slice), hide_short_help = true)]
    pub slice: Option<Slice>,
    /// Execute the plan on many machines: slurm, slurm:PARTITION, or local:N for N processes of this host (docs/fleet.md)
    #[arg(long = "on", value_name = "ENGINE", requires = "plan", conflicts_with_all = ["slice", "restart"], hide_short_help = true)]
    pub engine: Option<Engine>,
    /// Slices of the plan with --on [default: one for ten boots]
    #[arg(long, value_name = "N", requires = "engine", value_parser = clap::value_parser!(u32).range(1..=i64::from(slice::MOST)), hide_short_help = true)]
    pub slices: Option<u32>,
    #[command(flatten)]
    pub layout_options: LayoutOptions,
    #[command(flatten)]
    pub guest_options: GuestOptions,
    #[command(flatten)]
    pub output: OutputOptions,
    #[command(flatten)]
    pub environment_options: EnvironmentOptions,
    #[command(flatten)]
    pub run_options: RunOptions,
}

impl RunArgs {
    /// Returns the arguments with a plan and no option.
    pub fn of_plan(plan: &std::path::Path) -> Option<Self> {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            args: RunArgs,
        }
        let words = ["run".as_ref(), plan.as_os_str()];
        let alone = <Alone as clap::Parser>::try_parse_from(words).ok();
        alone.map(|alone| alone.args)
    }

    /// Returns the settings of all configurations.
    pub fn overrides(&self) -> Overrides {
        let mut overrides = self.environment_options.overrides();
        overrides.extend(&self.guest_options.0);
        overrides
    }
}

/// Form of a report.
#[derive(Args, Debug)]
pub struct OutputOptions {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Print all tables, with intervals, exits and CPU time, boot stages and what was not measured; other formats
    /// than the table have all
    #[arg(long)]
    pub all: bool,
    /// Add bar charts below the tables
    #[arg(long, conflicts_with = "format")]
    pub plot: bool,
}

impl OutputOptions {
    /// Returns whether the brief form is printed.
    pub fn is_brief(&self) -> bool {
        self.format == Format::Table && !self.all
    }
}

/// Layouts of the memory of simulated machines.
#[derive(Args, Debug)]
pub struct LayoutOptions {
    /// Layouts of simulated machines' memory in which exact figures are measured, to print their range
    /// (docs/clocks.md)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(LAYOUTS)),
          default_value_t = 1, hide_short_help = true)]
    pub layouts: u32,
}

/// Boots of environments on an exact clock.
#[derive(Args, Debug)]
pub struct ExactOptions {
    /// Boots per environment on an exact clock; further ones must reproduce the first [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100),
          env = "TRAPLINE_EXACT_BOOTS", hide_env_values = true, hide_short_help = true)]
    pub exact_boots: Option<u32>,
}

/// Number and order of boots.
#[derive(Args, Debug)]
pub struct SizeOptions {
    /// Boots, and samples per boot
    #[arg(long, value_enum, default_value_t = Preset::Quick)]
    pub preset: Preset,
    /// Boots per wall-clock environment [default: the preset's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub boots: Option<u32>,
    #[command(flatten)]
    pub exact_options: ExactOptions,
    /// Seed for order and resampling [default: random, recorded]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub seed: Option<u64>,
}

impl SizeOptions {
    /// Returns a request of this size without environments and operations.
    pub fn request(&self) -> Request {
        Request {
            preset: self.preset.into(),
            boots: self.boots,
            exact_boots: self.exact_options.exact_boots.unwrap_or(EXACT_BOOTS),
            seed: self.seed.unwrap_or_else(random_seed),
            ..Request::default()
        }
    }
}

/// Options of every stored run.
#[derive(Args, Debug)]
pub struct RunOptions {
    #[command(flatten)]
    pub store: StoreOptions,
    /// Time limit for one boot [default: a multiple of its usual time]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400), hide_short_help = true)]
    pub timeout: Option<u64>,
    /// Lost boots of an operation that are no failure
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub allow_lost: Option<usize>,
    /// Fact to store with the run; may be repeated
    #[arg(long = "fact", value_name = "NAME=VALUE", value_parser = fact, hide_short_help = true)]
    pub facts: Vec<(String, String)>,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// File of the store.
#[derive(Args, Debug)]
pub struct StoreOptions {
    /// File of raw samples [default: trapline/trapline.db in $XDG_DATA_HOME]
    #[arg(long = "store", value_name = "FILE", hide_short_help = true)]
    pub file: Option<PathBuf>,
}

fn fact(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let pair = pair.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pair.ok_or_else(|| "expected NAME=VALUE".to_owned())
}
