//! What happens to a machine, as lines of JSON for programs (docs/boot.md). People see the
//! console.

use super::request::Request;
use super::session::Ended;
use serde_json::{json, Value};
use std::io::Write;
use trapline_abi::frame::{Decoder, Item};
use trapline_abi::Record;
use trapline_environments::Rate;

/// Whoever is told.
pub struct Events {
    wanted: bool,
    decoder: Decoder,
    exec: u64,
}

impl Events {
    /// Tells on standard output, if that is wanted.
    pub fn new(wanted: bool) -> Self {
        Self {
            wanted,
            decoder: Decoder::new(),
            exec: 0,
        }
    }

    /// A machine is about to be started.
    pub fn starting(&mut self, request: &Request) {
        self.decoder = Decoder::new();
        self.tell(&json!({
            "event": "starting",
            "version": 1,
            "kernel": request.kernel,
            "api": request.api,
        }));
    }

    /// It was started at this count of the time stamp counter.
    pub fn begin(&mut self, exec: u64) {
        self.exec = exec;
    }

    /// It says something of itself.
    pub fn hear(&mut self, bytes: &[u8]) {
        let mut told = Vec::new();
        let exec = self.exec;
        self.decoder.feed(bytes, &mut |item| {
            if let Item::Record(record, _) = item {
                told.extend(of_record(&record, exec));
            }
        });
        told.iter().for_each(|event| self.tell(event));
    }

    /// It has ended.
    pub fn ended(&mut self, ended: Ended) {
        let event = match ended {
            Ended::Exited(status) => json!({"event": "ended", "status": status}),
            Ended::Killed(signal) => json!({"event": "ended", "signal": signal}),
            Ended::Told => json!({"event": "ended", "told": true}),
        };
        self.tell(&event);
    }

    fn tell(&self, event: &Value) {
        if self.wanted {
            // Who does not read on misses nothing but events.
            let _ = writeln!(std::io::stdout(), "{event}");
        }
    }
}

fn of_record(record: &Record<'_>, exec: u64) -> Option<Value> {
    match record {
        Record::Stage { stage, at } => {
            let since = at.saturating_sub(exec) as f64 * Rate::of_this_host().ns_per_tick();
            Some(json!({"event": "stage", "stage": stage.name(), "ns": since.round()}))
        }
        Record::Count { counter, value } => {
            Some(json!({"event": "count", "counter": counter.name(), "value": value}))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::record::Counter;
    use trapline_abi::Stage;

    #[test]
    fn stages_count_from_the_start_and_figures_are_told() {
        let stage = Record::Stage {
            stage: Stage::VmmMain,
            at: 10,
        };
        let told = of_record(&stage, 10).unwrap();
        assert_eq!(
            told,
            json!({"event": "stage", "stage": "vmm-main", "ns": 0.0})
        );
        let count = Record::Count {
            counter: Counter::PortExits,
            value: 7,
        };
        let told = of_record(&count, 0).unwrap();
        assert_eq!(
            told,
            json!({"event": "count", "counter": "port-exits", "value": 7})
        );
        assert_eq!(of_record(&Record::Done, 0), None);
    }
}
