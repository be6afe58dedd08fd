//! Examples in the documentation: commands in fenced `console` blocks, each with the output that follows it.
//!
//! ````text
//! ```console
//! $ trapline list --env sim
//! sim  ready
//! ...
//! ```
//! ````
//!
//! A table is the output of a command, too, of which it has some lines and columns:
//!
//! ```text
//! <!-- $ trapline show --format markdown -->
//! | | sim |
//! |:-|-:|
//! | getpid | 6 |
//! <!-- end -->
//! ```
//!
//! The lines are those of a recording ([`crate::recordings`]); `...` stands for any number of further ones. A block that is
//! marked `console wall` has figures that depend on the host. One that is marked `console kept` has commands that need
//! files which neither the distribution nor the repository has, or that take longer than ten minutes: they do not run
//! unless asked for ([`Renewal`]). A command without output below it must exit with status 0; its output is not recorded.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// When a recording is replaced by what the command prints now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// If they differ.
    Always,
    /// If text differs, or figures with `docs --wall`.
    Wall,
    /// If they differ, with `docs --kept`; otherwise the command does not run.
    Kept,
}

/// A command and its documented output.
#[derive(Clone, Debug)]
pub struct Example {
    /// The page.
    pub page: PathBuf,
    /// Lines of the page, from 0, that hold the output.
    pub lines: Range<usize>,
    /// The shell command, on one line.
    pub command: String,
    /// Its documented output; empty: only the exit status is checked.
    pub output: Vec<String>,
    /// When its recording is replaced.
    pub renewal: Renewal,
    /// It is a table: further lines of the output may be anywhere.
    pub is_table: bool,
}

/// End of a table.
const TABLE_END: &str = "<!-- end -->";

/// Returns the examples of a page.
pub fn examples(page: &Path, text: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut block = None;
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if let Some(command) = line.strip_prefix("<!-- $ ") {
            let output: Vec<_> = lines
                .by_ref()
                .map(|(_, line)| line.to_owned())
                .take_while(|line| line != TABLE_END)
                .collect();
            examples.push(Example {
                page: page.to_owned(),
                lines: number + 1..number + 1 + output.len(),
                command: command.trim_end_matches(" -->").to_owned(),
                output,
                renewal: Renewal::Always,
                is_table: true,
            });
            continue;
        }
        match (block, line.strip_prefix("$ ")) {
            (None, _) => {
                let mark = line.strip_prefix("```console").map(str::trim);
                block = mark.map(|mark| match mark {
                    "wall" => Renewal::Wall,
                    "kept" => Renewal::Kept,
                    _ => Renewal::Always,
                });
            }
            (Some(_), _) if line == "```" => block = None,
            (Some(renewal), Some(first)) => {
                let mut command = first.to_owned();
                let mut end = number + 1;
                while command.ends_with('\\') {
                    command.pop();
                    let (_, next) = lines.next().unwrap_or_default();
                    command.push_str(next.trim_start());
                    end += 1;
                }
                examples.push(Example {
                    page: page.to_owned(),
                    lines: end..end,
                    command,
                    output: Vec::new(),
                    renewal,
                    is_table: false,
                });
            }
            (Some(_), None) => {
                if let Some(example) = examples.last_mut() {
                    example.output.push(line.to_owned());
                    example.lines.end = number + 1;
                }
            }
        }
    }
    examples
}

impl Example {
    /// Returns the documented output with the lines of `printed`: those that equal the documented ones, or else those
    /// that differ from them in digits only. `None` if other text differs, too.
    pub fn rendered(&self, printed: &[String]) -> Option<Vec<String>> {
        let printed = &self.with_columns(printed);
        let exactly = |line: &str| line.trim_end().to_owned();
        let places = self.place(printed, exactly);
        let places = places.or_else(|| self.place(printed, shape))?;
        let lines = self.output.iter().zip(places);
        let rendered =
            lines.map(|(line, place)| place.map_or(line.as_str(), |it| printed[it].trim_end()));
        Some(rendered.map(str::to_owned).collect())
    }

