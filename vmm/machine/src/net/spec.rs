//! Parsing of `--net`: `tap=NAME` or `fd=N`, optionally `mac=ADDRESS`.

use std::os::fd::RawFd;
use trapline_monitor::virtio::net::Mac;

/// Longest interface name.
const LONGEST_NAME: usize = libc::IFNAMSIZ - 1;

/// Source of a tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Existing interface.
    Named(String),
    /// Open descriptor inherited from the parent process.
    Inherited(RawFd),
}

/// Configuration of a network card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Tap.
    pub source: Source,
    /// MAC address; `None`: derived from the tap's name.
    pub mac: Option<Mac>,
}

impl Spec {
    /// Parses the option's value.
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

/// Parses a descriptor above the standard streams.
fn descriptor(text: &str) -> Option<RawFd> {
    text.parse().ok().filter(|fd| *fd > libc::STDERR_FILENO)
}

/// Parses a unicast address.
fn parse_mac(text: &str) -> Option<Mac> {
    let mut mac = [0; 6];
    let mut words = text.split(':');
    for byte in &mut mac {
        let word = words.next().filter(|word| word.len() == 2)?;
        // `from_str_radix` accepts a sign.
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
    fn net_option_is_parsed() {
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
