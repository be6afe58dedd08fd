//! Two Linux guests of one simulated machine exchange bytes. These tests take longest and begin first, as tests are sorted by
//! name.

use trapline_tests::measurements::assert_carried;
use trapline_tests::run::Place;
use trapline_tests::{has_qemu, skip};

#[test]
#[ignore = "slow: boots two Linux guests"]
fn linux_guests_exchange_bytes_over_the_switch() {
    let selection = "net/udp-ping,net/tcp-receive,net/udp-64,net/udp-1472,net/packet-ping";
    assert_linux_guests_exchange("switch", selection);
}

/// Both machines stopped while QEMU delivered interrupts twice (docs/internals/linux-guests.md).
#[test]
#[ignore = "slow: boots two Linux guests"]
fn linux_guests_exchange_bytes_over_vhost_net() {
    assert_linux_guests_exchange("vhost-net", "net");
}

#[track_caller]
fn assert_linux_guests_exchange(path: &str, selection: &str) {
    if !has_qemu("exchanges between guests") {
        return;
    }
    let own = ["--env", "sim/kvm/linux", "--workload", selection];
    let json = Place::new().measure(&[&own[..], &["--peer", "guest", "--path", path]].concat());
    let cells = json["cells"].as_array().expect("list");
    let expected = trapline_model::names::operations(selection).expect("known names");
    assert_eq!(cells.len(), expected.len());
    if let Some(reason) = cells[0]["skip"].as_str() {
        return skip("exchanges between guests", reason);
    }
    for cell in cells {
        assert_carried(cell);
    }
}
