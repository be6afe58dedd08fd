//! Call stacks in the formats of other tools: folded stacks, speedscope, and the output of `perf script`.

use super::page::Page;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use trapline_model::{names, Config};
use trapline_profile::{Function, Profile, Stack};

/// Schema of speedscope's files.
const SPEEDSCOPE: &str = "https://www.speedscope.app/file-format-schema.json";

/// Operations of which counts that are compared are the instructions. Tools read integers.
pub const PER: f64 = 1000.0;

/// Returns the label of a function in a frame.
pub fn label(function: &Function) -> String {
    format!("{}`{}", function.component, function.name)
}

/// Returns the label of a function without the separator of frames, which may be part of a type name.
pub fn frame(function: &Function) -> String {
    label(function).replace(';', ",")
}

/// Returns the frames of a stack in one line, the outermost first.
fn fold(stack: &Stack) -> String {
    let frames: Vec<_> = stack.frames.iter().map(frame).collect();
    frames.join(";")
}

/// Returns the stacks of a profile with the instructions of all operations, or those of two profiles with
/// both counts, per [`PER`] operations.
pub fn folded(page: &Page<'_>) -> Vec<String> {
    match &page.second {
        None => {
            let stacks = page.first.profile.stacks.iter();
            stacks
                .map(|stack| format!("{} {}", fold(stack), stack.count))
                .collect()
        }
        Some(second) => both(page.first.profile, second.profile),
    }
}

fn both(before: &Profile, after: &Profile) -> Vec<String> {
    let mut counts: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for (side, profile) in [before, after].into_iter().enumerate() {
        for stack in &profile.stacks {
            let count = stack.count as f64 * PER / profile.operations as f64;
            counts.entry(fold(stack)).or_default()[side] += count;
        }
    }
    let lines = counts.into_iter();
    lines
        .map(|(frames, [before, after])| format!("{frames} {before:.0} {after:.0}"))
        .collect()
}

/// Returns a file of speedscope with a profile for each configuration; weights are instructions per
/// operation.
pub fn speedscope(page: &Page<'_>) -> Value {
    let mut frames = Frames::default();
    let profiles: Vec<_> = page
        .explained()
        .map(|explained| sampled(page.title(explained), explained.profile, &mut frames))
        .collect();
    json!({
        "$schema": SPEEDSCOPE,
        "exporter": concat!("trapline@", env!("CARGO_PKG_VERSION")),
        "name": names::path(page.op),
        "activeProfileIndex": 0,
        "shared": { "frames": frames.listed },
        "profiles": profiles,
    })
}

/// The frames of all profiles in a file of speedscope.
#[derive(Default)]
struct Frames {
    listed: Vec<Value>,
    indices: BTreeMap<Function, usize>,
}

impl Frames {
    fn index(&mut self, function: &Function, profile: &Profile) -> usize {
        let next = self.listed.len();
        let index = *self.indices.entry(function.clone()).or_insert(next);
        if index == next {
            let Function { component, name } = function;
            self.listed.push(match profile.source(function) {
                None => json!({ "name": name, "file": component }),
                Some(source) => json!({ "name": name, "file": source.file, "line": source.line }),
            });
        }
        index
    }
}

fn sampled(name: String, profile: &Profile, frames: &mut Frames) -> Value {
    let operations = profile.operations as f64;
    let stacks = profile.stacks.iter();
    let samples: Vec<Vec<usize>> = stacks
        .clone()
        .map(|stack| {
            stack
                .frames
                .iter()
                .map(|it| frames.index(it, profile))
                .collect()
        })
        .collect();
    let weights: Vec<f64> = stacks
        .map(|stack| stack.count as f64 / operations)
        .collect();
    json!({
        "type": "sampled",
        "name": name,
        "unit": "none",
        "startValue": 0,
        "endValue": weights.iter().sum::<f64>(),
        "samples": samples,
        "weights": weights,
    })
}

/// Returns the text of `perf script` with an event for each stack, whose period is its number of
/// instructions in all operations. The configuration takes the place of the program's name.
pub fn perf_script(page: &Page<'_>) -> String {
    let events = page.explained().flat_map(|explained| {
        let stacks = explained.profile.stacks.iter();
        stacks.map(|stack| event(&explained.config, stack))
    });
    events.collect()
}