    /// Returns all lines, or for each documented table, if one has other columns than what is printed, all lines with its
    /// columns.
    fn with_columns(&self, printed: &[String]) -> Vec<String> {
        let is_header = |pair: &&[String]| pair[1].starts_with("|:-");
        let headers = self.output.windows(2).filter(is_header);
        let headers: Vec<&String> = headers.map(|pair| &pair[0]).collect();
        if headers.iter().all(|header| printed.contains(header)) {
            return printed.to_vec();
        }
        let projected = headers.iter().map(|header| columns(header, printed));
        projected.collect::<Vec<_>>().concat()
    }

    /// Returns for each documented line the printed line that equals it after `normal`; `None` for an elision.
    /// Takes the first match of each run of lines between elisions.
    fn place(
        &self,
        printed: &[String],
        normal: impl Fn(&str) -> String,
    ) -> Option<Vec<Option<usize>>> {
        let printed: Vec<String> = printed.iter().map(|line| normal(line)).collect();
        let output = self.output.iter().map(String::as_str);
        let elided: Vec<&str> = if self.is_table {
            output
                .flat_map(|line| ["...", line])
                .chain(["..."])
                .collect()
        } else {
            output.collect()
        };
        let runs: Vec<Vec<String>> = elided
            .split(|line| is_elision(line))
            .map(|run| run.iter().map(|line| normal(line)).collect())
            .collect();
        let mut places = Vec::new();
        let mut at = 0;
        let last = runs.len() - 1;
        for (number, run) in runs.iter().enumerate() {
            let start = match (number == 0, number == last) {
                (true, _) => 0,
                (false, true) => printed.len().checked_sub(run.len())?,
                (false, false) => at + position(printed.get(at..)?, run)?,
            };
            let end = start + run.len();
            if start < at || printed.get(start..end)? != run.as_slice() {
                return None;
            }
            at = end;
            places.extend((start..end).map(Some));
            if number < last && !self.is_table {
                places.push(None);
            }
        }
        (at == printed.len()).then_some(places)
    }
}

/// Returns whether a text names an environment, as a word of its own.
pub fn names(text: &str, environment: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-');
    text.split(|c| !is_part(c)).any(|word| word == environment)
}

/// Returns `printed` with the columns of `header` of tables that have all of them.
fn columns(header: &str, printed: &[String]) -> Vec<String> {
    let cells = |line: &str| -> Vec<String> { line.split('|').map(str::to_owned).collect() };
    let wanted = cells(header);
    let mut lines = Vec::new();
    for table in printed.chunk_by(|one, next| one.starts_with('|') && next.starts_with('|')) {
        let all = cells(&table[0]);
        let places = wanted
            .iter()
            .map(|name| all.iter().position(|it| it == name));
        let places: Option<Vec<usize>> = places.collect();
        for line in table {
            let cells = cells(line);
            let chosen = places
                .iter()
                .flatten()
                .filter_map(|place| cells.get(*place));
            let chosen: Vec<_> = chosen.map(String::as_str).collect();
            if !line.starts_with('|') || places.is_none() {
                lines.push(line.clone());
            } else {
                lines.push(chosen.join("|"));
            }
        }
    }
    lines
}

fn is_elision(line: &str) -> bool {
    line.trim() == "..."
}

fn position(lines: &[String], run: &[String]) -> Option<usize> {
    match run.len() {
        0 => Some(0),
        length => lines.windows(length).position(|window| window == run),
    }
}

