//! A guest that writes invalid queues as fast as it can.

use crate::common::{measure, wait_until, Switch};

#[test]
fn hostile_driver_at_full_rate_harms_no_frame_of_others() {
    let switch = Switch::start(&["a", "b", "c"], &[]);
    let ports = ["a", "b", "c"].map(|port| switch.path(port));
    let [a, b, c] = ports.each_ref().map(|port| port.to_str().unwrap());
    let mut frames = 0;
    // On a busy host once more.
    wait_until(|| {
        let result = measure(&[a, b, "--hostile", c, "--seconds", "3"]).unwrap();
        assert_eq!(result["damaged"], 0, "{result}");
        for name in ["alone", "beside"] {
            assert!(result[name].as_f64() > Some(0.0), "{result}");
        }
        frames += result["frames"].as_u64().unwrap();
        let faults = switch.counters("c")["faults"].as_u64();
        faults > Some(0) && frames > 1000 && switch.dropped("c", "link-local") > 1000
    });
    // Its addresses have displaced none of theirs.
    let result = measure(&[a, b, "--seconds", "0.1"]).unwrap();
    assert_eq!(result["flow"]["lost"], 0, "{result} {}", switch.state());
}