fn event(config: &Config, stack: &Stack) -> String {
    let innermost_first = stack.frames.iter().rev();
    let frames = innermost_first
        .map(|function| format!("\t{:16x} {} ({})\n", 0, function.name, function.component));
    format!(
        "{config} 1/1 0.000000: {} instructions:\n{}\n",
        stack.count,
        frames.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::super::page::Explained;
    use super::*;
    use inferno::collapse::perf::{Folder, Options};
    use inferno::collapse::Collapse;
    use trapline_abi::Op;
    use trapline_model::EnvironmentId;

    fn function(component: &str, name: &str) -> Function {
        Function {
            component: component.to_owned(),
            name: name.to_owned(),
        }
    }

    fn profile(operations: u64, counts: [u64; 2]) -> Profile {
        let frames = [
            function("trapline-vmm", "<[u8; 8] as Debug>::fmt"),
            function("libc", "[+0x1f0]"),
        ];
        let stacks = counts.iter().zip(1..).map(|(count, depth)| Stack {
            frames: frames[..depth].to_vec(),
            count: *count,
        });
        Profile {
            operations,
            stacks: stacks.collect(),
            ..Profile::default()
        }
    }

    fn explained(config: EnvironmentId, profile: &Profile) -> Explained<'_> {
        Explained {
            config: config.into(),
            profile,
        }
    }

    fn page<'a>(first: &'a Profile, second: Option<&'a Profile>) -> Page<'a> {
        Page {
            op: Op::PortOut,
            first: explained(EnvironmentId::SIM_KVM, first),
            second: second.map(|profile| explained(EnvironmentId::SIM_QEMU_KVM, profile)),
        }
    }

    const OUTER: &str = "trapline-vmm`<[u8, 8] as Debug>::fmt";

    #[test]
    fn folded_stacks_have_one_count_or_two() {
        let (first, second) = (profile(10, [5, 30]), profile(4, [5, 0]));
        let lines = folded(&page(&first, None));
        let both = format!("{OUTER};libc`[+0x1f0]");
        assert_eq!(lines, [format!("{OUTER} 5"), format!("{both} 30")]);
        let lines = folded(&page(&first, Some(&second)));
        let expected = [format!("{OUTER} 500 1250"), format!("{both} 3000 0")];
        assert_eq!(lines, expected);
    }

    /// Checks what speedscope's schema requires.
    #[test]
    fn speedscope_files_refer_to_their_frames() {
        let (first, second) = (profile(10, [5, 30]), profile(4, [5, 1]));
        let file = speedscope(&page(&first, Some(&second)));
        assert_eq!(file["$schema"], SPEEDSCOPE);
        let frames = file["shared"]["frames"].as_array().unwrap();
        assert_eq!(frames.len(), 2);
        assert_eq!(frames[1], json!({ "name": "[+0x1f0]", "file": "libc" }));
        let profiles = file["profiles"].as_array().unwrap();
        let expected = [
            "exits/port-out in sim/kvm",
            "exits/port-out in sim/qemu-kvm",
        ];
        for (profile, name) in profiles.iter().zip(expected) {
            assert_eq!(profile["name"], name);
            assert_eq!(profile["type"], "sampled");
            assert_eq!(profile["samples"], json!([[0], [0, 1]]));
        }
        assert_eq!(profiles[0]["weights"], json!([0.5, 3.0]));
        assert_eq!(profiles[0]["endValue"], 3.5);
    }

    #[test]
    fn perf_script_is_read_by_flame_graph_tools() {
        let profile = profile(10, [5, 30]);
        let text = perf_script(&page(&profile, None));
        let mut folded = Vec::new();
        let mut folder = Folder::from(Options::default());
        folder.collapse(text.as_bytes(), &mut folded).unwrap();
        let folded = String::from_utf8(folded).unwrap();
        let outer = "sim/kvm;<[u8: 8] as Debug>::fmt";
        let expected = format!("{outer} 5\n{outer};[+0x1f0] 30\n");
        assert_eq!(folded, expected);
    }
}
