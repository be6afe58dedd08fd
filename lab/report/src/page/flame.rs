//! Profiles as flame graphs: callers below, and the width of a frame is what was executed
//! in it and above it. The script zooms; without it the whole is shown.

use super::help::help;
use super::profile::{Frame, Profile};
use super::{heading, Section};
use crate::document::{html as document, Span, Table};
use crate::{figures, printable};
use maud::{html, Markup};

/// Smallest share of a frame that is drawn.
const LEAST: f64 = 0.000_5;
/// Smallest share of a frame that has room for its name.
const NARROW: f64 = 0.025;
/// Height of a frame in rem.
const TALL: f64 = 1.2;
/// Most functions that are listed.
const MOST: usize = 12;

/// `None` if no profiles were given.
pub fn section(profiles: &[Profile]) -> Option<Section> {
    if profiles.is_empty() {
        return None;
    }
    let body = html! {
        (heading("Where the instructions go", help("Where the instructions go", &HELP)))
        @for profile in profiles { (graph(profile)) }
    };
    Some(Section::new("profiles", "Profiles", body))
}

const HELP: [&str; 3] = [
    "Every instruction of an operation on the simulated machine, by the function that executed it \
     and the functions that called it: callers stand below, width is instructions. `trapline explain` \
     measures it.",
    "Choose a frame to see it across the whole width, and again to go back. By keyboard: the arrows \
     lead to callers, callees and neighbours, Enter zooms, Escape shows all.",
    "Colours tell components apart: guest, kernel, KVM, VMM. Very narrow frames are not drawn, but \
     counted.",
];

fn graph(profile: &Profile) -> Markup {
    let root = &profile.root;
    let height = format!("{:.1}rem", (root.depth() + 1) as f64 * TALL);
    let title = printable(&profile.title);
    html! {
        h3 { (title) ", " (figures::exact(root.total)) " insn counted for one" }
        (components(profile))
        div.flame role="tree" aria-label={ "Flame graph of " (title) } style={ "height:" (height) } {
            (frame(&Drawn { name: "all", frame: root, left: 0.0, depth: 0 }, root.total))
        }
        p.told aria-live="polite" { }
        details { summary { "The functions that execute most themselves" } (document::table(&functions(profile))) }
    }
}

/// A frame with its position.
struct Drawn<'a> {
    name: &'a str,
    frame: &'a Frame,
    /// Share of the whole to its left.
    left: f64,
    depth: usize,
}

fn frame(at: &Drawn<'_>, whole: f64) -> Markup {
    let width = at.frame.total / whole;
    let name = printable(at.name);
    let (component, function) = name.split_once('`').unwrap_or(("", &name));
    let mut left = at.left;
    let callees = at.frame.callees.iter().map(|(name, callee)| {
        let place = left;
        left += callee.total / whole;
        Drawn {
            name,
            frame: callee,
            left: place,
            depth: at.depth + 1,
        }
    });
    let callees: Vec<Drawn<'_>> = callees.collect();
    html! {
        div.(shade(component)).narrow[width < NARROW] role="treeitem" aria-level=(at.depth + 1) tabindex="-1"
            data-x=(share(at.left)) data-w=(share(width)) data-d=(at.depth)
            style={ "left:" (share(at.left * 100.0)) "%;width:" (share(width * 100.0)) "%;bottom:"
                (share(at.depth as f64 * TALL)) "rem" }
            title={ (name) ": " (figures::exact(at.frame.total)) " insn, "
                (figures::percent(width)) } { (function) }
        @for callee in callees.iter().filter(|callee| callee.frame.total / whole >= LEAST) {
            (frame(callee, whole))
        }
    }
}

/// Formats a position with the digits visible on a wide screen.
fn share(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The class of a component's colour: those that are in most graphs always have the same.
fn shade(component: &str) -> &'static str {
    match component {
        "" => "k0",
        "guest" => "k1",
        "kernel" => "k2",
        "kvm" => "k3",
        "kvm_amd" | "kvm_intel" => "k4",
        "trapline-vmm" | "qemu-system-x86_64" => "k5",
        _ => "k6",
    }
}

/// Renders the instructions of each component with its colour.
fn components(profile: &Profile) -> Markup {
    let mut all: Vec<(String, f64)> = Vec::new();
    for (name, own) in profile.functions() {
        let component = name.split_once('`').map_or("", |(component, _)| component);
        match all.iter_mut().find(|(known, _)| known == component) {
            Some((_, insn)) => *insn += own,
            None => all.push((component.to_owned(), own)),
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    html! {
        p.legend {
            @for (component, insn) in all.iter().filter(|(component, _)| !component.is_empty()) {
                span { i.dot.(shade(component)) {} (printable(component)) " "
                    b { (figures::exact(*insn)) } " " (figures::percent(insn / profile.root.total)) }
            }
        }
    }
}

fn functions(profile: &Profile) -> Table {
    let mut table = Table::new("function", ["insn", "share"]);
    for (name, own) in profile.functions().iter().take(MOST) {
        let share = figures::percent(own / profile.root.total);
        table.row(
            printable(name),
            [figures::exact(*own), share].map(Span::plain),
        );
    }
    table
}
