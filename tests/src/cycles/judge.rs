//! Checks the console lines of guests: each flushed record must exist at every later boot.

use super::schedule::Cut;
use std::collections::BTreeMap;
use std::io;

/// Result of the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Runs that ended by a power-off with exit status 0.
    pub own: u32,
    /// Runs that were killed.
    pub kills: u32,
    /// Power cuts.
    pub cuts: u32,
    /// Flushed records, as reported after their fsync.
    pub flushed: u64,
    /// Reads of a writer's file that had every flushed record.
    pub found: u64,
    /// Reads that had more records, whose fsync was not reported.
    pub surplus: u64,
}

/// Reads console lines of machines.
#[derive(Debug, Default)]
pub struct Judge {
    /// Result of the runs so far.
    pub sum: Sum,
    /// Number of flushed records of each writer.
    flushed: BTreeMap<u64, u64>,
    /// The current run has read the earlier records.
    has_read: bool,
    /// Number of records that the current run flushed.
    now: u64,
    /// The last lines.
    last: Vec<String>,
}

/// Number of lines in an error.
const CONTEXT: usize = 40;

/// A source of console lines whose power can be cut.
pub trait Source {
    /// Returns the next line; none when the machine has exited.
    ///
    /// # Errors
    /// A timeout, or a failed read.
    fn line(&mut self) -> io::Result<Option<String>>;

    /// Cuts the power.
    fn cut(&mut self);
}

/// Last line of a machine that completed its runs.
const WHOLE: &str = "schedule done";

impl Judge {
    /// Reads the lines of a machine to its end.
    ///
    /// # Errors
    /// A lost record or a failed run, with the last lines before it.
    pub fn follow(
        &mut self,
        source: &mut dyn Source,
        cut: Option<Cut>,
        progress: &mut dyn FnMut(&Sum, &str),
    ) -> Result<(), String> {
        let (mut is_last, mut is_cut, mut is_whole) = (false, false, false);
        while let Some(line) = source
            .line()
            .map_err(|error| self.wrong(&error.to_string()))?
        {
            self.take(&line)?;
            if line.starts_with("run ") || line.starts_with("journal found ") {
                progress(&self.sum, &line);
            }
            is_last |= line.starts_with("run ") && line.ends_with(" begins last");
            is_whole |= line == WHOLE;
            if !is_cut && is_last && cut.is_some_and(|Cut(records)| self.now >= records) {
                source.cut();
                is_cut = true;
                self.sum.cuts += 1;
            }
        }
        match (cut, is_cut || is_whole) {
            (None, true) if is_whole => Ok(()),
            (Some(_), true) if is_cut => Ok(()),
            _ => Err(self.wrong("the machine ended before its runs were done")),
        }
    }

    /// Processes a line.
    fn take(&mut self, line: &str) -> Result<(), String> {
        self.last.push(line.to_owned());
        let surplus = self.last.len().saturating_sub(CONTEXT);
        self.last.drain(..surplus);
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        match words[..] {
            ["run", _, "begins", ..] => (self.has_read, self.now) = (false, 0),
            ["run", _, "killed"] => self.ended(|sum| &mut sum.kills)?,
            ["run", _, "ended", "0"] => self.ended(|sum| &mut sum.own)?,
            ["run", ..] => return Err(self.wrong("a run failed")),
            ["journal", "found", ..] => match (number(2), number(3)) {
                (Some(writer), Some(records)) => self.find(writer, records)?,
                _ => return Err(self.wrong("a read has no numbers")),
            },
            // The record of an fsync: writer and number of records.
            ["journal", _, _, _] => match (number(2), number(3)) {
                (Some(writer), Some(records)) => self.flush(writer, records)?,
                _ => return Err(self.wrong("a flush has no numbers")),
            },
            _ => {}
        }
        Ok(())
    }

    fn ended(&mut self, of: impl Fn(&mut Sum) -> &mut u32) -> Result<(), String> {
        if !self.has_read || self.now == 0 {
            return Err(self.wrong("a run read or flushed nothing"));
        }
        *of(&mut self.sum) += 1;
        Ok(())
    }

