//! Texts of stores, plans, baselines and guests in a line of ours, which they must not end or reorder.

/// Returns whether a character changes what is around it: control characters, which include most ends of lines, the
/// other two ends, and controls of the direction of writing.
pub fn is_control(c: char) -> bool {
    matches!(
        c,
        '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    ) || c.is_control()
}

/// Returns `text` as part of a line, with spaces in place of control characters.
pub fn one_line(text: impl Into<String>) -> String {
    let text = text.into();
    if text.contains(is_control) {
        text.replace(is_control, " ")
    } else {
        text
    }
}
