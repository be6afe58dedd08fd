//! A guest that writes invalid queues as fast as it can.

use crate::common::{measure, Switch};

#[test]
fn hostile_driver_at_full_rate_harms_no_frame_of_others() {
    let switch = Switch::start(&["a", "b", "c"], &[]);
    let ports = ["a", "b", "c"].map(|port| switch.path(port));
    let [a, b, c] = ports.each_ref().map(|port| port.to_str().unwrap());
    let result = measure(&[a, b, "--hostile", c, "--seconds", "3"]).unwrap();
    assert_eq!(result["damaged"], 0, "{result}");
    for name in ["alone", "beside"] {
        assert!(result[name].as_f64() > Some(1000.0), "{result}");
    }
    assert!(result["attacks"].as_u64() > Some(0), "{result}");
    assert!(result["frames"].as_u64() > Some(1000), "{result}");
    let hostile = switch.counters("c");
    assert!(hostile["faults"].as_u64() > Some(0), "{hostile}");
    let dropped = hostile["dropped"]["link-local"].as_u64();
    assert!(dropped > Some(1000), "{hostile}");
    // Its addresses have displaced none of theirs.
    let result = measure(&[a, b, "--seconds", "0.1"]).unwrap();
    assert_eq!(result["flow"]["lost"], 0, "{result}");
}
