//! Arguments of `cache`, and the parser of sizes.

use super::PlainFormat;
use clap::{Args, Subcommand};

/// Arguments of `trapline cache`.
#[derive(Args, Debug)]
pub struct CacheArgs {
    /// Command
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// A command about the cache.
#[derive(Subcommand, Debug)]
pub enum CacheCommand {
    /// List entries, the most recently used first
    List {
        /// Output format
        #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
        format: PlainFormat,
    },
    /// Remove entries that can be created again, the least recently used first
    Prune {
        /// Stop when the rest takes at most this size
        #[arg(long, value_name = "SIZE", value_parser = size, default_value = "0")]
        to: u64,
        /// Remove kernels too: the next run downloads the newest, which changes figures
        #[arg(long, conflicts_with = "to")]
        all: bool,
    },
}

/// Parses a number of bytes, with suffix K, M, G or T for powers of 1,024.
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
    use trapline_environments::cache::DEFAULT_LIMIT;

    #[test]
    fn sizes_have_binary_suffixes() {
        assert_eq!(size("4G"), Ok(DEFAULT_LIMIT));
        for (text, bytes) in [("0", 0), ("7", 7), ("1k", 1024), ("3MiB", 3 << 20)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "4X", "1.5G", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
