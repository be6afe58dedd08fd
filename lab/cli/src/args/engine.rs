//! Engines, which execute the slices of a fleet.

use clap::Args;
use std::num::NonZero;
use std::str::FromStr;

/// The engine of a fleet, and its options.
#[derive(Args, Clone, Debug)]
pub struct EngineOptions {
    /// Engine: slurm, slurm:PARTITION, or local:N for N processes of this host
    #[arg(long = "on", value_name = "ENGINE", default_value = "local:1")]
    pub engine: Engine,
    /// Features that nodes of Slurm must have
    #[arg(long, value_name = "FEATURES")]
    pub constraint: Option<String>,
    /// Nodes of Slurm
    #[arg(long, value_name = "NODES")]
    pub hosts: Option<String>,
}

/// An engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// So many processes of this host.
    Local(NonZero<u8>),
    /// Slurm, with a partition.
    Slurm(Option<String>),
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        match (name, value) {
            ("slurm", None) => Ok(Self::Slurm(None)),
            ("slurm", Some(partition)) if !partition.is_empty() => {
                Ok(Self::Slurm(Some(partition.to_owned())))
            }
            ("local", None) => Ok(Self::Local(NonZero::<u8>::MIN)),
            ("local", Some(count)) => count.parse().map(Self::Local).map_err(|_| {
                "expected local:N with a number of processes from 1 to 255".to_owned()
            }),
            _ => Err("expected slurm, slurm:PARTITION or local:N".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_have_names() {
        let one = NonZero::<u8>::MIN;
        for (text, engine) in [
            ("slurm", Engine::Slurm(None)),
            ("slurm:lab", Engine::Slurm(Some("lab".to_owned()))),
            ("local", Engine::Local(one)),
            ("local:1", Engine::Local(one)),
        ] {
            assert_eq!(text.parse(), Ok(engine), "{text}");
        }
        for text in ["", "slurm:", "local:0", "local:x", "local:256", "ssh"] {
            assert!(text.parse::<Engine>().is_err(), "{text}");
        }
    }
}
