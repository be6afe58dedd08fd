//! Ways of frames from one port to another.

use trapline_model::packets::Queues;
use trapline_model::EnvironmentId;

/// Placeholder of `trapline-switch`.
pub(super) const SWITCH: &str = "{switch}";

/// Placeholder of the number of pairs of queues of each port.
pub(super) const QUEUES: &str = "{queues}";

/// A way of frames from one port to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketPath {
    /// Its name.
    pub name: String,
    /// Its command is the user's.
    is_given: bool,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A network of Linux, by its name in trapline-traffic.
    Linux(&'static str),
    /// A forwarder.
    Program(Program),
}

/// A forwarder that is a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub ports: Ports,
    /// Its words, with `{a}` and `{b}` for sockets, `{directory}` for theirs, `{cpu}` and `{other}` for the CPUs of the forwarder and
    /// of the ports, `{mask}` for the mask of the first, [`QUEUES`], and [`SWITCH`].
    pub command: Vec<String>,
    /// Programs and files that it uses.
    pub needs: &'static [&'static str],
    pub remedy: &'static str,
}

/// Kind of a forwarder's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    /// Sockets of vhost-user.
    VhostUser,
    /// The directory of a VDE switch.
    Vde,
    /// Taps in network namespaces of the forwarder.
    Taps,
}

impl Ports {
    /// Returns the sockets that a forwarder opens when it is ready.
    pub fn sockets(self) -> &'static [&'static str] {
        match self {
            Self::VhostUser => &["a", "b"],
            Self::Vde => &["a/ctl"],
            Self::Taps => &["a"],
        }
    }
}

/// A path of the table.
struct KnownPath {
    name: &'static str,
    /// Ports and command of the forwarder; `None` if it is Linux.
    program: Option<(Ports, &'static str)>,
    needs: &'static [&'static str],
    remedy: &'static str,
}

const fn linux(name: &'static str) -> KnownPath {
    KnownPath {
        name,
        program: None,
        needs: &[],
        remedy: "",
    }
}

/// Makes two taps in namespaces of this program, which the switch is executed in. They are ready when it answers.
const TAPS: &str = r#"unshare --user --map-root-user --net sh -c '
for tap in port-a port-b; do
    ip tuntap add $tap mode tap && ip link set $tap up || exit
done
exec "$0" "$@"' {switch} --poll --cpu {cpu} --tap port-a --tap port-b --counters {a}"#;

/// Open vSwitch with DPDK as a learning switch, with a database of its own: the program of Debian's package, which is not the one in
/// `PATH`. Sockets of vhost-user are in its directory. Memory that is not of huge pages needs `--legacy-mem`.
const OVS: &str = r#"sh -c '
exec > {directory}/log 2>&1
export OVS_RUNDIR={directory} OVS_LOGDIR={directory} OVS_DBDIR={directory}
database=unix:{directory}/db.sock
ovsdb-tool create {directory}/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server {directory}/conf.db --remote=punix:{directory}/db.sock --no-chdir &
until ovs-vsctl --db=$database --no-wait init; do sleep 0.05; done
ovs-vsctl --db=$database --no-wait \
    -- set Open_vSwitch . other_config:dpdk-init=true other_config:pmd-cpu-mask={mask} \
        other_config:per-port-memory=true \
        other_config:dpdk-extra="--no-huge --legacy-mem -m 1024 --no-pci --no-telemetry" \
    -- add-br bridge -- set bridge bridge datapath_type=netdev \
    -- add-port bridge a -- set interface a type=dpdkvhostuser \
    -- add-port bridge b -- set interface b type=dpdkvhostuser
exec /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk $database --no-chdir'"#;

/// Paths that have a name.
const KNOWN: [KnownPath; 7] = [
    KnownPath {
        name: "switch",
        program: Some((
            Ports::VhostUser,
            "{switch} --poll --cpu {cpu} --listen {a} --listen {b}",
        )),
        needs: &[],
        remedy: "make build",
    },
    KnownPath {
        name: "testpmd",
        // Without huge pages; the defaults for memory and buffers do not fit there.
        program: Some((
            Ports::VhostUser,
            "dpdk-testpmd --no-huge -m 1024 --no-telemetry --no-shconf --no-pci -l {cpu},{other} --main-lcore {other} \
             --vdev net_vhost0,iface={a},queues={queues} --vdev net_vhost1,iface={b},queues={queues} -- \
             --rxq={queues} --txq={queues} --nb-cores=1 --burst=64 --total-num-mbufs=8192 --forward-mode=io --auto-start --no-mlockall -i",
        )),
        needs: &[],
        remedy: "apt-get install dpdk-dev librte-meta-all",
    },
    KnownPath {
        name: "ovs",
        program: Some((Ports::VhostUser, OVS)),
        needs: &[
            "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
            "/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_mempool_ring.so.23",
            "ovs-vsctl",
            "ovsdb-server",
            "ovsdb-tool",
        ],
        remedy: "apt-get install openvswitch-switch-dpdk librte-mempool-ring23",
    },
    KnownPath {
        name: "tap",
        program: Some((Ports::Taps, TAPS)),
        needs: &["ip"],
        remedy: "apt-get install iproute2 util-linux",
    },
    linux("veth"),
    linux("bridge"),
    KnownPath {
        name: "vde",
        program: Some((Ports::Vde, "vde_switch --sock {a}")),
        needs: &[],
        remedy: "apt-get install vde2",
    },
];

