//! Accessors for the JSON of runs and profiles.

use serde_json::Value;

/// Returns the cells of a run.
///
/// # Panics
/// The run has no list of cells.
pub fn cells(run: &Value) -> &[Value] {
    run["cells"].as_array().expect("run has cells")
}

/// Returns the cell of an operation, given as `NAME` or `WORKLOAD/NAME`.
///
/// # Panics
/// There is none.
#[track_caller]
pub fn cell<'a>(run: &'a Value, environment: &str, operation: &str) -> &'a Value {
    let (workload, name) = match operation.split_once('/') {
        Some((workload, name)) => (Some(workload), name),
        None => (None, operation),
    };
    let mut of_environment = cells(run)
        .iter()
        .filter(|cell| cell["environment"] == environment && cell["operation"] == name);
    let found = of_environment.find(|cell| workload.is_none_or(|it| cell["workload"] == it));
    found.unwrap_or_else(|| panic!("no {operation} in {environment}: {run:#}"))
}

/// Returns the figure of an operation.
///
/// # Panics
/// It was not measured.
#[track_caller]
pub fn estimate(run: &Value, environment: &str, operation: &str) -> f64 {
    let cell = cell(run, environment, operation);
    let estimate = cell["estimate"].as_f64();
    estimate.unwrap_or_else(|| panic!("no figure: {cell}"))
}

/// Checks that operations were measured, each given as in [`cell`]. Figures of unequal work are failures of the lab, so
/// a figure is one of the work that was asked for.
///
/// # Panics
/// One was skipped, failed, or has an impossible figure.
#[track_caller]
pub fn assert_measured(run: &Value, environment: &str, operations: &[&str]) {
    for operation in operations {
        assert_figure(cell(run, environment, operation));
    }
}

/// Checks that a cell of a run has a figure, with all that belongs to one: least and most or an interval around it, number of
/// samples and boots, clock and unit. Work that was left out costs nothing beyond its loop: each operation executes an
/// instruction at least, and moves at most 100 bytes in one.
///
/// # Panics
/// Something of that is missing, or impossible.
#[track_caller]
pub fn assert_figure(cell: &Value) {
    let is_exact = cell["clock"] != "wall";
    for key in ["estimate", "min", "max"] {
        assert!(cell[key].is_number(), "no {key}: {cell}");
    }
    // One boot has no interval.
    let has_interval = !is_exact && cell["boots"] != 1;
    for key in ["low", "high"] {
        assert_eq!(cell[key].is_number(), has_interval, "{key}: {cell}");
    }
    for key in ["samples", "boots"] {
        assert!(cell[key].as_u64() >= Some(1), "no {key}: {cell}");
    }
    for key in ["ratio", "exits", "host_cpu_ns"] {
        assert!(
            cell[key].is_number() || cell[key].is_null(),
            "{key} is missing: {cell}"
        );
    }
    let ends = if !has_interval {
        ["min", "max"]
    } else {
        ["low", "high"]
    };
    let [low, high] = ends.map(|key| cell[key].as_f64());
    let estimate = cell["estimate"].as_f64();
    assert!(low <= estimate && estimate <= high, "{cell}");
    let of_environment = match cell["environment"].as_str() {
        Some(name) if name.starts_with("sim-arm64") => "insn-arm64",
        Some(name) if name.starts_with("sim-vmx") => "insn-vmx",
        _ => "insn",
    };
    let clock = if is_exact { of_environment } else { "wall" };
    assert_eq!(cell["clock"], clock, "{cell}");
    let possible = match cell["unit"].as_str() {
        Some("insn") if is_exact => 1.0..=1e12,
        Some("MB/Ginsn") if is_exact => 1.0..=100_000.0,
        Some("ns") if !is_exact => 0.01..=1e12,
        Some("MB/s") if !is_exact => 1.0..=10_000_000.0,
        _ => panic!("unknown unit: {cell}"),
    };
    let is_possible = estimate.is_some_and(|estimate| possible.contains(&estimate));
    assert!(is_possible, "{cell}");
}

/// Checks that a cell of workload `net` has a figure that an exchange, a packet or a stream can have: a thousand
/// instructions or 50 ns at least, and at most a byte an instruction or 100 GB a second.
///
/// # Panics
/// It was skipped, failed, or cannot have moved its bytes.
#[track_caller]
pub fn assert_carried(cell: &Value) {
    let possible = match cell["unit"].as_str() {
        Some("insn") => 1_000.0..=1e9,
        Some("ns") => 50.0..=1e9,
        Some("MB/Ginsn") => 1.0..=1_000.0,
        Some("MB/s") => 1.0..=100_000.0,
        _ => panic!("unknown unit: {cell:#}"),
    };
    let estimate = cell["estimate"].as_f64();
    let is_possible = estimate.is_some_and(|estimate| possible.contains(&estimate));
    assert!(is_possible, "{cell:#}");
}

/// Returns the fastest batch of an operation.
///
/// # Panics
/// It was not measured.
#[track_caller]
pub fn fastest(run: &Value, environment: &str, operation: &str) -> f64 {
    let cell = cell(run, environment, operation);
    let fastest = cell["min"].as_f64();
    fastest.unwrap_or_else(|| panic!("no figure: {cell}"))
}

/// Returns the facts of an environment.
pub fn facts<'a>(run: &'a Value, environment: &str) -> &'a Value {
    &run["environments"][environment]["facts"]
}

/// Returns the functions of a profile that belong to `component`, with their instructions.
///
/// # Panics
/// The profile has no list of functions.
pub fn functions<'a>(profile: &'a Value, component: &'a str) -> impl Iterator<Item = &'a Value> {
    let functions = profile["functions"].as_array().expect("list of functions");
    let functions = functions.iter();
    functions.filter(move |function| function["component"] == component)
}

/// Returns the instructions of a component in a profile.
pub fn component_insn(profile: &Value, component: &str) -> f64 {
    let insn = functions(profile, component).filter_map(|function| function["insn"].as_f64());
    insn.sum()
}

/// Returns the instructions of all functions in a profile.
///
/// # Panics
/// The profile has no list of functions.
pub fn total_insn(profile: &Value) -> f64 {
    let functions = profile["functions"].as_array().expect("list of functions");
    let insn = functions.iter().filter_map(|item| item["insn"].as_f64());
    insn.sum()
}
