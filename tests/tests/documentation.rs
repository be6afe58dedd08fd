//! Links between pages lead to existing files and headings, and sources mention existing pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use trapline_tests::root;

/// README, CHANGELOG and all pages below `docs`.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    for directory in ["docs", "docs/internals"] {
        let entries = fs::read_dir(root().join(directory)).expect("directory exists");
        let files = entries.map(|entry| entry.expect("file is readable").path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|name| name == "md")));
    }
    pages
}

/// Returns the lines outside fenced and indented code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence && !line.starts_with("    ")
    })
}

/// Returns the anchor that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.collect()
}

fn has_heading(page: &Path, wanted: &str) -> bool {
    let text = fs::read_to_string(page).expect("page is UTF-8");
    let mut headings = prose(&text).filter(|line| line.starts_with('#'));
    headings.any(|line| anchor(line) == wanted)
}

/// Returns the targets of all links of a page that have no scheme.
fn relative_links(text: &str) -> Vec<String> {
    let joined = prose(text).collect::<Vec<_>>().join(" ");
    let targets = joined.split("](").skip(1);
    let targets = targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    targets.filter(|target| !target.contains("://")).collect()
}

fn broken_links(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).expect("page is UTF-8");
    let mut links = relative_links(&text);
    links.retain(|link| {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = match file {
            "" => page.to_owned(),
            file => page.parent().expect("page has a parent").join(file),
        };
        !target.exists() || (!heading.is_empty() && !has_heading(&target, heading))
    });
    let page = page.strip_prefix(root()).unwrap_or(page).display();
    links.iter().map(|link| format!("{page}: {link}")).collect()
}

#[test]
fn relative_links_lead_to_files_and_headings() {
    let broken: Vec<_> = pages().iter().flat_map(|page| broken_links(page)).collect();
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_in_the_index() {
    let index = fs::read_to_string(root().join("docs/README.md")).expect("index exists");
    let links = relative_links(&index);
    let missing: Vec<_> = pages()
        .iter()
        .filter_map(|page| page.strip_prefix(root().join("docs")).ok())
        .map(|page| page.display().to_string())
        .filter(|page| page != "README.md" && !links.contains(page))
        .collect();
    assert!(
        missing.is_empty(),
        "pages missing in docs/README.md: {missing:?}"
    );
}

/// Returns the paths `docs/….md` that Rust sources below `directory` mention.
fn mentioned_pages(directory: &Path, pages: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("directory exists") {
        let path = entry.expect("file is readable").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            mentioned_pages(&path, pages);
        } else if path.extension().is_some_and(|name| name == "rs") {
            let text = fs::read_to_string(&path).expect("source is UTF-8");
            for rest in text.split("docs/").skip(1) {
                let is_path = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
                let end = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
                let page = rest[..end].trim_end_matches('.');
                if page.ends_with(".md") {
                    pages.insert(page.to_owned());
                }
            }
        }
    }
}

#[test]
fn pages_that_sources_mention_exist() {
    let mut pages = BTreeSet::new();
    for layer in ["guest", "vmm", "lab"] {
        mentioned_pages(&root().join(layer), &mut pages);
    }
    assert!(pages.contains("json.md"), "{pages:?}");
    pages.retain(|page| !root().join("docs").join(page).exists());
    assert!(pages.is_empty(), "pages that do not exist: {pages:?}");
}

#[test]
fn anchors_are_those_of_github() {
    assert_eq!(anchor("## Xen (`sim/xen-*`)"), "xen-simxen-");
    assert_eq!(anchor("# How late is it?"), "how-late-is-it");
}
