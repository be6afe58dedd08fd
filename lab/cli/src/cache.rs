//! `trapline cache`: lists and prunes cached kernels and snapshots.

use crate::args::{CacheArgs, CacheCommand, PlainFormat};
use crate::failure::Failure;
use crate::terminal;
use indicatif::HumanBytes;
use serde_json::json;
use std::fmt::Write;
use trapline_environments::cache::Entry;
use trapline_environments::{Cache, EnvError, Settings};
use trapline_model::time;

/// Lists or prunes the cache.
///
/// # Errors
/// It cannot be read, or an entry cannot be removed.
pub fn cache(args: &CacheArgs) -> Result<(), Failure> {
    let cache = Settings::find().map_err(failure)?.cache;
    match args.command {
        CacheCommand::List { format } => list(&cache, format),
        CacheCommand::Prune { all: true, .. } => {
            let removed = cache.clear().map_err(failure)?;
            terminal::print_text(&removal(&removed))
        }
        CacheCommand::Prune { to, .. } => {
            let removed = cache.prune(to).map_err(failure)?;
            terminal::print_text(&removal(&removed))
        }
    }
}

fn failure(error: EnvError) -> Failure {
    let failure = Failure::from(error);
    match failure.help {
        Some(_) => failure,
        None => failure.help(
            "the cache is the directory trapline in $XDG_CACHE_HOME or ~/.cache: \
             make it readable and writable",
        ),
    }
}

fn list(cache: &Cache, format: PlainFormat) -> Result<(), Failure> {
    let entries = cache.entries().map_err(failure)?;
    match format {
        PlainFormat::Json => terminal::print_json(&json!({
            "directory": cache.directory,
            "entries": entries.iter().map(as_json).collect::<Vec<_>>(),
        })),
        PlainFormat::Table => {
            let mut text = table(&entries, terminal::cut_width());
            let directory = cache.directory.display();
            let total = HumanBytes(sum(&entries));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{total} in {directory}");
            terminal::print_text(&text)
        }
    }
}

fn as_json(entry: &Entry) -> serde_json::Value {
    json!({
        "kind": entry.kind.name(),
        "name": entry.name,
        "bytes": entry.bytes,
        "used": time::date(entry.used),
    })
}

/// Columns left of the name.
const BEFORE: usize = 12 + 1 + 12 + 2 + 20 + 2;

fn table(entries: &[Entry], width: usize) -> String {
    let lines = entries.iter().map(|entry| {
        let room = width.saturating_sub(BEFORE).max(12);
        let name: String = entry.name.chars().take(room).collect();
        let (kind, bytes) = (entry.kind.name(), HumanBytes(entry.bytes).to_string());
        let used = time::date(entry.used);
        format!("{kind:<12} {bytes:>12}  {used}  {name}\n")
    });
    lines.collect()
}

fn removal(removed: &[Entry]) -> String {
    match removed.len() {
        0 => "nothing to remove\n".to_owned(),
        1 => format!("removed 1 entry, {}\n", HumanBytes(sum(removed))),
        count => format!("removed {count} entries, {}\n", HumanBytes(sum(removed))),
    }
}

fn sum(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.bytes).sum()
}
