//! The table in the documentation.

use super::Feature;
use crate::environment::EnvironmentId;

/// Features that the table shows, with headings.
const COLUMNS: [(&str, Feature); 9] = [
    ("by default", Feature::Default),
    ("`memory`", Feature::Caches),
    ("`block`, `files`", Feature::Disk),
    ("`net`", Feature::Network),
    ("of these, vsock", Feature::Vsock),
    ("between guests", Feature::Packets),
    ("`populate`", Feature::Hotplug),
    ("kernel builds", Feature::KernelBuild),
    ("`explain`", Feature::Profiles),
];

/// Returns the table of environments as Markdown, for docs/environments.md.
pub fn markdown() -> String {
    let headings = COLUMNS.map(|(heading, _)| heading).join(" | ");
    let mut text = format!(
        "| environment | {headings} |\n|-{}|\n",
        "|-".repeat(COLUMNS.len())
    );
    for id in EnvironmentId::BUILT_IN {
        let marks = COLUMNS.map(|(_, feature)| if id.has(feature) { "x" } else { "" });
        text.push_str(&format!("| `{id}` | {} |\n", marks.join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_environments_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/environments.md");
        let page = std::fs::read_to_string(path).unwrap();
        let start = page.find("| environment |").unwrap();
        let table = page[start..].split("\n\n").next().unwrap().trim_end();
        if std::env::var_os("TRAPLINE_BLESS").is_some() {
            let renewed = page.replace(table, markdown().trim_end());
            std::fs::write(path, renewed).unwrap();
        } else {
            assert_eq!(table, markdown().trim_end(), "docs/environments.md");
        }
    }
}
