//! Arguments of `block`.

use super::cache::size;
use super::pages::after_help;
use super::{environment_parser, EnvironmentOptions, Format, RunOptions, SizeOptions};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::Args;
use std::path::PathBuf;
use trapline_abi::block::{operations, Transfer};
use trapline_abi::{Op, OpSet};
use trapline_model::block::Settings;
use trapline_model::EnvironmentId;

/// Arguments of `trapline block`.
#[derive(Args, Debug)]
#[command(after_help = after_help("block"))]
pub struct BlockArgs {
    /// Environments to measure [default: host]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser(), hide_possible_values = true)]
    pub environments: Vec<EnvironmentId>,
    /// Operations to measure [default: all]
    #[arg(long = "op", value_name = "A,B", value_delimiter = ',', value_parser = op_parser())]
    pub chosen: Vec<Op>,
    /// Size of the file, from 1M to 1T [default: 256M; where instructions are counted 16M]
    #[arg(long, value_name = "SIZE", value_parser = mib)]
    pub size: Option<u32>,
    /// New file on the disk to measure, removed afterwards [default: one in the cache's directory]
    #[arg(long = "file", value_name = "PATH")]
    pub disk: Option<PathBuf>,
    /// Number of 4 KiB requests at depth 32; other operations have fewer [default: 32768; where
    /// instructions are counted 2048]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub requests: Option<u32>,
    #[command(flatten)]
    pub size_options: SizeOptions,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    #[command(flatten)]
    pub environment_options: EnvironmentOptions,
    #[command(flatten)]
    pub run_options: RunOptions,
}

impl BlockArgs {
    /// Returns the operations to measure, and those that are named.
    pub fn operations(&self) -> (OpSet, OpSet) {
        match self.chosen.as_slice() {
            [] => (operations(), OpSet::EMPTY),
            chosen => {
                let named = OpSet::of(chosen);
                (named, named)
            }
        }
    }

    /// Returns the environments to measure.
    pub fn environments(&self) -> Vec<EnvironmentId> {
        match self.environments.as_slice() {
            [] => vec![EnvironmentId::HOST],
            chosen => chosen.to_vec(),
        }
    }

    /// Returns the size and the number of requests.
    pub fn settings(&self) -> Settings {
        Settings {
            mib: self.size,
            requests: self.requests,
        }
    }
}

fn op_parser() -> impl TypedValueParser<Value = Op> {
    let names = Transfer::ALL.map(|transfer| transfer.op.name());
    PossibleValuesParser::new(names).map(|name| {
        let mut all = Transfer::ALL.into_iter().map(|transfer| transfer.op);
        all.find(|op| op.name() == name)
            .expect("the name was checked")
    })
}

/// Parses a size in whole MiB.
fn mib(text: &str) -> Result<u32, String> {
    const REFUSED: &str = "expected whole MiB from 1M to 1T, such as 256M";
    let bytes = size(text)?;
    let mib = u32::try_from(bytes >> 20).ok();
    let whole = mib.filter(|mib| (1..=1 << 20).contains(mib) && bytes & 0xf_ffff == 0);
    whole.ok_or_else(|| REFUSED.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::{command, Command};
    use super::*;

    fn parsed(words: &[&str]) -> Result<BlockArgs, clap::Error> {
        match command("block", words)? {
            Command::Block(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sizes_are_whole_mebibytes() {
        assert_eq!(parsed(&[]).unwrap().settings(), Settings::default());
        assert_eq!(
            parsed(&["--size", "2G"]).unwrap().settings().mib,
            Some(2048)
        );
        for bad in ["0", "4K", "1048577", "2T", "much"] {
            assert!(parsed(&["--size", bad]).is_err(), "{bad}");
        }
        for bad in ["0", "2000000"] {
            assert!(parsed(&["--requests", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn requests_are_chosen_by_name() {
        assert_eq!(
            parsed(&[]).unwrap().operations(),
            (operations(), OpSet::EMPTY)
        );
        let two = parsed(&["--op", "read-4k-1,write-4k-sync"]).unwrap();
        let set = Op::Read4k1 | Op::Write4kSync;
        assert_eq!(two.operations(), (set, set));
        assert!(parsed(&["--op", "read-8k-1"]).is_err());
    }
}