    fn flush(&mut self, writer: u64, records: u64) -> Result<(), String> {
        let before = self.flushed.insert(writer, records).unwrap_or(0);
        if records <= before {
            return Err(self.wrong(&format!(
                "writer {writer} flushed {before} records before {records}"
            )));
        }
        self.sum.flushed += 1;
        self.now += 1;
        Ok(())
    }

    fn find(&mut self, writer: u64, records: u64) -> Result<(), String> {
        let flushed = self.flushed.get(&writer).copied().unwrap_or(0);
        if records < flushed {
            let lost =
                format!("{flushed} records of writer {writer} were flushed, {records} exist");
            return Err(self.wrong(&lost));
        }
        self.has_read = true;
        self.sum.found += 1;
        self.sum.surplus += u64::from(records > flushed);
        // Records that were read once must exist from now on.
        self.flushed.insert(writer, records);
        Ok(())
    }

    fn wrong(&self, problem: &str) -> String {
        format!("{problem}, after\n{}", self.last.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines, and whether the power was cut.
    struct Lines(Vec<&'static str>, bool);

    impl Source for Lines {
        fn line(&mut self) -> io::Result<Option<String>> {
            let is_over = self.1 || self.0.is_empty();
            Ok((!is_over).then(|| self.0.remove(0).to_owned()))
        }

        fn cut(&mut self) {
            self.1 = true;
        }
    }

    fn judge(judge: &mut Judge, lines: &str, cut: Option<Cut>) -> Result<(), String> {
        let lines: &'static str = Box::leak(lines.to_owned().into_boxed_str());
        let mut lines = Lines(lines.split('|').collect(), false);
        judge.follow(&mut lines, cut, &mut |_, _| {})
    }

    const FIRST: &str = "run 0 begins|journal found 0 0 0|journal flushed 0 1|run 0 killed";

    #[test]
    fn flushed_records_must_exist_and_further_ones_may() {
        let mut all = Judge::default();
        let second = "run 1 begins last|journal found 0 3 100|journal flushed 0 4|run 1 ended 0";
        judge(&mut all, &format!("{FIRST}|{second}|{WHOLE}"), None).unwrap();
        let Sum {
            own,
            kills,
            flushed,
            surplus,
            ..
        } = all.sum;
        assert_eq!((own, kills, flushed, surplus), (1, 1, 2, 1));
        let lost = "run 1 begins|journal found 0 0 0";
        let error = judge(&mut Judge::default(), &format!("{FIRST}|{lost}"), None).unwrap_err();
        let expected = "1 records of writer 0 were flushed, 0 exist";
        assert!(error.starts_with(expected), "{error}");
        // Records that were read once must exist, too.
        let error = judge(&mut all, "run 0 begins|journal found 0 3 0", None).unwrap_err();
        assert!(error.starts_with("4 records of writer 0"), "{error}");
    }

    #[test]
    fn power_cut_follows_its_record() {
        let lines =
            format!("{FIRST}|run 1 begins last|journal found 0 1 0|journal flushed 0 2|more");
        let mut cut = Judge::default();
        judge(&mut cut, &lines, Some(Cut(1))).unwrap();
        assert_eq!(cut.sum.cuts, 1);
        let error = judge(&mut Judge::default(), &lines, Some(Cut(2))).unwrap_err();
        assert!(error.contains("ended before its runs were done"), "{error}");
    }

    #[test]
    fn empty_and_failed_runs_are_rejected() {
        for (lines, why) in [
            ("run 0 begins|run 0 ended 0", "read or flushed nothing"),
            ("run 0 begins|run 0 ended 36", "a run failed"),
            ("run 0: no such file", "a run failed"),
            ("journal flushed 0 x", "has no numbers"),
            (
                "journal flushed 0 2|journal flushed 0 2",
                "flushed 2 records before 2",
            ),
        ] {
            let error = judge(&mut Judge::default(), lines, None).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
