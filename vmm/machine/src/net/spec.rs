//! A card as it is asked for: `tap=NAME` or `fd=N`, and perhaps `mac=…`.

use std::os::fd::RawFd;
use trapline_monitor::virtio::net::Mac;

/// The longest name that the kernel gives a network card.
const LONGEST_NAME: usize = libc::IFNAMSIZ - 1;

/// Where a card's tap comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is there, under this name.
    Named(String),
    /// Who started this process has opened it.
    Inherited(RawFd),
}

/// A card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its tap.
    pub source: Source,
    /// Its address; `None`: one made from the tap's name.
    pub mac: Option<Mac>,
}

impl Spec {
    /// Reads `text`; `None` if it says nothing that makes sense.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut source, mut mac) = (None, None);
        for word in text.split(',') {
            let (name, value) = word.split_once('=')?;
            match name {
                "tap" if source.is_none() => source = Some(Source::Named(tap_name(value)?)),
                "fd" if source.is_none() => source = Some(Source::Inherited(descriptor(value)?)),
                "mac" if mac.is_none() => mac = Some(parse_mac(value)?),
                _ => return None,
            }
        }
        let source = source?;
        Some(Self { source, mac })
    }
}

fn tap_name(text: &str) -> Option<String> {
    let is_short = (1..=LONGEST_NAME).contains(&text.len());
    let is_name = !text.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
    (is_short && is_name).then(|| text.to_owned())
}

/// Those below are standard input, output and errors.
fn descriptor(text: &str) -> Option<RawFd> {
    text.parse().ok().filter(|fd| *fd > libc::STDERR_FILENO)
}

/// Six numbers in hexadecimal; no address of a group (IEEE 802), and not none at all.
fn parse_mac(text: &str) -> Option<Mac> {
    let mut mac = [0; 6];
    let mut words = text.split(':');
    for byte in &mut mac {
        let word = words.next().filter(|word| word.len() == 2)?;
        // A sign would be read, too.
        let word = Some(word).filter(|word| !word.starts_with('+'))?;
        *byte = u8::from_str_radix(word, 16).ok()?;
    }
    let is_ones_own = mac[0] & 1 == 0 && mac != [0; 6];
    (words.next().is_none() && is_ones_own).then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_read_and_nonsense_is_not() {
        let named = |name: &str, mac| {
            let source = Source::Named(name.to_owned());
            Some(Spec { source, mac })
        };
        assert_eq!(Spec::parse("tap=tap0"), named("tap0", None));
        let mac = Some([2, 0x1a, 0, 0, 0, 0xff]);
        assert_eq!(Spec::parse("tap=t,mac=02:1A:00:00:00:ff"), named("t", mac));
        let source = Source::Inherited(7);
        let inherited = Spec { source, mac };
        assert_eq!(Spec::parse("mac=02:1a:00:00:00:ff,fd=7"), Some(inherited));
        for wrong in [
            "",
            "tap0",
            "tap=",
            "tap=a/b",
            "tap=abcdefghijklmnop",
            "tap=a,tap=b",
            "tap=a,fd=7",
            "fd=2",
            "fd=x",
            "mac=02:00:00:00:00:01",
            "tap=a,mac=02:00:00:00:00",
            "tap=a,mac=02:00:00:00:00:01:02",
            "tap=a,mac=03:00:00:00:00:01",
            "tap=a,mac=00:00:00:00:00:00",
            "tap=a,mac=+2:00:00:00:00:01",
            "tap=a,mtu=9000",
        ] {
            assert_eq!(Spec::parse(wrong), None, "{wrong}");
        }
    }
}
