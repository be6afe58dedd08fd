//! Flame graphs of profiles: callers are below their callees, and the width of a frame is the number of
//! instructions in it and above it. The file is self-contained.

use super::page::Page;
use super::stacks::{self, frame, PER};
use crate::failure::Failure;
use crate::output_file::OutputFile;
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Options};
use trapline_profile::text::number;
use trapline_profile::{Function, Profile};

/// Draws the stacks of a profile into a file, or the difference of two.
///
/// # Errors
/// The file cannot be written, or there are no stacks.
pub fn draw(file: OutputFile, page: &Page<'_>) -> Result<(), Failure> {
    let drawn = picture(page);
    let picture =
        drawn.map_err(|error| Failure::new(format!("cannot draw a flame graph: {error}")))?;
    file.write(&picture)
}

/// Font size in pixels, and width of a character relative to it.
const FONT: usize = 12;
const CHARACTER: f64 = 0.6;

fn picture(page: &Page<'_>) -> std::io::Result<String> {
    let profile = page.first.profile;
    let title = page.title(&page.first);
    let mut palette = palette(profile);
    let mut options = Options::default();
    options.title = format!("{title}: {} insn per operation", number(profile.total));
    options.count_name = "insn".to_owned();
    match &page.second {
        None => options.palette_map = Some(&mut palette),
        Some(second) => {
            let other = number(second.profile.total);
            options.title = format!("{title} → {}: {other}", second.config);
            options.count_name = format!("insn per {} operations", number(PER));
        }
    }
    // Filled by `with_legend`.
    options.subtitle = Some(String::new());
    options.name_type = "Function:".to_owned();
    options.bgcolors = Some(BackgroundColor::Flat(Color::from(PAPER)));
    options.font_type = "monospace".to_owned();
    options.font_size = FONT;
    options.font_width = CHARACTER;
    options.min_width = 0.0;
    let lines = stacks::folded(page);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    let svg = self_contained(&String::from_utf8_lossy(&svg));
    let legend = match &page.second {
        None => legend(profile),
        Some(second) => totals(&format!(
            "width: {}; red: more than in {}, blue: fewer; callers are below",
            second.config, page.first.config
        )),
    };
    Ok(with_legend(&svg, &legend))
}

/// Returns the colour of each label.
fn palette(profile: &Profile) -> PaletteMap {
    let mut palette = PaletteMap::default();
    for function in profile.stacks.iter().flat_map(|stack| &stack.frames) {
        palette.insert(frame(function), shade(function));
    }
    palette.insert("", Color::from(ALL));
    palette
}

/// Removes references to other files: document type and comments.
fn self_contained(svg: &str) -> String {
    let mut left = svg;
    let mut kept = String::with_capacity(svg.len());
    for (start, end) in [("<!DOCTYPE", ">"), ("<!--", "-->"), ("<!--", "-->")] {
        let Some(at) = left.find(start) else { continue };
        let Some(length) = left[at..].find(end) else {
            continue;
        };
        kept.push_str(&left[..at]);
        left = &left[at + length + end.len()..];
    }
    kept + left
}

/// Returns the legend: colours of components, and totals.
fn legend(profile: &Profile) -> String {
    let mut legend = String::new();
    let mut x = 10;
    let executed = profile.components().into_iter();
    for (component, _) in executed.filter(|(_, insn)| *insn > 0.0) {
        let Color { r, g, b } = base(component).into();
        let name = component.replace('&', "&amp;").replace('<', "&lt;");
        let text = x + 14;
        legend += &format!(
            "<rect x=\"{x}\" y=\"39\" width=\"10\" height=\"10\" fill=\"rgb({r},{g},{b})\"/>\
             <text x=\"{text}\" y=\"48\">{name}</text>\n"
        );
        x = text + (component.chars().count() + 2) * FONT * 6 / 10;
    }
    let (counted, operations) = (profile.counted as f64, profile.operations as f64);
    legend
        + &totals(&format!(
            "{} insn in {} operations; callers are below",
            number(counted),
            number(operations)
        ))
}

/// Returns a text at the right edge.
fn totals(text: &str) -> String {
    format!(
        "<svg x=\"100%\" overflow=\"visible\"><text x=\"-10\" y=\"48\" text-anchor=\"end\">\
         {text}</text></svg>\n"
    )
}

/// Adds the legend below the title.
fn with_legend(svg: &str, legend: &str) -> String {
    match svg.find("<svg id=\"frames\"") {
        Some(frames) => [&svg[..frames], legend, &svg[frames..]].concat(),
        None => svg.to_owned(),
    }
}

