//! Recipe of a build: a file in the root with the directory, `make`, and its arguments, one per line.

use std::fs;
use std::path::PathBuf;

/// File in the root.
const RECIPE: &str = "/trapline/recipe";

/// Command of a build.
#[derive(Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Working directory.
    pub directory: PathBuf,
    /// Program.
    pub make: PathBuf,
    /// Arguments, without the number of jobs.
    pub arguments: Vec<String>,
}

impl Recipe {
    /// Reads the recipe of this root.
    ///
    /// # Errors
    /// There is none, or it is invalid.
    pub fn read() -> Result<Self, String> {
        let text = fs::read_to_string(RECIPE);
        let text = text.map_err(|error| format!("{RECIPE}: {error}: not a build root"))?;
        Self::parse(&text).ok_or_else(|| format!("{RECIPE}: expected a directory and a program"))
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
    fn recipes_have_one_word_per_line() {
        let recipe = Recipe::parse("/build\n/usr/bin/make\n-s\nA=b c\n").unwrap();
        assert_eq!(recipe.directory, PathBuf::from("/build"));
        assert_eq!(recipe.arguments, ["-s", "A=b c"]);
        assert_eq!(Recipe::parse("/build\n"), None);
    }
}
