//! The house stands as the design draws it: each crate uses only what stands
//! before it, and the floors meet only where they should.

use trapline_tests::house::{members, rooms, Room};

fn floor(room: &Room) -> &str {
    room.place.split('/').next().unwrap_or_default()
}

#[test]
fn each_crate_uses_only_what_stands_before_it() {
    let rooms = rooms();
    for (index, room) in rooms.iter().enumerate() {
        for used in &room.uses {
            let before = rooms[..index].iter().any(|earlier| earlier.name == *used);
            assert!(
                before,
                "{} uses {used}, which does not stand before it",
                room.place
            );
        }
    }
}

#[test]
fn every_crate_is_in_the_list() {
    let listed = members();
    for room in rooms() {
        assert!(
            listed.contains(&room.place),
            "{} has no place in the list of members",
            room.place
        );
    }
}

/// What all floors share: the contract, and the way to start a program and know
/// when.
const STAIRWAY: [&str; 2] = ["guest/abi", "guest/spawn"];

/// Guests are measured in anybody's VMM, and the lab starts VMMs as processes.
#[test]
fn floors_meet_only_at_the_stairway() {
    let rooms = rooms();
    let of = |name: &String| rooms.iter().find(|room| room.name == *name);
    for room in rooms.iter().filter(|room| floor(room) != "tests") {
        for used in room.uses.iter().filter_map(of) {
            let allowed = floor(used) == floor(room) || STAIRWAY.contains(&used.place.as_str());
            assert!(
                allowed,
                "{} uses {} of another floor",
                room.place, used.place
            );
        }
    }
}

#[test]
fn one_crate_knows_the_kernel_interface() {
    for room in rooms() {
        let kvm = room.foreign.iter().find(|name| name.starts_with("kvm-"));
        assert!(
            kvm.is_none() || room.place == "vmm/kvm",
            "{} knows /dev/kvm",
            room.place
        );
    }
}

/// A report can be made again from stored samples, without any machine.
#[test]
fn summaries_never_see_a_machine() {
    let rooms = rooms();
    for place in ["lab/stats", "lab/gate", "lab/profile", "lab/report"] {
        let room = rooms
            .iter()
            .find(|room| room.place == place)
            .expect("it is there");
        for machine in ["trapline-environments", "trapline-store"] {
            assert!(!room.uses.contains(machine), "{place} uses {machine}");
        }
    }
}

#[test]
fn the_contract_needs_nothing() {
    let rooms = rooms();
    let abi = rooms
        .iter()
        .find(|room| room.place == "guest/abi")
        .expect("it is there");
    assert!(abi.uses.is_empty() && abi.foreign.is_empty(), "{abi:?}");
}