impl PacketPath {
    /// Returns the path of an environment that forwards.
    ///
    /// # Errors
    /// It forwards nothing, or the user's command is unknown or invalid, with the reason.
    pub fn of(environment: EnvironmentId) -> Result<Self, String> {
        let name = environment.forwarder().unwrap_or_default();
        let command = environment.forwarder_command();
        match (Self::known(name), command) {
            (Some(known), _) => Ok(known),
            (None, Some(command)) => Self::custom(name, &command),
            (None, None) => Err(format!(
                "no command of {environment}: give it with --forwarder {name}=COMMAND"
            )),
        }
    }

    /// Returns a known path.
    fn known(name: &str) -> Option<Self> {
        let known = KNOWN.into_iter().find(|path| path.name == name)?;
        let program = |(ports, command)| {
            Kind::Program(Program {
                ports,
                command: shlex::split(command).unwrap_or_default(),
                needs: known.needs,
                remedy: known.remedy,
            })
        };
        Some(Self {
            name: name.to_owned(),
            is_given: false,
            kind: known.program.map_or(Kind::Linux(known.name), program),
        })
    }

    /// Returns the path through a forwarder of the user's.
    ///
    /// # Errors
    /// The command is invalid, with the reason.
    fn custom(name: &str, command: &str) -> Result<Self, String> {
        let words = shlex::split(command).ok_or("a quote is not closed")?;
        for placeholder in ["{a}", "{b}"] {
            if !words.iter().any(|word| word.contains(placeholder)) {
                return Err(format!("{placeholder} is missing, a socket's path"));
            }
        }
        Ok(Self {
            name: name.to_owned(),
            is_given: true,
            kind: Kind::Program(Program {
                ports: Ports::VhostUser,
                command: words,
                needs: &[],
                remedy: "name a program that exists",
            }),
        })
    }

    /// Returns whether its ports can have these queues. Those that are no queues of virtio count as one pair of split ones. A
    /// command of the user's has a word with the number, if there may be several.
    pub fn supports(&self, queues: Queues) -> bool {
        let is_default = queues == Queues::DEFAULT;
        let has_number = |it: &String| it.contains(QUEUES);
        match &self.kind {
            Kind::Program(program) if program.ports == Ports::VhostUser => {
                let is_known = !self.is_given;
                queues.pairs == 1 || is_known || program.command.iter().any(has_number)
            }
            _ => is_default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::forwarders;
    use trapline_model::packets::Ring;

    #[test]
    fn every_known_command_is_one() {
        for name in forwarders::NAMES {
            let path = PacketPath::known(name).unwrap();
            assert_eq!((path.name.as_str(), path.is_given), (name, false));
            if let Kind::Program(program) = path.kind {
                assert!(program.command.len() > 1, "{name}");
                assert!(!program.remedy.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn a_forwarder_has_the_command_that_the_user_has_defined() {
        let of = |name: &str, command: &str| {
            PacketPath::of(EnvironmentId::define_forwarder(name, command).unwrap())
        };
        let path = of("mine-of-paths", "./mine 'a b' {a} {b}").unwrap();
        let Kind::Program(program) = path.kind else {
            panic!("{path:?}");
        };
        assert_eq!(program.command, ["./mine", "a b", "{a}", "{b}"]);
        let reason = of("one-of-paths", "./mine {a}").unwrap_err();
        assert_eq!(reason, "{b} is missing, a socket's path");
        let unknown = EnvironmentId::from_recorded("net/other-of-paths").unwrap();
        let reason = PacketPath::of(unknown).unwrap_err();
        assert!(
            reason.contains("--forwarder other-of-paths=COMMAND"),
            "{reason}"
        );
    }

    #[test]
    fn queues_are_those_of_vhost_user() {
        let supported = |path: &PacketPath| {
            [
                (Ring::Split, 1),
                (Ring::Packed, 1),
                (Ring::Split, 4),
                (Ring::Packed, 4),
            ]
            .map(|(ring, pairs)| path.supports(Queues { ring, pairs }))
        };
        for name in forwarders::NAMES {
            let has_queues = ["switch", "testpmd", "ovs"].contains(&name);
            let path = PacketPath::known(name).unwrap();
            assert_eq!(
                supported(&path),
                [true, has_queues, has_queues, has_queues],
                "{name}"
            );
        }
        let path = PacketPath::custom("mine", "mine {a} {b}").unwrap();
        assert_eq!(supported(&path), [true, true, false, false]);
        let path = PacketPath::custom("mine", "mine -n{queues} {a} {b}").unwrap();
        assert_eq!(supported(&path), [true; 4]);
    }
}
