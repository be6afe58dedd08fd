//! JSON schema of plan files, for completion and checks in editors.

use crate::config::Config;
use crate::cpus;
use crate::environment::EnvironmentId;
use crate::kernel_build::{Place, Size};
use crate::names;
use crate::packets::{self, Direction, Ring};
use crate::preset::Preset;
use crate::request::EXACT_BOOTS;
use crate::settings::{Options, Setting, ValueType, SETTINGS};
use crate::vmms::{Console, ImageFormat, Transport};
use serde_json::{json, Value};
use std::ops::RangeInclusive;
use trapline_abi::{Op, Workload};

/// Returns the schema (JSON Schema, draft 2020-12).
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A plan of Trapline",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "about": {
                "type": "string",
                "description": "Purpose of the study."
            },
            "environments": {
                "type": "array",
                "items": { "anyOf": [
                    { "enum": EnvironmentId::BUILT_IN.map(EnvironmentId::name).as_slice() },
                    { "type": "string", "pattern": "^(sim/)?[a-z][a-z0-9-]*$", "description": "A VMM of [vmm.NAME]." }
                ] },
                "description": "Environments to measure, each with every combination of machine settings that it supports."
            },
            "contenders": {
                "type": "array",
                "items": { "type": "string", "examples": examples() },
                "description": "Further environments with settings of their own."
            },
            "workloads": {
                "type": "array",
                "items": { "enum": operations() },
                "description": "Workloads or single operations; left out: all but memory, irq, populate, block, files, net, ipc and smp."
            },
            "preset": { "enum": Preset::ALL.map(Preset::name) },
            "boots": {
                "type": "integer", "minimum": 1, "maximum": 10_000,
                "description": "Boots of each config on the wall clock; left out: the preset's."
            },
            "exact-boots": {
                "type": "integer", "minimum": 1, "maximum": 100, "default": EXACT_BOOTS,
                "description": "Boots of each config on an exact clock; further ones must reproduce the first."
            },
            "seed": {
                "type": "integer", "minimum": 0,
                "description": "Seed of the order of boots and of resampling; left out: drawn anew by each run."
            },
            "budget": {
                "type": "string", "examples": ["90s", "20m", "2h"],
                "description": "No block starts after this time."
            },
            "machine": machine(),
            "vmm": vmms(),
            "irq": interrupts(),
            "kernel-build": builds(),
            "packets": packets(),
            "tables": tables()
        }
    })
}

fn tables() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["title", "operations"],
            "properties": {
                "title": { "type": "string" },
                "operations": { "type": "array", "items": { "enum": operations() } }
            }
        },
        "description": "Tables with these rows, in place of the default tables."
    })
}

/// Returns the names of workloads and operations.
fn operations() -> Vec<String> {
    let workloads = Workload::ALL.map(|workload| workload.name().to_owned());
    workloads
        .into_iter()
        .chain(Op::ALL.map(names::path))
        .collect()
}

fn examples() -> Vec<String> {
    ["kvm:memory=1G", "sim/kvm:vmm=old/trapline-vmm"]
        .into_iter()
        .filter_map(|text| text.parse::<Config>().ok())
        .map(|config| config.to_string())
        .collect()
}

fn interrupts() -> Value {
    let text = json!({ "type": "string" });
    let properties: serde_json::Map<String, Value> = super::IRQ_KEYS
        .into_iter()
        .map(|key| (key.to_owned(), text.clone()))
        .collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "description": "Options of 'trapline irq'."
    })
}

fn vmms() -> Value {
    json!({
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": false,
            "required": ["command"],
            "properties": {
                "command": {
                    "type": "string",
                    "description": "A command as of --vmm, with {image} or {bzimage}, {cmdline}, {memory} (MiB), {cpus}, {config}."
                },
                "format": { "enum": ImageFormat::NAMES, "description": "Format of {image}. A raw one contains its command line." },
                "files": {
                    "type": "array", "items": { "type": "string" },
                    "description": "Files and directories that it needs, besides those that the command names."
                },
                "env": {
                    "type": "object", "additionalProperties": { "type": "string" },
                    "description": "Environment variables."
                },
                "config": {
                    "type": "string",
                    "description": "Text of the file {config}, with the same placeholders."
                },
                "console": {
                    "enum": Console::NAMES,
                    "description": "Device that records leave through: the first serial port, or port 0xe9."
                },
                "transport": { "enum": Transport::NAMES, "description": "Transport of its virtio devices." },
                "linux": {
                    "type": "string",
                    "description": "A command for a Linux guest, with {kernel}, {initramfs}, {cmdline}."
                },
                "linux-config": { "type": "string", "description": "Text of the file {config} of that command." }
            }
        },
        "description": "VMMs by name: [vmm.NAME] adds the environments NAME, sim/NAME, NAME/linux and sim/NAME/linux."
    })
}

fn builds() -> Value {
    let several = |item: Value| json!({ "type": "array", "minItems": 1, "items": item });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "size": { "enum": Size::ALL.map(Size::name) },
            "cpus": several(json!({ "type": "integer", "minimum": 1, "maximum": cpus::MOST })),
            "place": several(json!({ "enum": Place::ALL.map(Place::name) }))
        },
        "description": "Options of 'trapline kernel-build'. Excludes contenders, workloads, preset, machine, irq and tables."
    })
}

fn packets() -> Value {
    let several = |item: Value| json!({ "type": "array", "minItems": 1, "items": item });
    let number = |range: RangeInclusive<u32>| json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() });
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["path"],
        "properties": {
            "path": several(json!({ "type": "string" })),
            "size": several(number(packets::FRAME)),
            "ring": several(json!({ "enum": Ring::NAMES })),
            "queues": several(number(packets::QUEUES)),
            "direction": several(json!({ "enum": Direction::NAMES })),
            "duration": number(packets::DURATIONS),
            "rounds": number(packets::MOST_ROUNDS)
        },
        "description": "Options of 'trapline net'. Excludes all other measurements."
    })
}

fn machine() -> Value {
    let settings = SETTINGS.iter();
    let properties: serde_json::Map<String, Value> = settings
        .filter(|it| it.options != Options::Command)
        .map(|it| (it.name.to_owned(), one_or_several(&setting(it))))
        .collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "description": "Settings of machines: a value, or a list of values. All combinations are measured."
    })
}

/// Returns the schema of a value.
fn setting(setting: &Setting) -> Value {
    let mut schema = match &setting.value_type {
        ValueType::Number(range) => {
            json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
        }
        ValueType::Mebibytes => json!({ "type": "string", "pattern": "^[1-9][0-9]*[MG]?$" }),
        ValueType::Choice(names) => json!({ "enum": names }),
        ValueType::File(_) => json!({ "type": "string", "minLength": 1 }),
    };
    schema["description"] = json!(setting.help);
    schema
}

fn one_or_several(value: &Value) -> Value {
    json!({ "anyOf": [value, { "type": "array", "minItems": 1, "items": value }] })
}
