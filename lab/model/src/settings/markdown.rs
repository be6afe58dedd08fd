//! The table in the documentation.

use super::{Options, SETTINGS};

/// Returns the table as Markdown, for docs/settings.md.
pub fn markdown() -> String {
    let mut text = "| setting | value | default | option of | |\n|-|-|-|-|-|\n".to_owned();
    for setting in SETTINGS {
        let option = match setting.options {
            Options::Run => "`run`",
            Options::Command => "its command",
            _ => "every command that measures",
        };
        let default = setting
            .default
            .map_or(String::new(), |it| format!("`{it}`"));
        text.push_str(&format!(
            "| `{}` | {} | {default} | {option} | {} |\n",
            setting.name,
            setting.expected(),
            setting.help,
        ));
    }
    text
}
