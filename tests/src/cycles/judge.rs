//! Judges what guests say: each record that was told must be there at every later boot.

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
    /// Records that were told.
    pub told: u64,
    /// Times that a writer's file was found with all that had been told.
    pub found: u64,
    /// Times that there were more records, whose fsync had not been told.
    pub untold: u64,
}

/// Reads what machines say.
#[derive(Debug, Default)]
pub struct Judge {
    /// Result of the runs so far.
    pub sum: Sum,
    /// Number of reported records of each writer.
    told: BTreeMap<u64, u64>,
    /// The current run has found the earlier records.
    looked: bool,
    /// Records that the current run has told.
    now: u64,
    /// The last lines.
    last: Vec<String>,
}

/// Lines of context for people.
const CONTEXT: usize = 40;

/// A source of console lines whose power can be cut.
pub trait Source {
    /// The next line; none when the machine has ended.
    ///
    /// # Errors
    /// It does not end in time, or cannot be read.
    fn line(&mut self) -> io::Result<Option<String>>;

    /// Cuts the power.
    fn cut(&mut self);
}

/// Expected end of a machine that completes its runs.
const WHOLE: &str = "schedule done";

impl Judge {
    /// Follows a machine to its end.
    ///
    /// # Errors
    /// Error, with the last lines before it.
    pub fn follow(
        &mut self,
        source: &mut dyn Source,
        cut: Option<Cut>,
        tell: &mut dyn FnMut(&Sum, &str),
    ) -> Result<(), String> {
        let (mut is_last, mut is_cut, mut is_whole) = (false, false, false);
        while let Some(line) = source
            .line()
            .map_err(|error| self.wrong(&error.to_string()))?
        {
            self.take(&line)?;
            if line.starts_with("run ") || line.starts_with("journal found ") {
                tell(&self.sum, &line);
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

    /// Takes a line.
    fn take(&mut self, line: &str) -> Result<(), String> {
        self.last.push(line.to_owned());
        let surplus = self.last.len().saturating_sub(CONTEXT);
        self.last.drain(..surplus);
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        match words[..] {
            ["run", _, "begins", ..] => (self.looked, self.now) = (false, 0),
            ["run", _, "killed"] => self.ended(|sum| &mut sum.kills)?,
            ["run", _, "ended", "0"] => self.ended(|sum| &mut sum.own)?,
            ["run", ..] => return Err(self.wrong("a run did not end as it should")),
            ["journal", "told", ..] => match (number(2), number(3)) {
                (Some(writer), Some(records)) => self.tell(writer, records)?,
                _ => return Err(self.wrong("what was told has no numbers")),
            },
            ["journal", "found", ..] => match (number(2), number(3)) {
                (Some(writer), Some(records)) => self.find(writer, records)?,
                _ => return Err(self.wrong("what was found has no numbers")),
            },
            _ => {}
        }
        Ok(())
    }

    fn ended(&mut self, of: impl Fn(&mut Sum) -> &mut u32) -> Result<(), String> {
        if !self.looked || self.now == 0 {
            return Err(self.wrong("a run ended in which nothing was found or told"));
        }
        *of(&mut self.sum) += 1;
        Ok(())
    }

    fn tell(&mut self, writer: u64, records: u64) -> Result<(), String> {
        let before = self.told.insert(writer, records).unwrap_or(0);
        if records <= before {
            return Err(self.wrong(&format!("writer {writer} told {before} before {records}")));
        }
        self.sum.told += 1;
        self.now += 1;
        Ok(())
    }

    fn find(&mut self, writer: u64, records: u64) -> Result<(), String> {
        let told = self.told.get(&writer).copied().unwrap_or(0);
        if records < told {
            let lost = format!("of {told} flushed records of writer {writer} {records} are there");
            return Err(self.wrong(&lost));
        }
        self.looked = true;
        self.sum.found += 1;
        self.sum.untold += u64::from(records > told);
        // They were seen, so they must stay.
        self.told.insert(writer, records);
        Ok(())
    }

    fn wrong(&self, what: &str) -> String {
        format!("{what}, after\n{}", self.last.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines, and whether the power was cut.
    struct Said(Vec<&'static str>, bool);

    impl Source for Said {
        fn line(&mut self) -> io::Result<Option<String>> {
            let is_over = self.1 || self.0.is_empty();
            Ok((!is_over).then(|| self.0.remove(0).to_owned()))
        }

        fn cut(&mut self) {
            self.1 = true;
        }
    }

    fn judge(judge: &mut Judge, said: &str, cut: Option<Cut>) -> Result<(), String> {
        let said: &'static str = Box::leak(said.to_owned().into_boxed_str());
        let mut said = Said(said.split('|').collect(), false);
        judge.follow(&mut said, cut, &mut |_, _| {})
    }

    const FIRST: &str = "run 0 begins|journal found 0 0 0|journal told 0 1|run 0 killed";

    #[test]
    fn what_was_told_must_be_there_and_more_may_be() {
        let mut all = Judge::default();
        let second = "run 1 begins last|journal found 0 3 100|journal told 0 4|run 1 ended 0";
        judge(&mut all, &format!("{FIRST}|{second}|{WHOLE}"), None).unwrap();
        let Sum {
            own,
            kills,
            told,
            untold,
            ..
        } = all.sum;
        assert_eq!((own, kills, told, untold), (1, 1, 2, 1));
        let lost = "run 1 begins|journal found 0 0 0";
        let told = judge(&mut Judge::default(), &format!("{FIRST}|{lost}"), None).unwrap_err();
        assert!(
            told.starts_with("of 1 flushed records of writer 0 0 are there"),
            "{told}"
        );
        // Also what was found once.
        let told = judge(&mut all, "run 0 begins|journal found 0 3 0", None).unwrap_err();
        assert!(told.starts_with("of 4 flushed"), "{told}");
    }

    #[test]
    fn a_power_cut_falls_where_it_should_or_is_missed() {
        let said = format!("{FIRST}|run 1 begins last|journal found 0 1 0|journal told 0 2|more");
        let mut cut = Judge::default();
        judge(&mut cut, &said, Some(Cut(1))).unwrap();
        assert_eq!(cut.sum.cuts, 1);
        let told = judge(&mut Judge::default(), &said, Some(Cut(2))).unwrap_err();
        assert!(told.contains("ended before its runs were done"), "{told}");
    }

    #[test]
    fn runs_that_do_nothing_or_end_otherwise_are_wrong() {
        for (said, why) in [
            ("run 0 begins|run 0 ended 0", "nothing was found or told"),
            ("run 0 begins|run 0 ended 36", "did not end as it should"),
            ("run 0: no such file", "did not end as it should"),
            ("journal told 0 x", "has no numbers"),
            ("journal told 0 2|journal told 0 2", "told 2 before 2"),
        ] {
            let told = judge(&mut Judge::default(), said, None).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