/// Returns a line with every number as `#` and every run of spaces or rules as one.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for character in line.trim_end().chars() {
        let is_part = matches!(character, '.' | ',') && shape.ends_with('#');
        match character {
            _ if is_part => {}
            '0'..='9' if shape.ends_with('#') => {}
            '0'..='9' => shape.push('#'),
            ' ' | '─' if shape.ends_with(character) => {}
            _ => shape.push(character),
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Title\n\n```console\n$ trapline run \\\n    --env sim\nsim   3 insn\n...\nend 1,264.5\n```\n\n    $ no example\n";

    fn example() -> Example {
        examples(Path::new("page.md"), PAGE).remove(0)
    }

    #[test]
    fn commands_and_their_output_are_found() {
        let all = examples(Path::new("page.md"), PAGE);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].command, "trapline run --env sim");
        assert_eq!(all[0].lines, 5..8);
        assert_eq!(all[0].output, ["sim   3 insn", "...", "end 1,264.5"]);
        assert_eq!(all[0].renewal, Renewal::Always);
    }

    #[test]
    fn marks_say_when_output_is_renewed() {
        let page = ["", " wall", " kept"].map(|mark| format!("```console{mark}\n$ ls\n```\n"));
        let all = examples(Path::new("page.md"), &page.concat());
        let all: Vec<_> = all.iter().map(|example| example.renewal).collect();
        assert_eq!(all, [Renewal::Always, Renewal::Wall, Renewal::Kept]);
    }

    fn rendered(printed: &str) -> Option<Vec<String>> {
        let lines: Vec<_> = printed.lines().map(str::to_owned).collect();
        example().rendered(&lines)
    }

    #[test]
    fn only_digits_may_differ() {
        let same = ["sim   3 insn", "...", "end 1,264.5"].map(str::to_owned);
        assert_eq!(
            rendered("sim   3 insn\nmore\nlines\nend 1,264.5\n").unwrap(),
            same
        );
        assert_eq!(rendered("sim   3 insn\nend 1,264.5\n").unwrap(), same);
        let digits = ["sim   4 insn", "...", "end 1,264.5"];
        assert_eq!(rendered("sim   4 insn\nend 1,264.5\n").unwrap(), digits);
        let digits = ["sim   3 insn", "...", "end   64"];
        assert_eq!(rendered("sim   3 insn\nend   64\n").unwrap(), digits);
        for other in [
            "sim   3 ns\nend 1,264.5\n",
            "sim   ? insn\nend 7\n",
            "sim   3 insn\nend 1,264.5\nmore\n",
            "",
        ] {
            assert_eq!(rendered(other), None, "{other}");
        }
    }

    #[test]
    fn elisions_are_kept() {
        let lines = rendered("sim   4 insn\nmore\nend 7\n");
        assert_eq!(lines.unwrap(), ["sim   4 insn", "...", "end 7"]);
    }

    #[test]
    fn equal_lines_come_before_similar_ones() {
        let page = "```console\n$ trapline list\n...\nsim 4\n...\n```\n";
        let example = examples(Path::new("page.md"), page).remove(0);
        let printed = ["sim 3", "sim 4", "end"].map(str::to_owned);
        assert_eq!(example.rendered(&printed).unwrap(), ["...", "sim 4", "..."]);
    }

    #[test]
    fn tables_have_lines_of_the_output() {
        let page = "<!-- $ trapline show -->\n| | sim |\n| b | 2 |\n<!-- end -->\n\n```console\n$ ls\n```\n";
        let all = examples(Path::new("page.md"), page);
        assert_eq!(all.len(), 2);
        assert_eq!(
            (all[0].command.as_str(), all[0].lines.clone()),
            ("trapline show", 1..3)
        );
        let printed = ["facts", "| | sim |", "| a | 1 |", "| b | 7 |", ""].map(str::to_owned);
        assert_eq!(
            all[0].rendered(&printed).unwrap(),
            ["| | sim |", "| b | 7 |"]
        );
        assert_eq!(all[0].rendered(&printed[..3]), None);
    }

    #[test]
    fn tables_have_columns_of_the_output() {
        let page = "<!-- $ trapline show -->\n|  | c |\n|:-|-:|\n| b | 2 |\n\n|  | d |\n|:-|-:|\n| a | 3 |\n<!-- end -->\n";
        let example = &examples(Path::new("page.md"), page)[0];
        let printed = [
            "|  | c | d |",
            "|:-|-:|-:|",
            "| a | 4 | 5 |",
            "| b | 6 | 7 |",
            "",
        ];
        let printed = printed.map(str::to_owned);
        let expected = [
            "|  | c |",
            "|:-|-:|",
            "| b | 6 |",
            "",
            "|  | d |",
            "|:-|-:|",
            "| a | 5 |",
        ];
        assert_eq!(example.rendered(&printed).unwrap(), expected);
        assert_eq!(example.rendered(&printed[..2]), None);
    }

    #[test]
    fn environments_are_whole_words() {
        let command = "trapline run --env sim,sim/xen-pvh:cap=25 > a";
        assert!(names(command, "sim/xen-pvh"));
        assert!(names(command, "sim"));
        assert!(!names(command, "sim/xen"));
    }
}
