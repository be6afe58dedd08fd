//! The arguments of `cache`, and sizes as people write them.

use super::PlainFormat;
use clap::{Args, Subcommand};
use trapline_environments::cache::DEFAULT_LIMIT;

/// Of `trapline cache`.
#[derive(Args, Debug)]
pub struct CacheArgs {
    /// What to do
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// What can be done with the cache.
#[derive(Subcommand, Debug)]
pub enum CacheCommand {
    /// List what is kept, the most recently used first
    List {
        /// How to print
        #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
        format: PlainFormat,
    },
    /// Remove what can be made again, the least recently used first
    Prune {
        /// Until it takes at most so much
        #[arg(long, value_name = "SIZE", value_parser = size, default_value = "0")]
        to: u64,
        /// Kernels too: the next run fetches the newest, and figures move with it
        #[arg(long, conflicts_with = "to")]
        all: bool,
    },
}

/// What machines are restored from.
#[derive(Args, Debug, Clone)]
pub struct SnapshotArgs {
    /// Boot simulated machines anew: neither use snapshots nor make any
    #[arg(long)]
    pub fresh: bool,
    /// Most room for snapshots, such as 500M or 4G; the least recently used gives way
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4G",
          env = "TRAPLINE_CACHE_LIMIT", hide_env_values = true)]
    pub cache_limit: u64,
}

impl Default for SnapshotArgs {
    fn default() -> Self {
        Self {
            fresh: false,
            cache_limit: DEFAULT_LIMIT,
        }
    }
}

/// A number of bytes, with K, M, G or T for powers of 1,024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: Option<u64> = digits.parse().ok();
    let suffix = text[digits.len()..].to_ascii_uppercase();
    let shift = match suffix.trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("write a size as 500M or 4G".to_owned()),
    };
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| "write a size as 500M or 4G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(size("4G"), Ok(DEFAULT_LIMIT));
        for (text, bytes) in [("0", 0), ("7", 7), ("1k", 1024), ("3MiB", 3 << 20)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "4X", "1.5G", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
