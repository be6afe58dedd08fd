//! Counts the lines of code of optimisations, for the table of a plan with `[[optimisations]]`.
//!
//! The code of an optimisation lies between the comments `Code of optimisation NAME.` and `End of optimisation NAME.`, or
//! the end of the file. A line counts unless it is blank or a comment. Tests do not count.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Parts of a guest without a hypervisor: the VMM with this backend, and the image's kernel.
const DIRECTORIES: [&str; 6] = [
    "vmm/interface/src",
    "vmm/monitor/src",
    "vmm/emulation/src",
    "vmm/machine/src",
    "vmm/process/src",
    "guest/kernel/src",
];

const BEGIN: &str = "Code of optimisation ";
const END: &str = "End of optimisation ";

/// Lines of code: all, and those of each optimisation.
#[derive(Default)]
struct Count {
    all: u32,
    parts: BTreeMap<String, u32>,
}

impl Count {
    fn add_directory(&mut self, path: &Path) -> io::Result<()> {
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            let extension = path.extension().unwrap_or_default();
            if path.is_dir() && name != "tests" {
                self.add_directory(&path)?;
            } else if (extension == "rs" || extension == "s") && name != "tests.rs" {
                self.add_file(&fs::read_to_string(&path)?);
            }
        }
        Ok(())
    }

    fn add_file(&mut self, text: &str) {
        let mut parts: Vec<&str> = Vec::new();
        let lines = text.lines().map(str::trim);
        for line in lines.take_while(|line| *line != "#[cfg(test)]") {
            let is_comment = line.starts_with("//") || line.starts_with("# ");
            let marked = |mark| {
                let (_, name) = line.split_once(mark).filter(|_| is_comment)?;
                Some(name.trim_end_matches('.'))
            };
            parts.extend(marked(BEGIN));
            parts.retain(|part| marked(END) != Some(part));
            if line.is_empty() || is_comment {
                continue;
            }
            self.all += 1;
            for part in &parts {
                *self.parts.entry((*part).to_owned()).or_default() += 1;
            }
        }
    }
}

fn main() -> io::Result<()> {
    let root = PathBuf::from("../..");
    let mut count = Count::default();
    for directory in DIRECTORIES {
        let path = root.join(directory);
        println!("cargo::rerun-if-changed={}", path.display());
        count.add_directory(&path)?;
    }
    println!("cargo::rerun-if-changed=build.rs");
    let mut text = format!(
        "const ALL: u32 = {};\nconst PARTS: &[(&str, u32)] = &[\n",
        count.all
    );
    for (name, lines) in &count.parts {
        let _infallible = writeln!(text, "    ({name:?}, {lines}),");
    }
    text.push_str("];\n");
    let directory = env::var_os("OUT_DIR").map_or_else(PathBuf::new, PathBuf::from);
    fs::write(directory.join("code.rs"), text)
}
