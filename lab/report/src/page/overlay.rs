//! A comparison as a page: verdicts, the distributions of both sides on common axes, and the functions that
//! changed.

use super::changes::{Changes, FunctionChange};
use super::distribution_plot::{overlaid, Detail, DistributionPlot};
use super::help::help;
use super::shell::{self, Head};
use super::{below_title, heading, Section};
use crate::compare::{self, CompareReport};
use crate::document::{html as document, json, Cell, Document, Section as Part, Span, Table};
use crate::{figures, printable};
use maud::{html, Markup};
use trapline_model::{Clock, Observation};
use trapline_stats::compare::Row;
use trapline_stats::{verdict, Figure, Sorted};

/// Input of the page.
pub struct Compared<'a> {
    /// The comparison.
    pub report: &'a CompareReport,
    /// Boots of each side; those of other configurations are ignored.
    pub boots: [&'a [Observation]; 2],
    /// Functions that differ on an instruction clock.
    pub changes: &'a [Changes],
}

/// Classes of the colours of A and B, which are the same on every page.
const TONES: [&str; 2] = ["t1", "t2"];

/// Functions listed of one operation.
const MOST_FUNCTIONS: usize = 30;

/// Renders the page, a complete HTML document.
pub fn page(compared: &Compared<'_>) -> String {
    let mut document = compared.report.document();
    let is_summary = |section: &&mut Part| section.title.text.is_empty();
    for summary in document.sections.iter_mut().filter(is_summary) {
        // It begins with the headline, which is the title of the page.
        summary.blocks.remove(0);
    }
    let mut sections = vec![headline(compared, &document)];
    sections.extend(distributions(compared));
    sections.extend(functions(compared.changes));
    let head = Head {
        title: format!("Trapline: {} and {}", compared.report.a, compared.report.b),
        version: compared.report.version.clone(),
        run: None,
    };
    let data = json::render(&document.object, false);
    shell::document(&head, &sections, &data).into_string()
}

fn headline(compared: &Compared<'_>, document: &Document) -> Section {
    let CompareReport { a, b, .. } = compared.report;
    let facts = ["cpu", "kernel", "kvm"].into_iter();
    let facts = facts.filter_map(|name| compared.report.facts.get(name));
    let facts: Vec<_> = facts.map(|fact| printable(fact)).collect();
    Section {
        id: "headline".to_owned(),
        title: "Verdicts".to_owned(),
        body: html! {
            p.place { (facts.join(" · ")) }
            h1 { (compared.report.headline()) }
            (legend([&format!("A: {a}"), &format!("B: {b}")]))
            (below_title(document))
        },
    }
}

fn legend(sides: [&str; 2]) -> Markup {
    html! {
        p.legend { @for (side, tone) in sides.iter().zip(TONES) {
            span.(tone) { i.dot {} (printable(side)) }
        } }
    }
}

/// Returns the distributions of the operations that both sides measured on the wall clock.
fn distributions(compared: &Compared<'_>) -> Option<Section> {
    let rows = compared.report.matches.iter();
    let rows = rows.filter(|row| row.clock() == Clock::Wall);
    let rows: Vec<_> = rows
        .filter_map(|row| Some((row, figures_of(row)?)))
        .collect();
    let boots = rows
        .iter()
        .map(|(_, figures)| figures[0].boots + figures[1].boots);
    let grain = Detail::fitting(boots.sum());
    let title = "Distributions";
    let plots = rows
        .iter()
        .filter_map(|(row, figures)| plot(compared, row, *figures, grain));
    let plots: Vec<Markup> = plots.collect();
    (!plots.is_empty()).then(|| Section {
        id: "distributions".to_owned(),
        title: title.to_owned(),
        body: html! {
            (heading("Distributions, wall clock", help(title, &HELP)))
            p.lead { "Every batch of every boot of A and B, on common axes." }
            div.overlays { @for plot in &plots { (plot) } }
        },
    })
}

