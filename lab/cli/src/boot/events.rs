//! Events of a machine as JSON lines (docs/boot.md).

use super::request::Request;
use serde_json::{json, Value};
use std::io::Write;
use trapline_abi::frame::{Decoder, Item};
use trapline_abi::Record;
use trapline_environments::TscRate;

/// End of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Exited with this status.
    Exited(i32),
    /// Killed by this signal.
    Killed(i32),
    /// Ended on request of this process.
    Requested,
}

/// Prints events to standard output, if enabled.
pub struct Events {
    enabled: bool,
    decoder: Decoder,
    exec: u64,
}

impl Events {
    /// Creates a printer that is enabled or not.
    pub fn new(enabled: bool) -> Self {
        Self {
            enabled,
            decoder: Decoder::new(),
            exec: 0,
        }
    }

    /// Prints that a machine starts.
    pub fn starting(&mut self, request: &Request) {
        self.decoder = Decoder::new();
        self.print(&json!({
            "event": "starting",
            "version": 1,
            "kernel": request.kernel,
            "api": request.api,
        }));
    }

    /// Sets the time stamp counter at which the machine was started.
    pub fn begin(&mut self, exec: u64) {
        self.exec = exec;
    }

    /// Prints the records in these bytes from the machine.
    pub fn receive(&mut self, bytes: &[u8]) {
        let mut events = Vec::new();
        let exec = self.exec;
        self.decoder.feed(bytes, &mut |item| {
            if let Item::Record(record, _) = item {
                events.extend(of_record(&record, exec));
            }
        });
        events.iter().for_each(|event| self.print(event));
    }

    /// Prints that the machine ended.
    pub fn ended(&mut self, ended: Ended) {
        let event = match ended {
            Ended::Exited(status) => json!({"event": "ended", "status": status}),
            Ended::Killed(signal) => json!({"event": "ended", "signal": signal}),
            Ended::Requested => json!({"event": "ended", "told": true}),
        };
        self.print(&event);
    }

    fn print(&self, event: &Value) {
        if self.enabled {
            // A closed pipe is not an error.
            let _ = writeln!(std::io::stdout(), "{event}");
        }
    }
}

fn of_record(record: &Record<'_>, exec: u64) -> Option<Value> {
    match record {
        Record::Stage { stage, at } => {
            let since = at.saturating_sub(exec) as f64 * TscRate::host().ns_per_tick();
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
    fn stages_and_counters_are_printed() {
        let stage = Record::Stage {
            stage: Stage::VmmMain,
            at: 10,
        };
        let event = of_record(&stage, 10).unwrap();
        assert_eq!(
            event,
            json!({"event": "stage", "stage": "vmm-main", "ns": 0.0})
        );
        let count = Record::Count {
            counter: Counter::PortExits,
            value: 7,
        };
        let event = of_record(&count, 0).unwrap();
        assert_eq!(
            event,
            json!({"event": "count", "counter": "port-exits", "value": 7})
        );
        assert_eq!(of_record(&Record::Done, 0), None);
    }
}
