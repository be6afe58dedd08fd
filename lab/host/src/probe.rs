//! Output of programs that report the capabilities of this host.
//!
//! Each program runs once per process, and its output is cached on disk. The cache key has all inputs: path,
//! size and modification time of the program, arguments, standard input, kernel release, and size and time of
//! files that the output depends on. There is one file per program, arguments and input, so outdated entries
//! are overwritten.
//!
//! A script that wraps a program counts as the program: a change of what it starts is not noticed.

use crate::{cache, hexadecimal, private, tool, Error};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// A program to run.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// Its path.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [&'a str],
    /// Its standard input.
    pub input: &'a str,
    /// Files that its output depends on.
    pub depends: &'a [&'a str],
}

/// The result of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeOutput {
    /// The program exited with 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Number of entries above which the cache is emptied.
const MAX_ENTRIES: usize = 256;

/// Separates key and streams in a file of the cache.
const SEPARATOR: char = '\0';

/// Result of one probe of this process. Other threads wait for it.
type Slot = Arc<Mutex<Option<Arc<ProbeOutput>>>>;

/// Results of this process by key.
static RESULTS: Mutex<BTreeMap<String, Slot>> = Mutex::new(BTreeMap::new());

impl<'a> Probe<'a> {
    /// Returns a probe without input.
    pub fn new(program: &'a Path, arguments: &'a [&'a str]) -> Self {
        Self {
            program,
            arguments,
            input: "",
            depends: &[],
        }
    }

    /// Returns the output of the program, from the cache or by running it in English.
    ///
    /// # Errors
    /// It cannot be started, there is no safe directory for the cache, or a stop was requested.
    pub fn output(&self) -> Result<Arc<ProbeOutput>, Error> {
        self.output_in(&cache::default_directory()?.join("probes"))
    }

    fn output_in(&self, directory: &Path) -> Result<Arc<ProbeOutput>, Error> {
        let key = self.key();
        let slot = {
            let mut results = RESULTS.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(results.entry(key.clone()).or_default())
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(output) = slot.as_ref() {
            return Ok(Arc::clone(output));
        }
        let path = directory.join(self.name());
        let output = match read(&path, &key) {
            Some(output) => output,
            None => {
                let output = self.run()?;
                if output.success {
                    // Without it, the next process runs the program again.
                    let _ = write(&path, &key, &output);
                }
                output
            }
        };
        Ok(Arc::clone(slot.insert(Arc::new(output))))
    }

    fn run(&self) -> Result<ProbeOutput, Error> {
        let mut command = Command::new(self.program);
        command
            .args(self.arguments)
            .current_dir("/")
            .env("LC_ALL", "C")
            // Bochs would look for its plugins there.
            .env_remove("LTDL_LIBRARY_PATH");
        let output = tool::output_with_input(&mut command, self.input)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(SEPARATOR, "");
        Ok(ProbeOutput {
            success: output.status.success(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        })
    }

    /// Returns the name of its file in the cache.
    fn name(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.program.as_os_str().as_encoded_bytes());
        for argument in self.arguments.iter().chain([&self.input]) {
            hash.update([0]);
            hash.update(argument);
        }
        hexadecimal(&hash.finalize())
    }

    /// Returns its name with the state of all files that its output depends on.
    fn key(&self) -> String {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let files = self.depends.iter().map(Path::new).chain([self.program]);
        let states: Vec<_> = files.map(state).collect();
        format!("{} {} {}", self.name(), release.trim(), states.join(" "))
    }
}

/// Returns size and modification time of a file.
fn state(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(file) => format!("{},{}.{}", file.size(), file.mtime(), file.mtime_nsec()),
        Err(_) => "none".to_owned(),
    }
}

fn read(path: &Path, key: &str) -> Option<ProbeOutput> {
    let text = fs::read_to_string(path).ok()?;
    let mut parts = text.split(SEPARATOR);
    (parts.next()? == key).then_some(())?;
    Some(ProbeOutput {
        success: true,
        stdout: parts.next()?.to_owned(),
        stderr: parts.next()?.to_owned(),
    })
}

/// Writes a file atomically.
fn write(path: &Path, key: &str, output: &ProbeOutput) -> io::Result<()> {
    let directory = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    if fs::read_dir(&directory).is_ok_and(|entries| entries.count() > MAX_ENTRIES) {
        fs::remove_dir_all(&directory)?;
    }
    private::create_directory(&directory).map_err(io::Error::other)?;
    let mut file = tempfile::NamedTempFile::new_in(&directory)?;
    let ProbeOutput { stdout, stderr, .. } = output;
    write!(file, "{key}{SEPARATOR}{stdout}{SEPARATOR}{stderr}")?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write_program;

    /// A program that counts its calls, and writes its argument and input.
    struct Counted {
        directory: tempfile::TempDir,
        program: PathBuf,
    }

    impl Counted {
        fn new(status: u8) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let program = directory.path().join("program");
            let calls = directory.path().join("calls");
            let script = format!(
                "#!/bin/sh\necho >> {}\necho $1\ncat\nexit {status}\n",
                calls.display()
            );
            write_program(&program, script);
            Self { directory, program }
        }

        fn probe<'a>(&'a self, arguments: &'a [&'a str], depends: &'a [&'a str]) -> Probe<'a> {
            Probe {
                input: "input",
                depends,
                ..Probe::new(&self.program, arguments)
            }
        }

        fn output(&self, probe: &Probe<'_>) -> Arc<ProbeOutput> {
            probe
                .output_in(&self.directory.path().join("cache"))
                .unwrap()
        }

        fn calls(&self) -> usize {
            let calls = fs::read_to_string(self.directory.path().join("calls"));
            calls.unwrap_or_default().lines().count()
        }
    }

    /// Removes the results of this process.
    fn forget(probe: &Probe<'_>) {
        RESULTS.lock().unwrap().remove(&probe.key());
    }

    #[test]
    fn program_runs_once_for_all_threads_and_processes() {
        let counted = Counted::new(0);
        let probe = counted.probe(&["one"], &[]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(counted.output(&probe).stdout, "one\ninput"));
            }
        });
        assert_eq!(counted.calls(), 1);
        forget(&probe);
        assert_eq!(counted.output(&probe).stdout, "one\ninput");
        assert_eq!(counted.calls(), 1, "it is cached on disk");
        counted.output(&counted.probe(&["two"], &[]));
        assert_eq!(counted.calls(), 2);
    }

    #[test]
    fn changed_program_and_changed_files_invalidate_the_output() {
        let counted = Counted::new(0);
        let file = counted.directory.path().join("lists");
        let depends = [file.to_str().unwrap()];
        let probe = counted.probe(&["one"], &depends);
        counted.output(&probe);
        fs::write(&file, "new").unwrap();
        counted.output(&probe);
        assert_eq!(counted.calls(), 2);
        let mut script = fs::read_to_string(&counted.program).unwrap();
        script.push_str("# changed\n");
        fs::write(&counted.program, script).unwrap();
        counted.output(&probe);
        assert_eq!(counted.calls(), 3);
    }

    #[test]
    fn failure_is_not_cached_on_disk() {
        let counted = Counted::new(3);
        let probe = counted.probe(&["one"], &[]);
        assert!(!counted.output(&probe).success);
        assert!(!counted.output(&probe).success);
        assert_eq!(counted.calls(), 1);
        forget(&probe);
        counted.output(&probe);
        assert_eq!(counted.calls(), 2);
    }

    #[test]
    fn missing_program_is_an_error() {
        assert!(Probe::new(Path::new("/nonexistent"), &[]).output().is_err());
    }
}
