//! The page of a run of kernel builds: the largest ratio in words, and the table of each clock.

use super::context::Context;
use super::help::help;
use super::{facts, heading, headline, Section};
use crate::document::html as document;
use crate::figures;
use crate::kernel_build::{native, table, Matrix};
use maud::{html, Markup};
use trapline_model::kernel_build::Column;
use trapline_model::{Clock, EnvironmentId};

/// All sections of the page.
pub fn sections(context: &Context<'_>, matrix: &Matrix) -> Vec<Section> {
    vec![
        headline::of_words(context, &in_words(matrix)),
        Section::new("builds", "Kernel builds", body(matrix)),
        facts::of_builds(context, &matrix.facts),
    ]
}

fn body(matrix: &Matrix) -> Markup {
    html! {
        (heading("Kernel builds", help("Kernel builds", &HELP)))
        @for section in &table::sections(matrix) { (document::section(section)) }
    }
}

const HELP: [&str; 4] = [
    "The distribution's compiler builds the distribution's kernel from memory to memory, with as many \
     jobs as there are virtual CPUs. The figure is the median of all builds of a cell.",
    "The share above 1(d) is what more CPUs, or sharing one with the VMM, bring in the same environment; \
     the share above the bare row is what virtualization costs on the same CPUs. + is slower.",
    "A percentage is the median of the ratios of the rounds, each of which builds every cell once. Below it \
     is the interval of that median between two of these ratios; the name of the row has its level: 75% \
     with three rounds, at least 95% with six or more. One build has no interval.",
    "All builds have made the same object files: a build that did not has failed and is no figure.",
];

/// Returns the largest ratio to the native row, on the first clock that has one.
fn in_words(matrix: &Matrix) -> String {
    let farthest = Clock::ALL.into_iter().find_map(|clock| {
        let times = matrix.environments(clock).into_iter();
        let times = times.flat_map(|id| times_native(matrix, id));
        times.max_by(|one, other| one.2.total_cmp(&other.2))
    });
    match farthest {
        Some((id, column, times)) => format!(
            "Building a kernel takes {} times as long in {id} as in {}, on the same CPUs: {column}.",
            figures::quantity(times),
            native(id.clock())
        ),
        None if matrix.has_figures() => {
            "Kernels were built, none of them in a guest and beside bare.".to_owned()
        }
        None => "No kernel could be built in this run; below it is said why.".to_owned(),
    }
}

fn times_native(
    matrix: &Matrix,
    id: EnvironmentId,
) -> impl Iterator<Item = (EnvironmentId, Column, f64)> + '_ {
    let columns = table::columns(matrix, id.clock()).into_iter();
    columns.filter_map(move |column| {
        let ratio = matrix.ratio_to_native(id, column)?;
        Some((id, column, ratio.estimate))
    })
}
