//! Environments that were measured with several sets of settings: settings against operations, a table for each.

use crate::compact;
use crate::document::{Section, Table};
use crate::figures::clock_name;
use crate::notes::Notes;
use crate::report::Report;
use crate::table::Shown;
use alphanumeric_sort::compare_str;
use std::collections::BTreeSet;
use trapline_model::{file, Clock, Config, EnvironmentId, Overrides};
use trapline_stats::Cell;

/// The fewest configurations of an environment that are a series.
const FEWEST: usize = 3;

/// The configurations of one environment, in natural order.
pub struct Series<'a> {
    /// The environment.
    pub environment: EnvironmentId,
    /// The name of the setting that differs, or `settings`.
    pub title: &'static str,
    /// The value of that setting, or all settings that differ, for each configuration.
    pub names: Vec<String>,
    /// The configurations.
    pub configs: Vec<&'a Config>,
}

impl<'a> Series<'a> {
    /// Returns the series of one clock, in table order.
    pub fn of_clock(report: &Report, cells: &'a [Cell], clock: Clock) -> Vec<Self> {
        let shown = Shown::measured(cells, clock);
        let configs = shown.map_or_else(Vec::new, |shown| shown.configs);
        let environments = configs.chunk_by(|one, other| one.environment == other.environment);
        let series = environments.filter(|configs| configs.len() >= FEWEST);
        series.map(|configs| Self::new(report, configs)).collect()
    }

    fn new(report: &Report, configs: &[&'a Config]) -> Self {
        let settings = configs.iter().map(|config| report.own_settings(config));
        let settings: Vec<Overrides> = settings.collect();
        let differing = differing(&settings);
        let name = |settings: &Overrides| match differing {
            Some(setting) => settings.text(setting),
            None => (!settings.is_default()).then(|| settings.to_string()),
        };
        let names = settings.iter().map(name);
        let names = names.map(|name| name.unwrap_or_else(|| "default".to_owned()));
        let mut named: Vec<(String, &Config)> = names.zip(configs.iter().copied()).collect();
        named.sort_by(|(one, _), (other, _)| compare_str(one, other));
        let (names, configs): (_, Vec<&Config>) = named.into_iter().unzip();
        Self {
            environment: configs[0].environment,
            title: differing.unwrap_or("settings"),
            names,
            configs,
        }
    }

    /// Returns the table of the figures; `None` if `cells` have none. The more numerous of settings and operations are
    /// the rows.
    pub fn section(
        &self,
        report: &Report,
        cells: &[Cell],
        of: Option<&file::Table>,
    ) -> Option<Section> {
        let own = cells
            .iter()
            .filter(|cell| self.configs.contains(&&cell.config));
        let own: Vec<Cell> = own.cloned().collect();
        let clock = self.environment.clock();
        let shown = Shown::measured(&own, clock)?;
        let cell = |config: &Config, op| {
            let mut shown = compact::cell(shown.cell(config, op));
            if clock.is_exact() {
                shown.parts.truncate(1);
            } else {
                shown.parts.truncate(2);
            }
            shown
        };
        let mut table;
        if self.configs.len() >= shown.operations.len() {
            table = Table::new(self.title, shown.operations.iter().map(|op| op.name()));
            for (config, name) in self.configs.iter().zip(&self.names) {
                table.row(name, shown.operations.iter().map(|op| cell(config, *op)));
            }
        } else {
            table = Table::new(self.title, &self.names);
            for op in &shown.operations {
                let cells = self.configs.iter().map(|config| cell(config, *op));
                table.row(op.path(), cells);
            }
        }
        let mut section = Section::new(
            &self.section_title(of),
            compact::explanation(&own, clock, ""),
        );
        section.table(table);
        let mut notes = Notes::default();
        for cell in &own {
            notes.on_titles(cell, &mut BTreeSet::new(), &mut BTreeSet::new());
        }
        section.warnings(notes.short_texts(report));
        Some(section)
    }

    fn section_title(&self, of: Option<&file::Table>) -> String {
        let title = format!(
            "{}, {}",
            self.environment,
            clock_name(self.environment.clock())
        );
        match of {
            Some(table) => format!("{}: {title}", table.title),
            None => title,
        }
    }
}

/// Returns the name of the setting that differs, if it is one.
fn differing(all: &[Overrides]) -> Option<&'static str> {
    let names = all
        .iter()
        .flat_map(|it| it.iter().map(|(setting, _)| setting.name));
    let differs = |name: &&str| {
        let mut values = all.iter().map(|settings| settings.value(name));
        let first = values.next();
        values.any(|other| Some(other) != first)
    };
    let mut differing = names.filter(differs).collect::<BTreeSet<_>>().into_iter();
    differing.next().filter(|_| differing.next().is_none())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::document::style::Style;
    use crate::document::text::render_brief;
    use crate::fixture::{cell, figure, measured};
    use expect_test::expect;
    use trapline_abi::Op;
    use trapline_stats::{Failure, FailureKind, Summary, Value};

    /// Returns a report of figures of `port-out` and `cpuid` in configurations.
    pub fn report(figures: &[(&str, f64)]) -> Report {
        let configs = figures.iter().map(|(config, port_out)| {
            let config: Config = config.parse().unwrap();
            [
                measured(config.clone(), Op::PortOut, figure(*port_out)),
                measured(config, Op::Cpuid, figure(2966.0)),
            ]
        });
        Report {
            operations: Op::PortOut | Op::Cpuid,
            summary: Summary {
                cells: configs.flatten().collect(),
                ..Summary::default()
            },
            ..Report::default()
        }
    }

