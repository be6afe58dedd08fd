//! Option `--layouts`: configurations in several layouts of their machines' memory.

use trapline_model::{Config, Feature};
use trapline_runner::{Failure, RunContext};

/// Returns `configs` in `count` layouts each. Remarks on those of exact clocks that have one layout.
///
/// # Errors
/// Several layouts are requested, and none of `configs` has more than one.
pub fn in_layouts(
    configs: &[Config],
    count: u32,
    context: &RunContext<'_>,
) -> Result<Vec<Config>, Failure> {
    if count > 1 {
        if let Some(remark) = remark(configs)? {
            context.note(&remark);
        }
    }
    Ok(Config::in_layouts(configs, count))
}

/// Returns the environments of exact clocks that have one layout, with the reasons.
///
/// # Errors
/// No environment has several.
fn remark(configs: &[Config]) -> Result<Option<String>, Failure> {
    let environments = configs.iter().map(|config| config.environment);
    let mut single: Vec<String> = Vec::new();
    for environment in environments.clone() {
        let why = environment.why_not(Feature::Layout);
        let line = why.map(|why| format!("{environment} ({why})"));
        let is_exact = environment.clock().is_exact();
        single.extend(line.filter(|line| is_exact && !single.contains(line)));
    }
    let single = (!single.is_empty()).then(|| format!("one layout in {}", single.join(", ")));
    if environments.clone().any(|id| id.has(Feature::Layout)) {
        return Ok(single);
    }
    let single = single.unwrap_or_else(|| "no environment of an exact clock".to_owned());
    Err(Failure::usage(
        format!("--layouts: {single}"),
        "leave it out, or add an environment with several layouts, such as sim/kvm, with --env",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configs(names: &[&str]) -> Vec<Config> {
        let parsed = names.iter().map(|name| name.parse().expect("environment"));
        parsed.collect()
    }

    #[test]
    fn environments_of_exact_clocks_with_one_layout_are_listed() {
        let names = [
            "host",
            "sim",
            "sim/kvm",
            "sim/nova",
            "sim-vmx/kvm",
            "sim/nova",
        ];
        let listed = remark(&configs(&names)).expect("sim/kvm has layouts");
        let expected = "one layout in sim (no Linux of a simulated machine runs there), \
                        sim/nova (no Linux runs on its machine), sim-vmx/kvm (its machine boots slowly)";
        assert_eq!(listed.as_deref(), Some(expected));
        let none = remark(&configs(&["host", "sim/kvm", "sim/xen-pvh"]));
        assert_eq!(none.expect("they have layouts"), None);
    }

    #[test]
    fn environments_without_layouts_are_rejected() {
        for names in [&["sim-vmx/kvm"][..], &["sim/nova", "sim"], &["host"]] {
            assert!(remark(&configs(names)).is_err(), "{names:?}");
        }
    }
}