const HELP: [&str; 2] = [
    "Above: the share of batches that came to each value, of both on one scale. In the middle: the share \
     of batches that are at most so much. Below: each boot, from 5% to 95% of its batches, thicker from \
     25% to 75%, with its median; those of A are above those of B.",
    "The dashed lines are the estimates, the shade around them their intervals over boots. The verdict \
     rests on the ratios within blocks, not on whether these overlap.",
];

fn figures_of(row: &Row) -> Option<[&Figure; 2]> {
    Some([row.a.value.figure()?, row.b.value.figure()?])
}

fn plot(
    compared: &Compared<'_>,
    row: &Row,
    figures: [&Figure; 2],
    grain: Detail,
) -> Option<Markup> {
    let cells = [&row.a, &row.b];
    let boots = |side: usize| {
        let here = compared.boots[side].iter();
        let here = here.filter(|boot| boot.config == cells[side].config);
        let mut boots = verdict::boot_values(here, row.op);
        boots.sort_by_key(|boot| boot.block);
        let boots = boots
            .into_iter()
            .filter_map(|boot| Sorted::new(boot.batches));
        boots.collect::<Vec<Sorted>>()
    };
    let boots = [boots(0), boots(1)];
    let all = |side: usize| Sorted::new(boots[side].iter().flat_map(Sorted::iter).collect());
    let all = [all(0)?, all(1)?];
    let plot = |side: usize| DistributionPlot {
        op: row.op,
        figure: figures[side],
        boots: &boots[side],
        all: &all[side],
        grain,
    };
    let names = cells.map(|cell| cell.config.to_string());
    let values = figures.map(|one| figures::value(one.estimate, row.op, row.clock()));
    let verdict = row.outcome.as_ref().ok();
    let verdict = verdict.map(|it| format!(": {}", compare::verdict(row.op, it)));
    Some(html! {
        figure.cloud {
            figcaption { b { (row.op.path()) } (verdict.unwrap_or_default()) }
            (overlaid(&[plot(0), plot(1)], [&names[0], &names[1]], TONES))
            (legend([&format!("A: {}, {}", names[0], values[0]), &format!("B: {}, {}", names[1], values[1])]))
        }
    })
}

/// Returns the functions that differ, a table for each operation.
fn functions(all: &[Changes]) -> Option<Section> {
    let title = "Functions";
    (!all.is_empty()).then(|| Section {
        id: "functions".to_owned(),
        title: title.to_owned(),
        body: html! {
            (heading("Functions that changed", html! {}))
            p.lead { "Instructions per operation, largest difference first." }
            @for changes in all {
                h3 { (printable(&changes.title())) }
                (document::scrollable(&changes.title(), &document::table(&table(changes))))
            }
        },
    })
}

fn table(changes: &Changes) -> Table {
    let columns = ["A", "B", "difference"];
    let mut table = Table::new("function", columns);
    let listed = changes.functions.len().min(MOST_FUNCTIONS);
    let (listed, rest) = changes.functions.split_at(listed);
    for one in listed {
        let name = format!("{}`{}", one.component, one.function);
        table.row(printable(&name), line(one));
    }
    if !rest.is_empty() {
        let rest_of = |value: fn(&FunctionChange) -> f64| rest.iter().map(value).sum();
        let sum = FunctionChange {
            component: String::new(),
            function: String::new(),
            before: rest_of(|one| one.before),
            after: rest_of(|one| one.after),
        };
        table.row(format!("{} more", rest.len()), line(&sum));
    }
    table
}

fn line(one: &FunctionChange) -> [Cell; 3] {
    let difference = one.after - one.before;
    let sign = if difference > 0.0 { "+" } else { "" };
    [
        figures::exact(one.before),
        figures::exact(one.after),
        format!("{sign}{}", figures::exact(difference)),
    ]
    .map(|text| Span::plain(text).into())
}
