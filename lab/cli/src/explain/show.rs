//! Output of profiles.

use super::page::{Explained, Page};
use super::stacks;
use crate::args::ProfileFormat;
use crate::failure::Failure;
use crate::terminal;
use serde_json::{json, Value};
use trapline_abi::Op;
use trapline_model::names;
use trapline_profile::source::Sources;
use trapline_profile::{text, Event, Function, Profile, StageProfile};

/// Prints pages. In JSON a single page is an object; several are a list in an object.
///
/// # Errors
/// Output cannot be written.
pub fn print(pages: &[Page<'_>], is_one: bool, format: ProfileFormat) -> Result<(), Failure> {
    match (format, pages) {
        (ProfileFormat::Folded, _) => {
            let lines = pages.iter().flat_map(stacks::folded);
            terminal::print_text(&lines.map(|line| line + "\n").collect::<String>())
        }
        (ProfileFormat::PerfScript, _) => {
            terminal::print_text(&pages.iter().map(stacks::perf_script).collect::<String>())
        }
        (ProfileFormat::Speedscope, _) => pages
            .iter()
            .try_for_each(|page| terminal::print_json(&stacks::speedscope(page))),
        (ProfileFormat::Json, [page]) if is_one => terminal::print_json(&page.json()),
        (ProfileFormat::Json, _) => {
            let profiles: Vec<_> = pages.iter().map(Page::json).collect();
            terminal::print_json(&json!({ "ledgers": profiles }))
        }
        (ProfileFormat::Table, _) => {
            let texts: Vec<_> = pages.iter().map(Page::text).collect();
            terminal::print_text(&texts.join("\n"))
        }
    }
}

impl Page<'_> {
    fn text(&self) -> String {
        let width = terminal::width();
        let first = &self.first;
        match &self.second {
            None => text::table(&self.title(first), first.profile, width),
            Some(second) => text::changes(
                (&self.title(first), &self.title(second)),
                (first.profile, second.profile),
                width,
            ),
        }
    }

    fn json(&self) -> Value {
        match &self.second {
            None => profile(self.op, &self.first),
            Some(second) => difference(self.op, &self.first, second),
        }
    }
}

fn profile(op: Op, explained: &Explained<'_>) -> Value {
    let profile = explained.profile;
    let mut value = breakdown(profile);
    value["trapline"] = json!(env!("CARGO_PKG_VERSION"));
    value["environment"] = json!(explained.config.environment.name());
    value["settings"] = json!(explained.config.overrides.to_string());
    value["operation"] = json!(names::path(op));
    value["operations"] = json!(profile.operations);
    if !profile.stages.is_empty() {
        value["stages"] = profile.stages.iter().map(stage).collect();
    }
    if let Some(sources) = &profile.sources {
        value["lines"] = source_lines(sources);
    }
    if !profile.stacks.is_empty() {
        value["stacks"] = call_stacks(profile);
    }
    value
}

fn stage(stage: &StageProfile) -> Value {
    let mut value = breakdown(&stage.profile);
    value["from"] = json!(stage.from.name());
    value["stage"] = json!(stage.to.name());
    value
}

/// Returns the fields that all profiles have.
fn breakdown(profile: &Profile) -> Value {
    let functions: Vec<_> = profile
        .items
        .iter()
        .map(|item| {
            let mut function = json!({
                "component": item.function.component,
                "function": item.function.name,
                "insn": item.insn,
            });
            add_source(&mut function, profile, &item.function);
            function
        })
        .collect();
    json!({
        "total": profile.total,
        "residual": profile.residual,
        "counted": profile.counted,
        "excluded": profile.excluded,
        "exits": profile.exits,
        "faults": profile.faults,
        "interrupts": profile.interrupts,
        "halts": profile.count(Event::Halt),
        "events": events(profile),
        "functions": functions,
    })
}

/// Returns how often each event occurred in all batches.
fn events(profile: &Profile) -> Value {
    let events = Event::ALL.into_iter().filter(|event| *event != Event::Halt);
    let counts = events.map(|event| (event.name().to_owned(), json!(profile.count(event))));
    Value::Object(counts.collect())
}

/// Adds the source line of a function, if it is known.
fn add_source(value: &mut Value, profile: &Profile, function: &Function) {
    if let Some(source) = profile.source(function) {
        value["file"] = json!(source.file);
        value["line"] = json!(source.line);
    }
}

fn source_lines(sources: &Sources) -> Value {
    let lines = sources.lines.iter().map(|cost| {
        json!({
            "component": cost.component,
            "file": cost.source.file,
            "line": cost.source.line,
            "insn": cost.insn,
        })
    });
    lines.collect()
}

fn call_stacks(profile: &Profile) -> Value {
    let stacks = profile.stacks.iter().map(|stack| {
        let frames: Vec<_> = stack.frames.iter().map(stacks::label).collect();
        let insn = stack.count as f64 / profile.operations as f64;
        json!({ "frames": frames, "insn": insn })
    });
    stacks.collect()
}

fn difference(op: Op, before: &Explained<'_>, after: &Explained<'_>) -> Value {
    let changes: Vec<_> = before
        .profile
        .changes(after.profile)
        .iter()
        .map(|change| {
            let mut value = json!({
                "component": change.function.component,
                "function": change.function.name,
                "before": change.insn.0,
                "after": change.insn.1,
                "difference": change.difference(),
            });
            add_source(&mut value, before.profile, &change.function);
            add_source(&mut value, after.profile, &change.function);
            value
        })
        .collect();
    json!({
        "before": profile(op, before),
        "after": profile(op, after),
        "difference": after.profile.total - before.profile.total,
        "changes": changes,
    })
}