/// Red, green, blue.
type Rgb = (u8, u8, u8);

const PAPER: Rgb = (250, 250, 250);
const ALL: Rgb = (225, 225, 225);

/// Returns the colour of a component; common components have fixed ones.
fn base(component: &str) -> Rgb {
    match component {
        "guest" => (136, 204, 120),
        "kernel" => (245, 178, 98),
        "kvm" => (240, 128, 112),
        "kvm_amd" | "kvm_intel" => (226, 150, 200),
        "trapline-vmm" | "qemu-system-x86_64" => (126, 176, 232),
        other => OTHERS[hash(other) as usize % OTHERS.len()],
    }
}

const OTHERS: [Rgb; 5] = [
    (128, 206, 206),
    (186, 166, 232),
    (222, 210, 110),
    (176, 196, 176),
    (206, 178, 152),
];

/// Returns the colour of a function, a shade of its component's.
fn shade(function: &Function) -> Color {
    let off = (hash(&function.name) % 25) as u8;
    let (r, g, b) = base(&function.component);
    let lighter = |part: u8| part.saturating_add(off);
    (lighter(r), lighter(g), lighter(b)).into()
}

/// FNV-1a, which is equal in every run and on every host.
fn hash(text: &str) -> u32 {
    let mix = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, mix)
}

#[cfg(test)]
mod tests {
    use super::super::page::Explained;
    use super::*;
    use trapline_abi::Op;
    use trapline_model::EnvironmentId;
    use trapline_profile::{FunctionCost, Stack};

    fn page<'a>(first: &'a Profile, second: Option<&'a Profile>) -> Page<'a> {
        let explained = |environment: EnvironmentId, profile| Explained {
            config: environment.into(),
            profile,
        };
        Page {
            op: Op::PortOut,
            first: explained(EnvironmentId::SIM_KVM, first),
            second: second.map(|profile| explained(EnvironmentId::SIM_QEMU_KVM, profile)),
        }
    }

    fn function(component: &str, name: &str) -> Function {
        Function {
            component: component.to_owned(),
            name: name.to_owned(),
        }
    }

    fn profile() -> Profile {
        let functions = [
            function("trapline-vmm", "<[u8; 8] as Debug>::fmt"),
            function("kernel", "entry_SYSCALL_64"),
        ];
        let stacks = vec![
            Stack {
                frames: functions[..1].to_vec(),
                count: 1,
            },
            Stack {
                frames: functions.to_vec(),
                count: 99_999,
            },
        ];
        let items = functions.map(|function| FunctionCost {
            function,
            insn: 1.0,
        });
        Profile {
            total: 3320.1,
            operations: 30,
            counted: 100_000,
            exits: 30,
            items: items.to_vec(),
            stacks,
            ..Profile::default()
        }
    }

    #[test]
    fn a_flame_graph_is_self_contained_and_complete() {
        let profile = profile();
        let page = page(&profile, None);
        let svg = picture(&page).unwrap();
        assert!(svg.contains("3,320.10 insn per operation"), "{svg}");
        assert!(svg.contains("total_samples=\"100000\""), "{svg}");
        let frames = "trapline-vmm`&lt;[u8, 8] as Debug&gt;::fmt (100,000 insn, 100.00%)";
        assert!(svg.contains(frames), "{svg}");
        assert!(svg.contains(">trapline-vmm</text>"), "no legend: {svg}");
        assert!(!svg.contains("<!DOCTYPE"), "{svg}");
        assert!(!svg.contains("flamegraphs.html"), "{svg}");
        assert_eq!(svg, picture(&page).unwrap());
    }

    #[test]
    fn a_differential_flame_graph_shows_both_totals() {
        let before = profile();
        let mut after = profile();
        after.stacks[1].count *= 2;
        after.total *= 2.0;
        let svg = picture(&page(&before, Some(&after))).unwrap();
        let title = "exits/port-out in sim/kvm → sim/qemu-kvm: 6,640.20";
        assert!(svg.contains(title), "{svg}");
        assert!(svg.contains("red: more than in sim/kvm"), "{svg}");
        let frame =
            "kernel`entry_SYSCALL_64 (6,666,600 insn per 1,000 operations, 100.00%; +50.00%)";
        assert!(svg.contains(frame), "{svg}");
        assert!(!svg.contains("<!DOCTYPE"), "{svg}");
    }
}
