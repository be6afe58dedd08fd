//! Parsing of `--net`: `tap=NAME`, `fd=N` or `vhost-user=SOCKET`, optionally `mac=ADDRESS`; `vhost=on` with a tap, `queues=N`
//! with a socket.

use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::path::PathBuf;
use trapline_monitor::virtio::net::Mac;

/// Longest interface name.
const LONGEST_NAME: usize = libc::IFNAMSIZ - 1;

/// Longest path of a Unix socket, without the terminating zero.
const LONGEST_PATH: usize = 107;

/// Pairs of queues of a card.
const PAIRS: RangeInclusive<u16> = 1..=8;

/// Source of a tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TapSource {
    /// Existing interface.
    Named(String),
    /// Open descriptor inherited from the parent process.
    Inherited(RawFd),
}

/// Other side of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A tap.
    Tap(TapSource),
    /// Something else serves the queues.
    External(ExternalSource),
}

/// What serves the queues of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalSource {
    /// A process, by its socket.
    VhostUser(PathBuf),
    /// The kernel, with a tap.
    VhostNet(TapSource),
}

impl From<TapSource> for Source {
    fn from(tap: TapSource) -> Self {
        Self::Tap(tap)
    }
}

impl From<ExternalSource> for Source {
    fn from(source: ExternalSource) -> Self {
        Self::External(source)
    }
}

/// Configuration of a network card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Other side.
    pub source: Source,
    /// MAC address; `None`: derived from the name of the other side.
    pub mac: Option<Mac>,
    /// Pairs of queues, above 1 only with a socket.
    pub pairs: u16,
}

impl Spec {
    /// Parses the option's value.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut source, mut mac, mut pairs) = (None, None, None);
        let mut is_of_kernel = false;
        for word in text.split(',') {
            let (name, value) = word.split_once('=')?;
            match name {
                "tap" if source.is_none() => {
                    source = Some(TapSource::Named(tap_name(value)?).into())
                }
                "fd" if source.is_none() => {
                    source = Some(TapSource::Inherited(descriptor(value)?).into())
                }
                "vhost-user" if source.is_none() => {
                    source = Some(ExternalSource::VhostUser(socket(value)?).into());
                }
                "vhost" if value == "on" && !is_of_kernel => is_of_kernel = true,
                "mac" if mac.is_none() => mac = Some(parse_mac(value)?),
                "queues" if pairs.is_none() => pairs = Some(number_of_pairs(value)?),
                _ => return None,
            }
        }
        let source = match (source?, is_of_kernel) {
            (Source::Tap(tap), true) => ExternalSource::VhostNet(tap).into(),
            (Source::External(_), true) => return None,
            (source, false) => source,
        };
        let spec = Self {
            source,
            mac,
            pairs: pairs.unwrap_or(1),
        };
        (pairs.is_none() || spec.is_of_process()).then_some(spec)
    }

    /// Returns true if something else serves the queues.
    pub fn is_external(&self) -> bool {
        matches!(self.source, Source::External(_))
    }

    /// Returns true if another process serves the queues.
    pub fn is_of_process(&self) -> bool {
        matches!(self.source, Source::External(ExternalSource::VhostUser(_)))
    }
}

fn socket(text: &str) -> Option<PathBuf> {
    (1..=LONGEST_PATH)
        .contains(&text.len())
        .then(|| text.into())
}

fn number_of_pairs(text: &str) -> Option<u16> {
    text.parse().ok().filter(|pairs| PAIRS.contains(pairs))
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
            let source = TapSource::Named(name.to_owned()).into();
            Some(Spec {
                source,
                mac,
                pairs: 1,
            })
        };
        assert_eq!(Spec::parse("tap=tap0"), named("tap0", None));
        let mac = Some([2, 0x1a, 0, 0, 0, 0xff]);
        assert_eq!(Spec::parse("tap=t,mac=02:1A:00:00:00:ff"), named("t", mac));
        let source = TapSource::Inherited(7).into();
        let inherited = Spec {
            source,
            mac,
            pairs: 1,
        };
        assert_eq!(Spec::parse("mac=02:1a:00:00:00:ff,fd=7"), Some(inherited));
        let external = |pairs| {
            Some(Spec {
                source: ExternalSource::VhostUser("/run/a".into()).into(),
                mac: None,
                pairs,
            })
        };
        assert_eq!(Spec::parse("vhost-user=/run/a"), external(1));
        assert_eq!(Spec::parse("queues=8,vhost-user=/run/a"), external(8));
        let of_kernel = Spec {
            source: ExternalSource::VhostNet(TapSource::Inherited(7)).into(),
            mac,
            pairs: 1,
        };
        let parsed = Spec::parse("vhost=on,fd=7,mac=02:1a:00:00:00:ff");
        assert_eq!(parsed, Some(of_kernel));
    }

    #[test]
    fn wrong_net_option_is_rejected() {
        for wrong in [
            "",
            "vhost=on",
            "tap=a,vhost=off",
            "tap=a,vhost=on,vhost=on",
            "tap=a,vhost=on,queues=2",
            "vhost-user=a,vhost=on",
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
            "tap=a,queues=1",
            "vhost-user=",
            "vhost-user=a,tap=b",
            "vhost-user=a,queues=0",
            "vhost-user=a,queues=9",
        ] {
            assert_eq!(Spec::parse(wrong), None, "{wrong}");
        }
    }
}