    fn text(report: &Report) -> String {
        render_brief(&report.document(), &Style::default())
    }

    #[test]
    fn settings_stand_in_one_table_in_natural_order() {
        let mut report = report(&[
            ("sim", 3.0),
            ("sim/kvm:kernel=6.12.101", 3297.0),
            ("sim/kvm:kernel=6.1.0-9", 3254.0),
            ("sim/kvm:kernel=6.12.95", 3290.0),
        ]);
        let failure = Failure {
            kind: FailureKind::Broken,
            reason: "it broke".to_owned(),
        };
        let failed = &mut report.summary.cells[5];
        *failed = cell(failed.config.clone(), Op::Cpuid, Value::Failed(failure));
        let skip = "sim/qemu-kvm:kernel=6.12.95".parse().unwrap();
        report.skips.push((skip, "no such package".to_owned()));
        expect![[r#"
            In words
             In instructions (AMD) a port write costs 1.3% more in trapline-vmm with
               kernel=6.12.101 than in trapline-vmm with kernel=6.1.0-9: 3,297 insn against
               3,254 insn, the same in 2 boots, the dearest and the cheapest of 3.

            Instruction clock: mean, same in 2 boots
                       sim
                       ─────
            exits  What does it cost to leave the guest and come back?
             port-out      3
             cpuid     2,966

            sim/kvm, instruction clock: mean, same in 2 boots
             kernel    port-out   cpuid
             6.1.0-9      3,254  failed
             6.12.95      3,290   2,966
             6.12.101     3,297   2,966

            Failed
             sim/kvm:kernel=6.1.0-9 exits/cpuid: it broke

            Not available
             sim/qemu-kvm:kernel=6.12.95: no such package

            Left out
             not measured: 1 reason
        "#]]
        .assert_eq(&text(&report));
    }

    #[test]
    fn two_sets_of_settings_are_columns() {
        let figures = [("sim/kvm", 3264.0), ("sim/kvm:memory=1G", 3265.0)];
        expect![[r#"
            In words
             In instructions (AMD) a port write costs the same in trapline-vmm with
               memory=1024M and in trapline-vmm: 3,265 insn against 3,264 insn, the same in
               2 boots.

            Instruction clock: mean, same in 2 boots
                       sim/kvm  sim/kvm:memory=1024M
                       ───────  ────────────────────
            exits  What does it cost to leave the guest and come back?
             port-out  3,264    3,265
             cpuid     2,966    2,966
        "#]]
        .assert_eq(&text(&report(&figures)));
    }

    #[test]
    fn operations_are_the_rows_if_there_are_more() {
        let configs = ["sim/kvm:cpus=2,memory=1G", "sim/kvm:memory=256M", "sim/kvm"];
        let mut report = report(&configs.map(|config| (config, 3264.0)));
        let first = report.summary.cells[0].config.clone();
        let more = [Op::PortIn, Op::Hypercall].map(|op| measured(first.clone(), op, figure(7.0)));
        report.summary.cells.extend(more);
        expect![[r#"
            In words
             In instructions (AMD) a port write costs the same in trapline-vmm with
               memory=256M and in trapline-vmm: 3,264 insn against 3,264 insn, the same in 2
               boots, the dearest and the cheapest of 3.

            sim/kvm, instruction clock: mean, same in 2 boots
             settings         cpus=2,memory=1024M  default  memory=256M
             exits/port-out                 3,264    3,264        3,264
             exits/port-in                      7        –            –
             exits/cpuid                    2,966    2,966        2,966
             exits/hypercall                    7        –            –
        "#]]
        .assert_eq(&text(&report));
    }

    #[test]
    fn plans_with_tables_keep_them() {
        let configs = ["sim", "sim/kvm", "sim/kvm:cpus=2", "sim/kvm:cpus=4"];
        let mut report = report(&configs.map(|config| (config, 3264.0)));
        report.tables = vec![file::Table {
            title: "Exits".to_owned(),
            operations: Op::Cpuid.into(),
        }];
        let text = text(&report);
        let titles = text
            .lines()
            .filter(|line| line.contains("instruction clock"));
        let titles: Vec<&str> = titles.collect();
        let expected = [
            "Exits, instruction clock: mean, same in 2 boots",
            "Exits: sim/kvm, instruction clock: mean, same in 2 boots",
        ];
        assert_eq!(titles, expected, "the bare row is not left out: {text}");
        assert!(
            text.contains("cpuid") && !text.contains("port-out"),
            "{text}"
        );
    }

    #[test]
    fn settings_of_all_are_named_once() {
        let configs = ["sim/kvm:cpus=2,memory=1G", "sim/kvm:memory=1G", "sim"];
        let mut report = report(&configs.map(|config| (config, 3264.0)));
        report.settings = Config::common_settings(&report.configs());
        assert_eq!(report.settings.to_string(), "memory=1024M");
        let names = report
            .configs()
            .into_iter()
            .map(|config| report.name(config));
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["sim", "sim/kvm", "sim/kvm:cpus=2"]
        );
    }
}
