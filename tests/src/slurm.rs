//! A Slurm of real daemons on the loopback device: three nodes of this machine, each with a host name, a boot id and a directory for
//! temporary files of its own. It needs root, and ends with this value.

use crate::on_path;
use crate::processes::wait_until;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Names of the nodes.
pub const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Programs that are needed.
const PROGRAMS: [&str; 7] = [
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "squeue",
    "scancel",
    "unshare",
];

/// The daemons, which run in the foreground.
pub struct Cluster {
    directory: TempDir,
    daemons: Vec<Child>,
    nodes: Vec<(&'static str, Child)>,
}

impl Cluster {
    /// Returns why there can be none on this machine.
    pub fn missing() -> Option<String> {
        let missing = PROGRAMS
            .into_iter()
            .find(|program| on_path(program).is_none());
        if let Some(program) = missing {
            return Some(format!(
                "there is no {program}: apt-get install slurmctld slurmd slurm-client munge"
            ));
        }
        let can = Command::new("unshare")
            .args(["--uts", "--mount", "true"])
            .status();
        (!can.is_ok_and(|it| it.success())).then(|| "unshare fails: it needs root".to_owned())
    }

    /// Starts all daemons with ports from `port` on, and waits until the nodes are idle.
    ///
    /// # Panics
    /// A daemon does not start.
    pub fn start(port: u16) -> Self {
        let mut cluster = Self {
            directory: tempfile::tempdir().expect("temporary directory"),
            daemons: Vec::new(),
            nodes: Vec::new(),
        };
        cluster.configure(port);
        cluster.start_daemons();
        for node in NODES {
            cluster.start_node(node);
        }
        let is_idle = || {
            let mut command = cluster.command("sinfo");
            let output = command
                .args(["-h", "-N", "-t", "idle", "-o", "%N"])
                .output();
            output
                .is_ok_and(|it| String::from_utf8_lossy(&it.stdout).lines().count() == NODES.len())
        };
        assert!(
            wait_until(Duration::from_secs(120), is_idle),
            "{}",
            cluster.logs()
        );
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a command with the configuration of this Slurm.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        self.configured(&mut command);
        command
    }

    /// Gives a command the configuration of this Slurm.
    pub fn configured(&self, command: &mut Command) {
        command.env("SLURM_CONF", self.path("slurm.conf"));
    }

    fn configure(&self, port: u16) {
        for name in ["ctld", "spool", "log", "run"] {
            fs::create_dir(self.path(name)).expect("new directory");
        }
        let shared = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.directory.path(), shared).expect("own directory");
        let key = self.path("key");
        let random = fs::read("/proc/sys/kernel/random/uuid").expect("the kernel gives one");
        fs::write(&key, random.repeat(4)).expect("new file");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).expect("own file");
        let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let host = host
            .trim()
            .split('.')
            .next()
            .unwrap_or("localhost")
            .to_owned();
        let directory = self.directory.path().display();
        let mut text = format!(
            "ClusterName=trapline\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={port}\n\
             SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={directory}/run/munge\n\
             CredType=cred/munge\nStateSaveLocation={directory}/ctld\nSlurmdSpoolDir={directory}/spool/%n\n\
             SlurmctldPidFile={directory}/run/ctld.pid\nSlurmdPidFile={directory}/run/%n.pid\n\
             SlurmctldLogFile={directory}/log/ctld\nSlurmdLogFile={directory}/log/%n\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n\
             SwitchType=switch/none\nSlurmdParameters=config_overrides\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_Core\nReturnToService=2\nSlurmdTimeout=10\nKillWait=2\nJobRequeue=1\n\
             AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\n\
             CommunicationParameters=NoCtldInAddrAny\n"
        );
        for (node, number) in NODES.iter().zip(1..) {
            let port = port + number;
            text += &format!(
                "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=1024\n"
            );
        }
        text += &format!(
            "PartitionName=lab Nodes={} Default=YES MaxTime=60 State=UP OverSubscribe=EXCLUSIVE\n",
            NODES.join(",")
        );
        fs::write(self.path("slurm.conf"), text).expect("new file");
        fs::write(self.path("cgroup.conf"), "CgroupAutomount=no\n").expect("new file");
    }

    fn start_daemons(&mut self) {
        let mut munged = self.command("munged");
        munged.args(["--foreground", "--force"]);
        for (option, name) in [
            ("key-file", "key"),
            ("socket", "run/munge"),
            ("pid-file", "run/munge.pid"),
            ("seed-file", "run/seed"),
        ] {
            munged.arg(format!("--{option}={}", self.path(name).display()));
        }
        let mut controller = self.command("slurmctld");
        controller.args(["-D", "-c", "-i"]);
        for mut daemon in [munged, controller] {
            let started = quiet(&mut daemon, &self.path("log/start")).spawn();
            self.daemons.push(started.expect("daemon starts"));
        }
    }

    /// Starts a node.
    fn start_node(&mut self, node: &'static str) {
        let boot = self.path(&format!("run/{node}.boot"));
        let id = fs::read("/proc/sys/kernel/random/uuid").expect("the kernel gives one");
        fs::write(&boot, id).expect("new file");
        let script = "hostname \"$0\" && mount -t tmpfs -o size=1g tmpfs /var/tmp && \
             mount --bind \"$1\" /proc/sys/kernel/random/boot_id && exec slurmd -D -b -N \"$0\"";
        let mut daemon = self.command("unshare");
        // Its end is that of all that it has started.
        daemon.args([
            "--uts",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            script,
            node,
        ]);
        let started = quiet(daemon.arg(boot), &self.path("log/start")).spawn();
        self.nodes.push((node, started.expect("daemon starts")));
    }

    /// Ends a node and all that runs there, at once.
    ///
    /// # Panics
    /// There is no such node.
    pub fn kill(&mut self, node: &str) {
        let place = self.nodes.iter().position(|(name, _)| *name == node);
        let (_, mut daemon) = self.nodes.remove(place.expect("a node"));
        end(&mut daemon);
    }

    /// Returns what the daemons have said.
    pub fn logs(&self) -> String {
        let logs = fs::read_dir(self.path("log"))
            .into_iter()
            .flatten()
            .flatten();
        let texts = logs.filter_map(|file| fs::read_to_string(file.path()).ok());
        texts.collect()
    }
}

/// All that it starts writes to a file: a pipe would not end before the last of them.
fn quiet<'a>(command: &'a mut Command, log: &Path) -> &'a mut Command {
    let file = fs::OpenOptions::new().create(true).append(true).open(log);
    let file = file.expect("log can be written");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
}

fn end(daemon: &mut Child) {
    // One that has ended is no error.
    let _ = daemon.kill();
    let _ = daemon.wait();
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.iter_mut().for_each(|(_, daemon)| end(daemon));
        self.daemons.iter_mut().rev().for_each(end);
    }
}
