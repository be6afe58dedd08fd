//! Load on the host while it measured, in one sentence for the whole report.

use crate::Report;
use std::collections::{BTreeMap, BTreeSet};
use trapline_model::Config;
use trapline_stats::{Cell, Flag};

/// Returns a sentence about load on the host during boots on the wall clock, if there was any.
pub fn sentence(report: &Report, cells: &[Cell]) -> Option<String> {
    let mut boots: BTreeMap<&Config, usize> = BTreeMap::new();
    let mut most: BTreeMap<&str, &str> = BTreeMap::new();
    for (cell, what, count) in flagged(cells) {
        let known = boots.entry(&cell.config).or_default();
        *known = count.max(*known);
        for (name, value) in what {
            let known = most.entry(name).or_insert(value);
            if leading_number(value) > leading_number(known) {
                *known = value;
            }
        }
    }
    let all = cells.iter().filter(|cell| cell.value.figure().is_some());
    let all: BTreeSet<_> = all.map(|cell| &cell.config).collect();
    let wall = all.iter().filter(|it| !it.clock().is_exact()).count();
    let configs: BTreeSet<&Config> = boots.keys().copied().collect();
    let place = match configs.len() {
        0 => return None,
        some if some == wall => "in all environments".to_owned(),
        _ => format!("in {}", report.names(&configs)),
    };
    let what: Vec<String> = most
        .into_iter()
        .map(|(name, value)| describe(name, value))
        .collect();
    let boots = match boots.values().sum() {
        1 => "1 boot".to_owned(),
        more => format!("{more} boots"),
    };
    Some(format!(
        "The wall clock is in doubt: {} in {boots}, {place}",
        what.join(", ")
    ))
}

type Noise<'a> = (&'a Cell, &'a BTreeMap<String, String>, usize);

fn flagged(cells: &[Cell]) -> impl Iterator<Item = Noise<'_>> {
    let flags = cells.iter().flat_map(|cell| {
        let flags = cell.value.figure().map_or(&[][..], |figure| &figure.flags);
        flags.iter().map(move |flag| (cell, flag))
    });
    flags.filter_map(|(cell, flag)| match flag {
        Flag::HostNoise { what, boots } => Some((cell, what, *boots)),
        _ => None,
    })
}

/// Returns the number at the start of a value such as `40% of a CPU`.
fn leading_number(value: &str) -> f64 {
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.');
    let digits = &value[..end.unwrap_or(value.len())];
    digits.parse().unwrap_or(0.0)
}

/// Describes one kind of load.
pub fn describe(name: &str, value: &str) -> String {
    match name {
        "others" => format!("other programs used {value}"),
        "steal" => format!("other machines used {value}"),
        "throttled" => format!("processors were throttled {value}"),
        "quota" => format!("programs had used up the CPU time of their group {value}"),
        "memory" => format!("programs were killed for lack of memory {value}"),
        "frequency" => format!("the processors' frequency fell {value}"),
        "clock" => format!("the kernel kept time by {value}"),
        _ => format!("{name} {value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{figure, measured};
    use trapline_abi::Op;
    use trapline_model::EnvironmentId;
    use trapline_stats::Figure;

    fn cell(environment: EnvironmentId, noise: &[(&str, usize)]) -> Cell {
        let flags = noise.iter().map(|(value, boots)| Flag::HostNoise {
            what: BTreeMap::from([("others".to_owned(), (*value).to_owned())]),
            boots: *boots,
        });
        let flags = flags.collect();
        measured(
            environment,
            Op::Getpid,
            Figure {
                flags,
                ..figure(1.0)
            },
        )
    }

    #[test]
    fn load_is_said_once_with_its_maximum() {
        use EnvironmentId as Id;
        let (calm, busy) = (cell(Id::HOST, &[]), cell(Id::KVM, &[("40% of a CPU", 2)]));
        assert_eq!(
            sentence(&Report::default(), std::slice::from_ref(&calm)),
            None
        );
        assert_eq!(
            sentence(&Report::default(), &[calm, busy.clone()]).unwrap(),
            "The wall clock is in doubt: other programs used 40% of a CPU in 2 boots, in kvm"
        );
        let all = [
            cell(Id::HOST, &[("112% of a CPU", 5)]),
            busy,
            cell(Id::SIM, &[]),
        ];
        assert_eq!(
            sentence(&Report::default(), &all).unwrap(),
            "The wall clock is in doubt: other programs used 112% of a CPU in 7 boots, in all \
             environments"
        );
    }
}
