//! Settings of a run that its figures depend on.

use std::collections::BTreeMap;
use trapline_model::{irq, RecordedRequest};
use trapline_stats::history::SeriesSettings;

/// Returns the settings of a run that its figures depend on, as text.
pub fn comparable(request: &RecordedRequest) -> SeriesSettings {
    let preset = request.preset.iter().map(|name| format!("preset {name}"));
    let settings = request.settings.iter();
    let settings = settings.map(|(name, value)| format!("{name} {value}"));
    let block = request.block.map(|block| {
        let [mib, requests] = [block.mib, block.requests];
        format!("size {mib}M, requests {requests}")
    });
    let packets = request
        .packets
        .map(|packets| format!("duration {} ms", packets.milliseconds));
    SeriesSettings {
        general: preset.chain(settings).collect::<Vec<_>>().join(", "),
        irq: interrupts(request.irq_settings()),
        block: block.unwrap_or_default(),
        packets: packets.unwrap_or_default(),
    }
}

/// Returns the settings of workload irq that differ from the default, without thresholds.
fn interrupts(settings: irq::Settings) -> String {
    let settings = irq::Settings {
        threshold: irq::Settings::default().threshold,
        require: None,
        ..settings
    };
    let usual: BTreeMap<String, String> = irq::Settings::default().facts();
    let facts = settings.facts().into_iter();
    let others = facts.filter(|(name, value)| usual.get(name) != Some(value));
    let others: Vec<String> = others
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    others.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_model::{names, EnvironmentId, Preset, Request};

    #[test]
    fn settings_of_other_operations_are_ignored_in_comparisons() {
        let all = names::operations("basic,irq,block").unwrap();
        let of = |operations, preset, overrides: &str| {
            let request = Request {
                configs: vec![EnvironmentId::HOST.into()],
                operations,
                preset,
                boots: Some(7),
                overrides: overrides.parse().unwrap(),
                ..Request::default()
            };
            comparable(&RecordedRequest::of(&request))
        };
        let some = of(names::operations("basic").unwrap(), Preset::Quick, "");
        assert_eq!(some.general, "preset quick");
        assert_eq!((some.irq.as_str(), some.block.as_str()), ("", ""));
        let every = of(all, Preset::Quick, "");
        assert_eq!((every.general, every.irq), (some.general, some.irq));
        expect!["size 256M, requests 32768"].assert_eq(&every.block);
        assert_eq!(
            of(all, Preset::Full, "cap=25").general,
            "preset full, cap 25"
        );
    }

    #[test]
    fn irq_settings_that_affect_figures_are_compared() {
        let request = Request {
            operations: irq::operations(),
            irq: irq::Settings {
                period: irq::Time(1_000_000),
                threshold: irq::Time(50_000),
                ..irq::Settings::default()
            },
            ..Request::default()
        };
        let found = comparable(&RecordedRequest::of(&request));
        assert_eq!(
            (found.general.as_str(), found.irq.as_str()),
            ("preset quick", "irq-period 1ms")
        );
    }
}
