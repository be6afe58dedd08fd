//! `trapline floor`: prints the cost of an exit without a VMM.

use crate::args::{FloorArgs, PlainFormat};
use crate::session::Session;
use crate::{parts, terminal};
use std::fmt::Write;
use trapline_host::MISSING_PARTS;
use trapline_runner::floor::{measure, Floors, PROGRAM};
use trapline_runner::Failure;

/// Measures the floor on this host and on the simulated machine, and prints it.
///
/// # Errors
/// The program that measures is missing, or fails where it should work.
pub fn floor(args: &FloorArgs) -> Result<(), Failure> {
    let program = parts::directory().join(PROGRAM);
    if !program.is_file() {
        let directory = parts::directory();
        let missing = format!("{PROGRAM} is not in {}", directory.display());
        return Err(Failure::new(missing).help(MISSING_PARTS));
    }
    let inventory = args.environment_options().inventory()?;
    let session = Session::without_store(inventory, None, false)?;
    let floors = measure(&program, &session.context())?;
    match args.format {
        PlainFormat::Json => terminal::print_json(&serde_json::json!(floors)),
        PlainFormat::Table => terminal::print_text(&table(&floors)),
    }
}

const LEGEND: &str = "\
Cost of one exit around KVM_RUN, for a guest that does nothing else.
unfiltered: a loop that ignores the exit reason; filtered: the same under the
seccomp filter of trapline-vmm; vmm: its run loop with the filter; kernel: a
doorbell that the kernel handles without the VMM.
";

fn table(floors: &Floors) -> String {
    let mut text = format!(
        "{LEGEND}\n{:<10} {:<12} {:<11} {:>12} {:>12}\n",
        "", "", "", "minimum", "median"
    );
    // Writing to a String cannot fail.
    for floor in &floors.floors {
        let _ = writeln!(
            text,
            "{:<10} {:<12} {:<11} {:>7.0} {:<4} {:>7.0} {}",
            floor.environment,
            floor.operation,
            floor.run_loop,
            floor.min,
            floor.unit,
            floor.median,
            floor.unit
        );
    }
    for skip in &floors.skips {
        let _ = writeln!(text, "{:<10} not measured: {}", skip.environment, skip.skip);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_model::EnvironmentId;
    use trapline_runner::floor::{parse, Skip};

    #[test]
    fn the_table_has_80_columns_and_lists_skips() {
        let output = "port-out/vmm/min\t3170.000\nport-out/vmm/median\t3170.000\n";
        let text = table(&Floors {
            trapline: "",
            floors: parse(EnvironmentId::SIM_KVM, output),
            skips: vec![Skip {
                environment: "kvm",
                skip: "no /dev/kvm".to_owned(),
            }],
        });
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        expect![[r#"
            Cost of one exit around KVM_RUN, for a guest that does nothing else.
            unfiltered: a loop that ignores the exit reason; filtered: the same under the
            seccomp filter of trapline-vmm; vmm: its run loop with the filter; kernel: a
            doorbell that the kernel handles without the VMM.

                                                     minimum       median
            sim/kvm    port-out     vmm            3170 insn    3170 insn
            kvm        not measured: no /dev/kvm
        "#]]
        .assert_eq(&text);
    }
}
