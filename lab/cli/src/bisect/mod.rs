//! `trapline bisect`: which commit changed a figure. Each commit that is tried is
//! checked out beside the user's work, built, and measured once with this lab and
//! its own parts; figures are exact, so once is enough.

mod build;
mod repository;

use crate::args::BisectArgs;
use crate::failure::{Failure, Status};
use crate::gate::{self, Wanted};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::{run, terminal};
use repository::{Commit, Repository, Workplace};
use std::collections::BTreeMap;
use std::path::{Component, Path};
use trapline_gate::search::{Next, Search, Trial};
use trapline_gate::{compare, forms, Baseline, Comparison, Row, Tolerances, Verdict};
use trapline_stats::Summary;
use trapline_store::Store;

/// Searches, and prints each step and what was found.
///
/// # Errors
/// There is nothing to search in, or one of its ends cannot be measured.
pub fn bisect(args: &BisectArgs) -> Result<Status, Failure> {
    gate::require_exact(&args.environments)?;
    require_inside(&args.parts)?;
    let repository = Repository::open(&args.repo)?;
    let commits = repository.row(&args.good, &args.bad)?;
    let mut bench = Bench {
        args,
        place: repository.workplace(&commits[0])?,
        store: run::open_store(&args.manner)?,
        interrupt: Interrupt::watch()?,
    };
    let mut hunt = Hunt::between(&mut bench, &commits, args.tolerances.tolerances())?;
    if hunt.sought.is_empty() {
        terminal::print_text("no figure differs between these two: there is nothing to find\n")?;
        return Ok(Status::Failed);
    }
    let found = hunt.run(&mut bench)?;
    tell(&hunt, &found)
}

/// What is removed before each build has to be the build's own.
fn require_inside(parts: &Path) -> Result<(), Failure> {
    let mut components = parts.components().peekable();
    let is_inside = components.peek().is_some()
        && components.all(|component| matches!(component, Component::Normal(_)));
    match is_inside {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "--parts: {} is not within a commit's directory",
            parts.display()
        ))
        .help("a path like target/dist, from the top directory of the repository")
        .status(Status::Usage)),
    }
}

/// Where commits are built and measured.
struct Bench<'a> {
    args: &'a BisectArgs,
    place: Workplace<'a>,
    store: Store,
    interrupt: Interrupt,
}

impl Bench<'_> {
    /// The figures of a commit, or why it has none, inside.
    fn figures(&mut self, commit: &Commit) -> Result<Result<Summary, Failure>, Failure> {
        self.place.check_out(commit)?;
        let parts = self.place.path().join(&self.args.parts);
        // What an earlier commit left must not be measured as this one's.
        if parts.exists() {
            std::fs::remove_dir_all(&parts).map_err(|error| {
                Failure::new(format!("{} cannot be removed: {error}", parts.display()))
            })?;
        }
        let built = build::build(&self.args.build, &self.place.path(), &self.interrupt)?;
        if let Some(signal) = self.interrupt.signal() {
            return Err(Failure::new("interrupted").status(Status::Interrupted(signal)));
        }
        if let Err(why) = built {
            return Ok(Err(Failure::new(why).status(Status::Unmeasured)));
        }
        self.measure(&parts)
    }

    fn measure(&mut self, parts: &Path) -> Result<Result<Summary, Failure>, Failure> {
        let lab = Lab::with_parts(parts, &self.args.manner.simulated)?;
        let wanted = Wanted {
            environments: &self.args.environments,
            operations: gate::operations(&self.args.workloads),
            manner: &self.args.manner,
            counters: None,
        };
        match wanted.run(&mut self.store, &lab, &self.interrupt) {
            Err(failure) if failure.is(Status::Unmeasured) => Ok(Err(failure)),
            Err(failure) => Err(failure),
            Ok(run) => Ok(Ok(trapline_stats::summarise(&run.observations))),
        }
    }

    /// The figures of an end of the row, which there have to be.
    fn figures_of_end(&mut self, commit: &Commit) -> Result<Summary, Failure> {
        let of_commit = |failure: Failure| failure.about(commit.short());
        let summary = self.figures(commit)?.map_err(of_commit)?;
        gate::require_figures(&summary).map_err(of_commit)?;
        Ok(summary)
    }
}

/// A search in progress.
struct Hunt<'a> {
    commits: &'a [Commit],
    tolerances: Tolerances,
    /// The figures of the first commit.
    first: Baseline,
    /// What differs between the ends: only that is looked for.
    sought: Vec<Row>,
    /// The figures of every commit that has some.
    known: BTreeMap<usize, Summary>,
    search: Search,
}

