//! The hosts of a run that several measured: their kinds, and in which facts these differ.

use crate::document::{Look, Marker, Section, Span, Table};
use crate::figures;
use crate::report::{HostOfRun, Report};
use std::collections::BTreeSet;
use trapline_abi::{block, OpSet, Workload};
use trapline_model::{irq, Host};

/// Returns the hosts, if there are several.
pub fn section(report: &Report) -> Option<Section> {
    if report.hosts.len() < 2 {
        return None;
    }
    let kinds = kinds(&report.hosts);
    let count = |count: usize, noun: &str| match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    };
    let title = format!(
        "{} of {}",
        count(report.hosts.len(), "host"),
        count(kinds.len(), "kind")
    );
    let explanation = "on the wall clock the host is the replicate: figures are medians over hosts";
    let mut section = Section::new(&title, explanation);
    section.table(if report.hosts.len() > MOST {
        by_kind(&report.hosts, &kinds)
    } else {
        each(&report.hosts, &kinds)
    });
    for (number, kind) in kinds.iter().enumerate() {
        let subject = Marker::Subject(format!("kind {}", letter(number)));
        section.note(subject, &facts(kind, &kinds), Look::Plain);
    }
    if !report.long.is_empty() || report.operations.intersects(pooled()) {
        section.note(Marker::Paragraph, OF_ONE_HOST, Look::Plain);
    }
    Some(section)
}

/// More hosts are rows of their kinds only.
const MOST: usize = 20;

/// Figures that are computed from all boots of one host.
const OF_ONE_HOST: &str =
    "Interrupts, requests to disks, kernel builds, packets and boot stages are shown of one host: \
     trapline show --host NAME.";

/// Returns the operations of guests in [`OF_ONE_HOST`].
fn pooled() -> OpSet {
    irq::operations() | block::operations() | Workload::Boot.set()
}

fn each(hosts: &[HostOfRun], kinds: &[&Host]) -> Table {
    let mut table = Table::new("", ["kind", "boots"]);
    for one in hosts {
        let kind = kinds.iter().position(|kind| kind.is_like(&one.host));
        let cells = [
            letter(kind.unwrap_or_default()),
            figures::count(one.boots as u64),
        ];
        table.row(one.host.label().to_owned(), cells.map(Span::plain));
    }
    table
}

fn by_kind(hosts: &[HostOfRun], kinds: &[&Host]) -> Table {
    let mut table = Table::new("", ["hosts", "boots"]);
    for (number, kind) in kinds.iter().enumerate() {
        let of_kind = || hosts.iter().filter(|one| kind.is_like(&one.host));
        let boots: usize = of_kind().map(|one| one.boots).sum();
        let counts = [of_kind().count(), boots].map(|count| figures::count(count as u64));
        table.row(format!("kind {}", letter(number)), counts.map(Span::plain));
    }
    table
}

/// Returns a host of each kind.
fn kinds(hosts: &[HostOfRun]) -> Vec<&Host> {
    let mut kinds: Vec<&Host> = Vec::new();
    for HostOfRun { host, .. } in hosts {
        if !kinds.iter().any(|kind| kind.is_like(host)) {
            kinds.push(host);
        }
    }
    kinds
}

/// Returns the name of a kind: A to Z, then AA.
fn letter(number: usize) -> String {
    let last = char::from(b'A' + (number % 26) as u8);
    match number / 26 {
        0 => last.to_string(),
        more => letter(more - 1) + &last.to_string(),
    }
}

/// Returns the facts of a kind in which it differs from another one; of a single one all.
fn facts(kind: &Host, kinds: &[&Host]) -> String {
    let names: BTreeSet<&String> = kinds.iter().flat_map(|kind| kind.facts.keys()).collect();
    let differs = |name: &&&String| {
        let value = |host: &Host| host.facts.get(**name).cloned();
        kinds.len() == 1 || kinds.iter().any(|other| value(other) != value(kind))
    };
    let shown = names.iter().filter(differs).map(|name| {
        let value = kind.facts.get(*name).map_or("unknown", String::as_str);
        format!("{name} {value}")
    });
    let shown: Vec<String> = shown.collect();
    match shown.len() {
        0 => "nothing is known of it".to_owned(),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn host(name: &str, facts: &[(&str, &str)]) -> HostOfRun {
        let facts = facts.iter();
        HostOfRun {
            host: Host {
                id: format!("{name}-0123456789"),
                name: name.to_owned(),
                facts: facts
                    .map(|(name, value)| (name.to_string(), value.to_string()))
                    .collect(),
            },
            boots: 26,
        }
    }

    fn text(hosts: &[HostOfRun]) -> String {
        let report = Report {
            hosts: hosts.to_vec(),
            ..Report::default()
        };
        let document = crate::Document {
            sections: section(&report).into_iter().collect(),
            ..crate::Document::default()
        };
        crate::document::text::render(&document, &crate::Style::default())
    }

    #[test]
    fn hosts_have_kinds_and_these_the_facts_in_which_they_differ() {
        let common = ("cpu", "EPYC");
        let hosts = [
            host("rack-1", &[common, ("kernel", "6.1")]),
            host(
                "rack-2",
                &[common, ("kernel", "6.12"), ("governor", "powersave")],
            ),
            host("rack-3", &[common, ("kernel", "6.1")]),
        ];
        expect![[r#"
            3 hosts of 2 kinds
            on the wall clock the host is the replicate: figures are medians over hosts
                     kind  boots
             rack-1     A     26
             rack-2     B     26
             rack-3     A     26
             kind A: governor unknown, kernel 6.1
             kind B: governor powersave, kernel 6.12
        "#]]
        .assert_eq(&text(&hosts));
        assert!(text(&hosts[..1]).trim().is_empty());
        let many: Vec<_> = hosts.iter().cycle().take(100).cloned().collect();
        let many = text(&many);
        assert!(
            many.contains(" kind A     67  1,742\n kind B     33    858\n"),
            "{many}"
        );
        let alike = text(&[hosts[0].clone(), hosts[2].clone()]);
        assert!(alike.contains("2 hosts of 1 kind"), "{alike}");
        assert!(alike.contains("cpu EPYC, kernel 6.1"), "{alike}");
    }

    #[test]
    fn kinds_have_letters() {
        let letters = [0, 1, 25, 26, 27, 701, 702].map(letter);
        assert_eq!(letters, ["A", "B", "Z", "AA", "AB", "ZZ", "AAA"]);
    }
}
