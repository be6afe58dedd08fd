//! A guest that writes invalid queues as fast as it can.

use crate::common::{measure, wait_until, Switch};

#[test]
fn hostile_driver_at_full_rate_harms_no_frame_of_others() {
    let switch = Switch::start(&["a", "b", "c"], &[]);
    let ports = ["a", "b", "c"].map(|port| switch.path(port));
    let [a, b, c] = ports.each_ref().map(|port| port.to_str().unwrap());
    // On a busy host once more.
    wait_until(|| {
        let result = measure(&[a, b, "--hostile", c, "--seconds", "3"]).unwrap();
        assert_eq!(result["damaged"], 0, "{result}");
        let rates = ["alone", "beside"].map(|name| result[name].as_f64());
        rates.iter().all(|rate| *rate > Some(1000.0))
            && result["attacks"].as_u64() > Some(0)
            && result["frames"].as_u64() > Some(1000)
            && switch.counters("c")["faults"].as_u64() > Some(0)
            && switch.dropped("c", "link-local") > 1000
    });
    // Its addresses have displaced none of theirs.
    let result = measure(&[a, b, "--seconds", "0.1"]).unwrap();
    assert_eq!(result["flow"]["lost"], 0, "{result} {}", switch.state());
}
