//! Gains and code of the optimisations of a plan.

use crate::failure::Failure;
use trapline_model::file;
use trapline_model::Config;
use trapline_report::Optimisation;
use trapline_stats::{Summary, Value};

include!(concat!(env!("OUT_DIR"), "/code.rs"));

/// Checks that code is marked with the names of a plan.
///
/// # Errors
/// There is no such name.
pub fn check(optimisations: &[file::Optimisation]) -> Result<(), Failure> {
    for it in optimisations {
        if lines(&it.code).is_none() {
            let known: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
            return Err(Failure::usage(
                format!("code = '{}': no code has this mark", it.code),
                format!("choose from {}", known.join(", ")),
            ));
        }
    }
    Ok(())
}

/// Returns the lines of code with a mark.
fn lines(code: &str) -> Option<u32> {
    let found = PARTS.iter().find(|(name, _)| *name == code);
    found.map(|(_, lines)| *lines)
}

/// Returns the optimisations that were measured, with their figures.
pub fn measured(optimisations: &[file::Optimisation], summary: &Summary) -> Vec<Optimisation> {
    let all = optimisations.iter().filter_map(|it| {
        Some(Optimisation {
            title: it.title.clone(),
            op: it.op,
            clock: it.with.environment.clock(),
            without: figure(summary, &it.without, it)?,
            with: figure(summary, &it.with, it)?,
            lines: lines(&it.code)?,
            all_lines: ALL,
        })
    });
    all.collect()
}

fn figure(summary: &Summary, config: &Config, of: &file::Optimisation) -> Option<f64> {
    let cells = summary.cells.iter();
    let mut cells = cells.filter(|cell| (&cell.config, cell.op) == (config, of.op));
    cells.find_map(|cell| match &cell.value {
        Value::Measured(figure) => Some(figure.estimate),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_every_optimisation_of_the_plans_is_marked() {
        let text = include_str!("../../../plans/lguest.toml");
        let study = file::read(text).unwrap();
        let is_used = |name: &str| study.optimisations.iter().any(|it| it.code == name);
        assert!(PARTS.iter().all(|(name, _)| is_used(name)));
        assert!(check(&study.optimisations).is_ok());
        assert!(PARTS.iter().all(|(_, lines)| *lines < ALL / 10));
    }

    #[test]
    fn code_without_a_mark_is_an_error_that_names_the_marks() {
        let text = include_str!("../../../plans/lguest.toml");
        let study = file::read(&text.replace("\"mapping\"", "\"maping\"")).unwrap();
        let error = check(&study.optimisations).unwrap_err();
        assert!(error.to_string().contains("'maping'"), "{error}");
        assert!(error.help.unwrap().contains("mapping"));
    }
}
