//! A host: a machine on which boots are measured.

use std::collections::BTreeMap;

/// A host. Names and ids distinguish hosts; two of them are of one kind if their facts are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Identity, as hexadecimal digits. The machine cannot be found from it.
    pub id: String,
    /// Name that the user gave it; empty if none was given.
    pub name: String,
    /// Hardware, kernel and settings: only those of a fixed list.
    pub facts: BTreeMap<String, String>,
}

impl Host {
    /// Returns the name, or else the start of the id.
    pub fn label(&self) -> &str {
        match self.name.as_str() {
            "" => self.id.get(..8).unwrap_or(&self.id),
            name => name,
        }
    }

    /// Returns whether both hosts are of one kind: all their facts are equal.
    pub fn is_like(&self, other: &Self) -> bool {
        self.facts == other.facts
    }
}

/// Returns whether `text` can be the name of a host: up to 63 letters, digits, hyphens, dots and underscores, as of
/// host names, so that it can stand in tables and in the text of an owner.
pub fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=63).contains(&text.len()) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_name_has_the_start_of_its_id() {
        let mut host = Host {
            id: "0123456789abcdef".to_owned(),
            ..Host::default()
        };
        assert_eq!(host.label(), "01234567");
        host.name = "rack-1".to_owned();
        assert_eq!(host.label(), "rack-1");
    }

    #[test]
    fn names_are_words() {
        assert!(is_name("rack-1.lab_2") && is_name(&"x".repeat(63)));
        for text in ["", "two words", "ü", "a/b", "a\n", &"x".repeat(64)] {
            assert!(!is_name(text), "{text:?}");
        }
    }
}
