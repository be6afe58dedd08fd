//! The device as it is asked for: `cid=N,path=PATH`, and perhaps `in`.

use crate::sandbox::Role;
use std::path::PathBuf;
use trapline_monitor::virtio::vsock::CIDS;

/// The longest path of a Unix socket, with a zero behind it.
const LONGEST: usize = 108;

/// What is put behind it: `_4294967295`, and that zero.
const BEHIND: usize = 12;

/// The device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The guest's address.
    pub cid: u32,
    /// Where programs of the host connect.
    pub path: PathBuf,
    /// Whether the guest may connect to programs of the host, too.
    pub guest_calls: bool,
}

impl Spec {
    /// What the thread that serves it will be.
    pub fn role(&self) -> Role {
        match self.guest_calls {
            true => Role::Vsock,
            false => Role::VsockIn,
        }
    }

    /// Reads `text`; `None` if it says nothing that makes sense.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut cid, mut path, mut guest_calls) = (None, None, true);
        for word in text.split(',') {
            match word.split_once('=') {
                None if word == "in" => guest_calls = false,
                Some(("cid", value)) if cid.is_none() => cid = Some(parse_cid(value)?),
                Some(("path", value)) if path.is_none() => path = Some(parse_path(value)?),
                _ => return None,
            }
        }
        Some(Self {
            cid: cid?,
            path: path?,
            guest_calls,
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
    fn a_device_is_read_and_nonsense_is_not() {
        let spec = |guest_calls| {
            Some(Spec {
                cid: 3,
                path: "/run/v".into(),
                guest_calls,
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
