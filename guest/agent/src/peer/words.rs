//! Words of the command line that start a peer.

/// Word of the command line.
const WORD: &str = "trapline.peer";

/// Place of a peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// At the loopback device.
    Loopback,
    /// Behind devices of a program.
    Cards(Cards<'a>),
    /// None: checks that there can be a tap.
    Check,
}

/// A program with the other sides of its network cards and sockets.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cards<'a> {
    /// A tap.
    pub has_tap: bool,
    /// A device of sockets.
    pub has_vsock: bool,
    /// Another guest.
    pub neighbour: Option<Neighbour<'a>>,
    /// Program and arguments.
    pub program: &'a [String],
}

/// Another guest on the other side of a network card.
#[derive(Debug, PartialEq, Eq)]
pub struct Neighbour<'a> {
    /// Connection between both.
    pub way: Way<'a>,
    /// Command of the other guest.
    pub guest: &'a [String],
}

/// Connection between two guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way<'a> {
    /// `trapline-switch`, by its path.
    Switch(&'a str),
    /// A bridge of Linux.
    Bridge {
        /// The kernel moves the frames between taps and guests, not the VMMs.
        by_kernel: bool,
    },
}

/// Parses a command line, if it is that of a peer.
pub fn parse(words: &[String]) -> Option<Result<Place<'_>, String>> {
    let (first, program) = words.split_first()?;
    let place = first.strip_prefix(WORD)?;
    let parsed = match (place, program) {
        ("", []) => Some(Place::Loopback),
        ("=check", []) => Some(Place::Check),
        _ => place
            .strip_prefix('=')
            .and_then(|kinds| cards(kinds, program))
            .map(Place::Cards),
    };
    Some(parsed.ok_or_else(|| {
        format!(
            "invalid peer: '{first}'\nhelp: use {WORD}, {WORD}=tap,vsock PROGRAM ARGUMENT..., or \
             {WORD}=switch SWITCH COUNT WORD... PROGRAM ARGUMENT..., or \
             {WORD}=bridge COUNT WORD... PROGRAM ARGUMENT..., or the same with vhost-net"
        )
    }))
}

/// Parses the kinds of cards, and the words behind them.
fn cards<'a>(kinds: &str, mut words: &'a [String]) -> Option<Cards<'a>> {
    let mut cards = Cards::default();
    for kind in kinds.split(',') {
        match kind {
            "tap" if !cards.has_tap => cards.has_tap = true,
            "vsock" if !cards.has_vsock => cards.has_vsock = true,
            _ if cards.neighbour.is_none() => {
                let (neighbour, rest) = neighbour(kind, words)?;
                cards.neighbour = Some(neighbour);
                words = rest;
            }
            _ => return None,
        }
    }
    cards.program = words;
    words.first().map(|_| cards)
}

/// Parses what connects another guest, and its command. Returns the words behind them, too.
fn neighbour<'a>(kind: &str, words: &'a [String]) -> Option<(Neighbour<'a>, &'a [String])> {
    let (way, words) = match kind {
        "switch" => {
            let (path, rest) = words.split_first()?;
            (Way::Switch(path), rest)
        }
        "bridge" => (Way::Bridge { by_kernel: false }, words),
        "vhost-net" => (Way::Bridge { by_kernel: true }, words),
        _ => return None,
    };
    let (count, rest) = words.split_first()?;
    let (guest, rest) = rest.split_at_checked(count.parse().ok()?)?;
    guest.first()?;
    Some((Neighbour { way, guest }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_parsed_from_the_command_line() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse(&words("trapline.peer")), Some(Ok(Place::Loopback)));
        let program = words("trapline.peer=tap vmm --x");
        let with_tap = Cards {
            has_tap: true,
            program: &program[1..],
            ..Cards::default()
        };
        assert_eq!(parse(&program), Some(Ok(Place::Cards(with_tap))));
        let both = words("trapline.peer=switch,vsock,tap /switch 2 vmm --receive vmm --x");
        let with_both = Cards {
            has_tap: true,
            has_vsock: true,
            neighbour: Some(Neighbour {
                way: Way::Switch("/switch"),
                guest: &both[3..5],
            }),
            program: &both[5..],
        };
        assert_eq!(parse(&both), Some(Ok(Place::Cards(with_both))));
        for (kind, by_kernel) in [("bridge", false), ("vhost-net", true)] {
            let words = words(&format!("trapline.peer={kind} 1 guest vmm --x"));
            let bridged = Cards {
                neighbour: Some(Neighbour {
                    way: Way::Bridge { by_kernel },
                    guest: &words[2..3],
                }),
                program: &words[3..],
                ..Cards::default()
            };
            assert_eq!(parse(&words), Some(Ok(Place::Cards(bridged))));
        }
        let check = words("trapline.peer=check");
        assert_eq!(parse(&check), Some(Ok(Place::Check)));
        for wrong in [
            "trapline.peer=tap",
            "trapline.peer=bridge x",
            "trapline.peer=tap,tap x",
            "trapline.peer=vsock,vsock x",
            "trapline.peer=switch /switch 0 vmm",
            "trapline.peer=switch /switch 1 guest",
            "trapline.peer=switch /switch 3 guest vmm",
            "trapline.peer=switch /switch x guest vmm",
            "trapline.peer x",
        ] {
            assert!(parse(&words(wrong)).unwrap().is_err(), "{wrong}");
        }
        assert_eq!(parse(&words("trapline.run=net")), None);
    }
}
