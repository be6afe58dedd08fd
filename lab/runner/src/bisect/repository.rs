//! Git access of a search: the sequence of commits, and a worktree outside the user's to check them out.

use crate::failure::{Failure, Status};
use std::path::{Path, PathBuf};
use std::process::Command;
use trapline_environments::draft::{WorkDirectory, TEMPORARY};
use trapline_environments::tool;

/// The user's repository.
pub struct Repository {
    directory: PathBuf,
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Object name, in full.
    pub hash: String,
    /// First line of the message.
    pub subject: String,
}

impl Commit {
    /// Returns the abbreviated object name.
    pub fn short(&self) -> &str {
        self.hash.get(..12).unwrap_or(&self.hash)
    }
}

/// A temporary worktree with one commit at a time, removed on drop.
pub struct Worktree<'a> {
    repository: &'a Repository,
    directory: WorkDirectory,
}

impl Repository {
    /// Opens the repository that contains `directory`.
    ///
    /// # Errors
    /// Git or the repository is missing.
    pub fn open(directory: &Path) -> Result<Self, Failure> {
        let top = git(directory, &["rev-parse", "--show-toplevel"]);
        let top = top.map_err(|why| {
            Failure::new(format!(
                "not in a git repository: {}: {why}",
                directory.display()
            ))
            .help("name one with --repo DIR")
            .status(Status::Usage)
        })?;
        Ok(Self {
            directory: PathBuf::from(top.trim_end()),
        })
    }

    /// Returns the commits from `good` to `bad`, inclusive, along first parents.
    ///
    /// # Errors
    /// One is not a commit, or `good` is not reached from `bad` along first parents.
    pub fn commits(&self, good: &str, bad: &str) -> Result<Vec<Commit>, Failure> {
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
                "{} is not an ancestor of {} along first parents",
                first.short(),
                last.short()
            ))
            .help("--good is the earlier commit, --bad a later one on the same branch")
            .status(Status::Usage));
        }
        let mut commits = vec![first];
        commits.extend(listed.lines().map(parse));
        Ok(commits)
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
                Failure::new(format!("{flag}: no such commit: '{revision}'"))
                    .help(format!(
                        "'git -C {} log' lists commits",
                        self.directory.display()
                    ))
                    .status(Status::Usage),
            ),
        }
    }

    /// Creates a worktree of `commit`, and removes those that killed searches in this repository have left.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn worktree(&self, commit: &Commit) -> Result<Worktree<'_>, Failure> {
        let directory = WorkDirectory::temporary().map_err(|error| {
            Failure::new(format!("cannot create a temporary directory: {error}"))
                .help("name another directory with TMPDIR")
        })?;
        self.forget_abandoned()?;
        let worktree = Worktree {
            repository: self,
            directory,
        };
        let path = worktree.path().display().to_string();
        self.git(&[
            "worktree",
            "add",
            "--quiet",
            "--detach",
            &path,
            &commit.hash,
        ])?;
        Ok(worktree)
    }

    /// Removes the entries of worktrees of killed searches, whose directories are removed.
    fn forget_abandoned(&self) -> Result<(), Failure> {
        let listed = self.git(&["worktree", "list", "--porcelain"])?;
        let trees = listed
            .lines()
            .filter_map(|line| line.strip_prefix("worktree "));
        for tree in trees.filter(|tree| tree.contains(TEMPORARY) && !Path::new(tree).exists()) {
            self.git(&["worktree", "remove", "--force", tree])?;
        }
        Ok(())
    }

    fn git(&self, words: &[&str]) -> Result<String, Failure> {
        git(&self.directory, words)
            .map_err(|why| Failure::new(format!("git {} failed: {why}", words[0])))
    }
}

impl Worktree<'_> {
    /// The directory.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("tree")
    }

    /// Checks out `commit`. Ignored files stay, so that builds are incremental.
    ///
    /// # Errors
    /// Git fails.
    pub fn check_out(&self, commit: &Commit) -> Result<(), Failure> {
        let inside = |words: &[&str]| {
            git(&self.path(), words)
                .map_err(|why| Failure::new(format!("cannot check out {}: {why}", commit.short())))
        };
        inside(&["checkout", "--quiet", "--force", "--detach", &commit.hash])?;
        inside(&["clean", "--quiet", "-d", "--force"])?;
        Ok(())
    }
}

impl Drop for Worktree<'_> {
    fn drop(&mut self) {
        let path = self.path().display().to_string();
        // After a failure, the next search removes it.
        let _ = self
            .repository
            .git(&["worktree", "remove", "--force", &path]);
    }
}

/// Parses a line of `HASH PARENTS NUL SUBJECT`.
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

/// Returns the output of git, or its error. Runs no hooks, and ignores the environment of a surrounding
/// git: this may run in a hook.
fn git(directory: &Path, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    // Not stopped on request: it removes what a stopped search has made.
    tool::die_with_parent(&mut command);
    let output = command
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
        .map_err(|error| format!("cannot start git: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}
