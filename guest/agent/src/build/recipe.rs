//! What is to be made: a file of the root, a word a line. The first is the directory, the
//! second `make`, the others are its arguments.

use std::fs;
use std::path::PathBuf;

/// Where the root has it.
const RECIPE: &str = "/trapline/recipe";

/// What is to be made.
#[derive(Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Where.
    pub directory: PathBuf,
    /// By which program.
    pub make: PathBuf,
    /// Its arguments, without the number of jobs.
    pub arguments: Vec<String>,
}

impl Recipe {
    /// The recipe of this root.
    ///
    /// # Errors
    /// There is none.
    pub fn read() -> Result<Self, String> {
        let text = fs::read_to_string(RECIPE);
        let text = text.map_err(|error| format!("{RECIPE}: {error}: this root builds nothing"))?;
        Self::parse(&text).ok_or_else(|| format!("{RECIPE}: name a directory and a program"))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter(|line| !line.is_empty());
        Some(Self {
            directory: lines.next()?.into(),
            make: lines.next()?.into(),
            arguments: lines.map(str::to_owned).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stands_on_a_line() {
        let recipe = Recipe::parse("/build\n/usr/bin/make\n-s\nA=b c\n").unwrap();
        assert_eq!(recipe.directory, PathBuf::from("/build"));
        assert_eq!(recipe.arguments, ["-s", "A=b c"]);
        assert_eq!(Recipe::parse("/build\n"), None);
    }
}
