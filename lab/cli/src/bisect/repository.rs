//! What a search needs of git: a row of commits, and a place to check each out
//! where the user's own work is not touched.

use crate::failure::{Failure, Status};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A repository of the user's.
pub struct Repository {
    directory: PathBuf,
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its whole name.
    pub hash: String,
    /// The first line of what it says.
    pub subject: String,
}

impl Commit {
    /// Enough of its name to know it by.
    pub fn short(&self) -> &str {
        self.hash.get(..12).unwrap_or(&self.hash)
    }
}

/// A directory with the files of one commit at a time; goes when dropped.
pub struct Workplace<'a> {
    repository: &'a Repository,
    directory: TempDir,
}

impl Repository {
    /// The repository that `directory` is in.
    ///
    /// # Errors
    /// There is no git, or no repository.
    pub fn open(directory: &Path) -> Result<Self, Failure> {
        let top = git(directory, &["rev-parse", "--show-toplevel"]);
        let top = top.map_err(|why| {
            Failure::new(format!(
                "{} is in no git repository: {why}",
                directory.display()
            ))
            .help("name one with --repo DIR")
            .status(Status::Usage)
        })?;
        Ok(Self {
            directory: PathBuf::from(top.trim_end()),
        })
    }

    /// The commits from `good` to `bad`, both among them, by first parents.
    ///
    /// # Errors
    /// One is no commit, or no way of first parents leads from `bad` to `good`.
    pub fn row(&self, good: &str, bad: &str) -> Result<Vec<Commit>, Failure> {
        let first = self.commit("--good", good)?;
        let last = self.commit("--bad", bad)?;
        let range = format!("{}..{}", first.hash, last.hash);
        let words = [
            "log",
            "--first-parent",
            "--reverse",
            "--format=%H %P%x00%s",
            &range,
        ];
        let listed = self.git(&words)?;
        let leads = |line: &str| line.split(['\0', ' ']).nth(1) == Some(&first.hash);
        if !listed.lines().next().is_some_and(leads) {
            return Err(Failure::new(format!(
                "{} is not before {} in its line of first parents",
                first.short(),
                last.short()
            ))
            .help("--good is the earlier commit, --bad a later one on the same line")
            .status(Status::Usage));
        }
        let mut row = vec![first];
        row.extend(listed.lines().map(parse));
        Ok(row)
    }

    fn commit(&self, flag: &str, revision: &str) -> Result<Commit, Failure> {
        let name = format!("{revision}^{{commit}}");
        let words = [
            "log",
            "-1",
            "--format=%H%x00%s",
            "--end-of-options",
            &name,
            "--",
        ];
        match git(&self.directory, &words) {
            Ok(line) => Ok(parse(line.trim_end())),
            Err(_) => Err(
                Failure::new(format!("{flag}: there is no commit '{revision}'"))
                    .help(format!(
                        "'git -C {} log' shows commits",
                        self.directory.display()
                    ))
                    .status(Status::Usage),
            ),
        }
    }

    /// A place for the files of commits, with those of `commit`.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn workplace(&self, commit: &Commit) -> Result<Workplace<'_>, Failure> {
        let directory = tempfile::Builder::new()
            .prefix("trapline-bisect-")
            .tempdir();
        let directory = directory.map_err(|error| {
            Failure::new(format!("no temporary directory can be made: {error}"))
                .help("name another place with TMPDIR")
        })?;
        let place = Workplace {
            repository: self,
            directory,
        };
        let path = place.path().display().to_string();
        self.git(&[
            "worktree",
            "add",
            "--quiet",
            "--detach",
            &path,
            &commit.hash,
        ])?;
        Ok(place)
    }

    fn git(&self, words: &[&str]) -> Result<String, Failure> {
        git(&self.directory, words)
            .map_err(|why| Failure::new(format!("git {} failed: {why}", words[0])))
    }
}

impl Workplace<'_> {
    /// The directory.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("tree")
    }

    /// Puts the files of `commit` there. What git ignores stays, so that a build
    /// need not start from nothing.
    ///
    /// # Errors
    /// Git cannot.
    pub fn check_out(&self, commit: &Commit) -> Result<(), Failure> {
        let inside = |words: &[&str]| {
            git(&self.path(), words).map_err(|why| {
                Failure::new(format!("git cannot check out {}: {why}", commit.short()))
            })
        };
        inside(&["checkout", "--quiet", "--force", "--detach", &commit.hash])?;
        inside(&["clean", "--quiet", "-d", "--force"])?;
        Ok(())
    }
}

impl Drop for Workplace<'_> {
    fn drop(&mut self) {
        let path = self.path().display().to_string();
        // Where it fails `git worktree prune` does it later, by itself or by hand.
        let _ = self
            .repository
            .git(&["worktree", "remove", "--force", &path]);
    }
}

/// A line of `HASH PARENTS NUL SUBJECT`.
fn parse(line: &str) -> Commit {
    let (names, subject) = line.split_once('\0').unwrap_or((line, ""));
    let hash = names.split(' ').next().unwrap_or_default();
    Commit {
        hash: hash.to_owned(),
        subject: subject
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect(),
    }
}

/// What git says, or why it says nothing. No hooks, and nothing of a git around
/// us: this may run in one of its hooks.
fn git(directory: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .args([
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "log.showSignature=false",
        ])
        .args(words)
        .current_dir(directory)
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .map_err(|error| format!("git cannot be started: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
