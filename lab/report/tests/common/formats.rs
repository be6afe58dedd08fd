//! Renders a report in each format.

use trapline_report::{render, Format, Report, Style};

pub fn terminal(report: &Report, style: &Style) -> String {
    rendered(report, Format::Text(*style))
}

pub fn brief(report: &Report, style: &Style) -> String {
    rendered(report, Format::Brief(*style))
}

pub fn markdown(report: &Report) -> String {
    rendered(report, Format::Markdown)
}

pub fn json(report: &Report) -> String {
    rendered(report, Format::Json)
}

pub fn csv(report: &Report) -> String {
    rendered(report, Format::Csv)
}

pub fn junit(report: &Report) -> String {
    rendered(report, Format::Junit)
}

pub fn openmetrics(report: &Report) -> String {
    rendered(report, Format::OpenMetrics)
}

pub fn bencher(report: &Report) -> String {
    rendered(report, Format::Bencher)
}

fn rendered(report: &Report, format: Format) -> String {
    render(&report.document(), format).unwrap()
}
