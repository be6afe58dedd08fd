//! Links between pages lead to existing files and headings, and sources mention existing pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use trapline_tests::recordings::{self, examples_of, pages, pages_with_examples};
use trapline_tests::root;

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

/// `make docs` renders them again.
#[test]
fn examples_show_what_was_recorded() {
    let pages = pages_with_examples();
    assert!(pages.contains(&root().join("README.md")), "{pages:?}");
    for page in pages {
        let rendered = recordings::render(&page, &recordings::read(&page));
        let rendered = rendered.unwrap_or_else(|wrong| {
            panic!("{}: run make docs\n{}", page.display(), wrong.join("\n\n"))
        });
        let text = fs::read_to_string(&page).expect("page is UTF-8");
        assert!(text == rendered, "{}: run make docs", page.display());
    }
}

/// Units of measured figures, and signs of a multiple.
const UNITS: [&str; 9] = [
    "insn",
    "instructions",
    "ns",
    "us",
    "µs",
    "cycles",
    "x",
    "×",
    "times",
];

/// Returns the figures in a line: numbers with a unit of [`UNITS`] or with a thousands separator that are no value of an
/// option of a command.
fn figures(line: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let mut figures = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let before = &rest[..start];
        let is_word = before.ends_with(|c: char| c.is_alphanumeric());
        let is_value = before
            .split_whitespace()
            .last()
            .is_some_and(|word| word.starts_with("--"));
        let number = &rest[start..];
        let end = number.find(|c| !is_part(c)).unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        let unit = after.trim_start_matches(' ');
        let length = unit.find(|c: char| !c.is_alphanumeric() && c != '×');
        let unit = &unit[..length.unwrap_or(unit.len())];
        let is_grouped = number.trim_end_matches(',').contains(',');
        if !is_word && !is_value && (is_grouped || UNITS.contains(&unit)) {
            figures.push(number);
        }
        rest = after;
    }
    figures
}

#[test]
fn figures_are_numbers_with_units_or_separators() {
    for (line, expected) in [
        ("a port write takes 3,264 there", vec!["3,264"]),
        (
            "it takes 12.5 ns, 3 us, 1.35 times and 4× it",
            vec!["12.5", "3", "1.35", "4"],
        ),
        (
            "every 20 ms, 1024 requests, x2APIC, 0x5f, sim/x86, 1, 2 and 3",
            vec![],
        ),
        ("    trapline irq --threshold 10us --order 0,9", vec![]),
        ("    port-out   3,264 1,088×", vec!["3,264", "1,088"]),
    ] {
        assert_eq!(figures(line), expected, "{line}");
    }
}

/// Figures are recorded output, which `make docs` renews.
#[test]
fn pages_have_no_figures_that_nothing_checks() {
    let mut found = Vec::new();
    for page in pages() {
        if page.ends_with("CHANGELOG.md") {
            continue;
        }
        let text = fs::read_to_string(&page).expect("page is UTF-8");
        let recorded: BTreeSet<_> = examples_of(&page)
            .into_iter()
            .flat_map(|example| example.lines)
            .collect();
        let page = page
            .strip_prefix(root())
            .expect("a page of this repository");
        let lines = text.lines().enumerate();
        for (_, line) in lines.filter(|(number, _)| !recorded.contains(number)) {
            let figures = figures(line);
            found.extend(
                figures
                    .iter()
                    .map(|figure| format!("{}: {figure}: {line}", page.display())),
            );
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// scripts/setup.sh reads that of the workspace.
#[test]
fn the_oldest_compiler_of_the_readme_is_that_of_the_workspace() {
    let read = |name| fs::read_to_string(root().join(name)).expect("file exists");
    let manifest = read("Cargo.toml");
    let version = manifest.split("rust-version = \"").nth(1);
    let version = version.and_then(|rest| rest.split('"').next());
    let words = format!("({} or later: ", version.expect("a version"));
    assert!(read("README.md").contains(&words), "{words}");
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
