//! Numbers as ranges, like `1-3,7`, as array jobs are written.

use std::fmt::Write;

/// Returns ascending numbers as ranges.
pub fn ranges(numbers: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = numbers;
    while let [first, ..] = rest {
        let is_next =
            |(place, number): &(usize, &u32)| **number as usize == *first as usize + place;
        let length = rest.iter().enumerate().take_while(is_next).count();
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = match length {
            1 => write!(text, "{comma}{first}"),
            _ => write!(text, "{comma}{first}-{}", first + length as u32 - 1),
        };
        rest = &rest[length..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_a_range() {
        for (numbers, text) in [
            (&[][..], ""),
            (&[4], "4"),
            (&[1, 2, 3], "1-3"),
            (&[1, 3, 4, 9], "1,3-4,9"),
        ] {
            assert_eq!(ranges(numbers), text);
        }
    }
}
