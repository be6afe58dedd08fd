//! Debug files of programs and libraries without a symbol table.

use crate::context::RunContext;
use crate::event::RunEvent;
use lzma_rust2::XzReader;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use trapline_environments::{debug_files, EnvError};
use trapline_profile::symbols::{build_id, has_symbol_table, mini_debug_info};

/// Returns the ELF file with the symbols of `file`, whose contents are `bytes`; `None` if it has them
/// itself or there is none. It is downloaded if missing and `fetch` is set. `name` is its component.
pub fn of(
    context: &RunContext<'_>,
    name: &str,
    (file, bytes): (&Path, &[u8]),
    fetch: bool,
) -> Option<Vec<u8>> {
    if has_symbol_table(name, bytes).unwrap_or(true) {
        return None;
    }
    let found = build_id(name, bytes).ok().flatten();
    let found = found.and_then(|id| of_build(context, file, &id, fetch));
    let read = found.and_then(|found| std::fs::read(found).ok());
    read.or_else(|| unpack(mini_debug_info(name, bytes).ok()??).ok())
}

/// Returns the debug file of the build `build_id` of `file`, downloaded if missing and `fetch` is set.
pub fn of_build(
    context: &RunContext<'_>,
    file: &Path,
    build_id: &[u8],
    fetch: bool,
) -> Option<PathBuf> {
    let settings = context.inventory.settings();
    let find = || settings.debug.find(build_id, &settings.cache);
    find().or_else(|| {
        if !fetch {
            return None;
        }
        let what = file.display().to_string();
        fetch_with(context, &what, || debug_files::fetch(file, &settings.cache))?;
        find()
    })
}

/// Fetches debug symbols of `what` and reports progress. A failure is reported as a remark.
pub fn fetch_with(
    context: &RunContext<'_>,
    what: &str,
    fetch: impl FnOnce() -> Result<(), EnvError>,
) -> Option<()> {
    context.note(&format!("fetching debug symbols of {what}"));
    let task = RunEvent::TaskStarted("fetching debug symbols");
    context.events.handle(task);
    let fetched = fetch();
    context.events.handle(RunEvent::Finished);
    fetched
        .map_err(|error| context.note(&error.to_string()))
        .ok()
}

fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    XzReader::new(packed, true).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Returns an ELF file with these sections, made by binutils; `None` where they are missing.
    fn stripped(directory: &Path) -> Option<std::path::PathBuf> {
        let run = |program: &str, words: &[&str]| {
            let status = Command::new(program)
                .args(words)
                .current_dir(directory)
                .stderr(Stdio::null())
                .status();
            status.is_ok_and(|status| status.success()).then_some(())
        };
        let program = std::env::current_exe().ok()?;
        run("cp", &[program.to_str()?, "program"])?;
        run("objcopy", &["--only-keep-debug", "program", "mini"])?;
        run("strip", &["--strip-debug", "mini"])?;
        run("xz", &["mini"])?;
        run("strip", &["program"])?;
        run(
            "objcopy",
            &["--add-section", ".gnu_debugdata=mini.xz", "program"],
        )?;
        Some(directory.join("program"))
    }

    #[test]
    fn symbols_in_a_stripped_file_are_unpacked() {
        let directory = tempfile::tempdir().unwrap();
        let Some(file) = stripped(directory.path()) else {
            return;
        };
        let bytes = std::fs::read(file).unwrap();
        assert!(!has_symbol_table("program", &bytes).unwrap());
        let packed = mini_debug_info("program", &bytes).unwrap().unwrap();
        let unpacked = unpack(packed).unwrap();
        assert!(has_symbol_table("program", &unpacked).unwrap());
        assert!(unpack(b"not xz").is_err());
    }
}