impl<'a> Hunt<'a> {
    fn between(
        bench: &mut Bench<'_>,
        commits: &'a [Commit],
        tolerances: Tolerances,
    ) -> Result<Self, Failure> {
        let last = commits.len() - 1;
        let search = Search::new(commits.len())
            .ok_or_else(|| Failure::new("there is only one commit").status(Status::Usage))?;
        let before = bench.figures_of_end(&commits[0])?;
        let after = bench.figures_of_end(&commits[last])?;
        let first = kept(&before);
        let compared = compare(&first, &after, &tolerances);
        let sought: Vec<Row> = compared.changes().cloned().collect();
        let (from, to, between) = (&commits[0], &commits[last], last.saturating_sub(1));
        terminal::print_text(&format!(
            "good     {}  {}\nbad      {}  {}\n{} changed, {between} commits between\n",
            from.short(),
            from.subject,
            to.short(),
            to.subject,
            count(sought.len(), "figure"),
        ))?;
        Ok(Self {
            commits,
            tolerances,
            first,
            sought,
            known: BTreeMap::from([(0, before), (last, after)]),
            search,
        })
    }

    /// Tries commits until no more can be known.
    fn run(&mut self, bench: &mut Bench<'_>) -> Result<Next, Failure> {
        loop {
            let at = match self.search.next() {
                Next::Try(at) => at,
                found => return Ok(found),
            };
            let commit = &self.commits[at];
            let (trial, why) = match bench.figures(commit)? {
                Err(failure) => (Trial::Unknown, failure.to_string()),
                Ok(summary) => {
                    let judged = self.judge(&summary);
                    self.known.insert(at, summary);
                    judged
                }
            };
            print_step(commit, trial, &why)?;
            self.search.tell(at, trial);
        }
    }

    /// Whether a commit is as the first, by what is sought.
    fn judge(&self, summary: &Summary) -> (Trial, String) {
        let compared = compare(&self.first, summary, &self.tolerances);
        let of_now = |sought: &Row| find(&compared, sought);
        let pairs = self.sought.iter().map(|sought| (sought, of_now(sought)));
        let mut judged = (Trial::AsBefore, String::new());
        for (sought, row) in pairs {
            match judge_row(sought, row) {
                (Trial::Changed, why) => return (Trial::Changed, why),
                (Trial::Unknown, why) => judged = (Trial::Unknown, why),
                (Trial::AsBefore, _) => {}
            }
        }
        judged
    }

    /// What two commits that were measured differ in.
    fn difference(&self, before: usize, after: usize) -> Option<Comparison> {
        let (before, after) = (self.known.get(&before)?, self.known.get(&after)?);
        Some(compare(&kept(before), after, &self.tolerances))
    }
}

/// The figures of a commit, to be compared with others'.
fn kept(summary: &Summary) -> Baseline {
    Baseline::new(summary, 0, env!("CARGO_PKG_VERSION"))
}

fn find<'a>(compared: &'a Comparison, sought: &Row) -> Option<&'a Row> {
    let same =
        |row: &&Row| row.environment == sought.environment && row.operation == sought.operation;
    compared.rows.iter().find(same)
}

fn judge_row(sought: &Row, row: Option<&Row>) -> (Trial, String) {
    let reason = |row: &Row| row.reason.clone().unwrap_or_default();
    match row {
        // It has no figure, as the first commit had none.
        None => (Trial::AsBefore, String::new()),
        Some(row) => match row.verdict {
            Verdict::Same | Verdict::Tolerated => (Trial::AsBefore, String::new()),
            Verdict::Undetermined => (Trial::Unknown, reason(row)),
            // What broke on the way is not what is sought.
            Verdict::Vanished if sought.verdict != Verdict::Vanished => {
                (Trial::Unknown, reason(row))
            }
            _ => (Trial::Changed, String::new()),
        },
    }
}

fn print_step(commit: &Commit, trial: Trial, why: &str) -> Result<(), Failure> {
    let word = match trial {
        Trial::AsBefore => "good",
        Trial::Changed => "bad",
        Trial::Unknown => "skipped",
    };
    let because = match why {
        "" => String::new(),
        why => format!("\n         {why}"),
    };
    terminal::print_text(&format!(
        "{word:<8} {}  {}{because}\n",
        commit.short(),
        commit.subject
    ))
}

/// Prints what was found.
fn tell(hunt: &Hunt<'_>, found: &Next) -> Result<Status, Failure> {
    let (text, from, to, status) = match found {
        Next::Culprit(at) => {
            let commit = &hunt.commits[*at];
            let text = format!("\nfound: {}  {}\n", commit.hash, commit.subject);
            (text, at - 1, *at, Status::Done)
        }
        Next::Range(range) => {
            let (from, to) = (*range.start(), *range.end());
            let lines = hunt.commits[from..=to].iter();
            let lines: String = lines
                .map(|c| format!("  {}  {}\n", c.short(), c.subject))
                .collect();
            let lead = "one of these, of which only the last can be measured";
            (format!("\n{lead}:\n{lines}"), from - 1, to, Status::Failed)
        }
        Next::Try(_) => return Err(Failure::new("the search ended before its end")),
    };
    let compared = hunt.difference(from, to);
    let rows: Vec<&Row> = compared.iter().flat_map(Comparison::changes).collect();
    terminal::print_text(&format!("{text}{}", forms::figures(&rows)))?;
    Ok(status)
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}
