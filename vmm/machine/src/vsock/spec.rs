//! Parsing of `--vsock`: `cid=N,path=PATH`, optionally `in`.

use crate::sandbox::Role;
use std::path::PathBuf;
use trapline_monitor::virtio::vsock::CIDS;

/// Longest path of a Unix socket, including the terminating zero.
const LONGEST: usize = 108;

/// Length of the suffix `_4294967295` and the zero.
const BEHIND: usize = 12;

/// Configuration of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Guest CID.
    pub cid: u32,
    /// Path of the socket.
    pub path: PathBuf,
    /// Allow the guest to connect to host programs.
    pub allow_guest: bool,
}

impl Spec {
    /// Returns the role of the device's thread.
    pub fn role(&self) -> Role {
        if self.allow_guest {
            Role::Vsock
        } else {
            Role::VsockIn
        }
    }

    /// Parses the option's value.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut cid, mut path, mut allow_guest) = (None, None, true);
        for word in text.split(',') {
            match word.split_once('=') {
                None if word == "in" => allow_guest = false,
                Some(("cid", value)) if cid.is_none() => cid = Some(parse_cid(value)?),
                Some(("path", value)) if path.is_none() => path = Some(parse_path(value)?),
                _ => return None,
            }
        }
        Some(Self {
            cid: cid?,
            path: path?,
            allow_guest,
        })
    }
}

fn parse_cid(text: &str) -> Option<u32> {
    text.parse().ok().filter(|cid| CIDS.contains(cid))
}

fn parse_path(text: &str) -> Option<PathBuf> {
    (1..=LONGEST - BEHIND)
        .contains(&text.len())
        .then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vsock_option_is_parsed() {
        let spec = |allow_guest| {
            Some(Spec {
                cid: 3,
                path: "/run/v".into(),
                allow_guest,
            })
        };
        assert_eq!(Spec::parse("cid=3,path=/run/v"), spec(true));
        assert_eq!(Spec::parse("in,path=/run/v,cid=3"), spec(false));
        let long = format!("cid=3,path={}", "p".repeat(97));
        for wrong in [
            "",
            "cid=3",
            "path=/run/v",
            "cid=2,path=p",
            "cid=4294967295,path=p",
            "cid=x,path=p",
            "cid=3,path=",
            "cid=3,path=p,out",
            "cid=3,cid=4,path=p",
            &long,
        ] {
            assert_eq!(Spec::parse(wrong), None, "{wrong}");
        }
    }
}
