//! Values of options that several commands share.

use clap::ValueEnum;
use trapline_report::Style;

/// Output format of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for a terminal
    Table,
    /// One JSON object, with a stable schema
    Json,
    /// One line per cell
    Csv,
    /// Markdown tables
    Markdown,
    /// JUnit XML: skips, failures and regressions
    Junit,
    /// Bencher Metric Format: every figure with its interval
    Bencher,
    /// OpenMetrics text: every figure as a gauge
    #[value(name = "openmetrics")]
    OpenMetrics,
}

impl Format {
    /// Returns the format of reports; text has all sections, in `style`.
    pub fn of_report(self, style: Style) -> trapline_report::Format {
        match self {
            Self::Table => trapline_report::Format::Text(style),
            Self::Json => trapline_report::Format::Json,
            Self::Csv => trapline_report::Format::Csv,
            Self::Markdown => trapline_report::Format::Markdown,
            Self::Junit => trapline_report::Format::Junit,
            Self::Bencher => trapline_report::Format::Bencher,
            Self::OpenMetrics => trapline_report::Format::OpenMetrics,
        }
    }
}

/// Output format of commands without reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlainFormat {
    /// Text for a terminal
    Table,
    /// One JSON object
    Json,
}

impl From<PlainFormat> for Format {
    fn from(format: PlainFormat) -> Self {
        match format {
            PlainFormat::Table => Self::Table,
            PlainFormat::Json => Self::Json,
        }
    }
}

/// Output format of profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileFormat {
    /// Text for a terminal
    Table,
    /// One JSON object
    Json,
    /// Call stacks, one a line, for flamegraph.pl and inferno
    Folded,
    /// Call stacks for speedscope.app
    Speedscope,
    /// Call stacks as 'perf script' prints them
    PerfScript,
}

impl ProfileFormat {
    /// Returns true if it consists of call stacks.
    pub fn has_stacks(self) -> bool {
        !matches!(self, Self::Table | Self::Json)
    }
}

/// Source of debug symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SymbolSource {
    /// Installed files
    Installed,
    /// Also packages, which are downloaded into the cache
    Fetch,
}

/// Size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// About a minute
    Quick,
    /// More boots and samples, for publication
    Full,
}

impl From<Preset> for trapline_model::Preset {
    fn from(preset: Preset) -> Self {
        match preset {
            Preset::Quick => Self::Quick,
            Preset::Full => Self::Full,
        }
    }
}

/// Use of colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal only
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
