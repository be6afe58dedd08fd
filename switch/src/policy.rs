//! Restrictions of a port's addresses and destinations, and their form on a command line.

use crate::frame::Mac;
use std::str::FromStr;

/// Restrictions of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Its only address: it sends from no other one, and other ports do not send from it.
    pub mac: Option<Mac>,
    /// No frame goes to or comes from another isolated port.
    pub is_isolated: bool,
}

impl Policy {
    /// Returns whether the port may send from an address.
    #[inline]
    pub fn permits(self, source: Mac) -> bool {
        self.mac.is_none_or(|mac| mac == source)
    }
}

/// A port as written: `NAME[,mac=ADDRESS][,isolated]`, where the name is a path or that of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortArgument {
    /// The name. It may contain commas.
    pub name: String,
    /// Its options.
    pub policy: Policy,
}

impl FromStr for PortArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut name, mut policy) = (text, Policy::default());
        while let Some((rest, option)) = name.rsplit_once(',') {
            if option == "isolated" {
                policy.is_isolated = true;
            } else if let Some(address) = option.strip_prefix("mac=") {
                let mac = Mac::parse(address).filter(|mac| !mac.is_invalid_source());
                let mac = mac.ok_or_else(|| {
                    format!("{address} is not the address of a card, as 52:54:00:12:34:56 is")
                })?;
                policy.mac = Some(mac);
            } else {
                break;
            }
            name = rest;
        }
        match name {
            "" => Err("there is no name before the options".to_owned()),
            name => Ok(Self {
                name: name.to_owned(),
                policy,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_follow_the_name() {
        let parse = |text: &str| text.parse::<PortArgument>();
        let mac = Some(Mac::new([2, 0, 0, 0, 0xab, 9]));
        for (text, name, mac, is_isolated) in [
            ("/run/a", "/run/a", None, false),
            ("/run/a,isolated", "/run/a", None, true),
            ("/run/a,mac=02:00:00:00:AB:09", "/run/a", mac, false),
            ("a,b,isolated,mac=02:00:00:00:ab:09", "a,b", mac, true),
            ("a,mac", "a,mac", None, false),
        ] {
            let expected = PortArgument {
                name: name.to_owned(),
                policy: Policy { mac, is_isolated },
            };
            assert_eq!(parse(text), Ok(expected));
        }
        for text in [
            "a,mac=",
            "a,mac=2:0:0:0:0:0",
            "a,mac=01:00:00:00:00:00",
            "a,mac=00:00:00:00:00:00",
            "a,mac=02:00:00:00:00:0g",
            "a,mac=02:00:00:00:00:00:00",
            ",isolated",
            "",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
