//! Defined VMMs, in a process of their own: they add rows to the table of environments.

use expect_test::expect;
use trapline_model::vmms::{definition, Console, Definition, ImageFormat, InvalidName, Transport};
use trapline_model::{file, Clock, EnvironmentId, Feature};

fn define(name: &str, command: &str) -> Result<(), InvalidName> {
    let definition = Definition {
        command: command.to_owned(),
        ..Definition::default()
    };
    EnvironmentId::define_vmm(name, Some(&definition))
}

fn command(name: &str) -> Option<String> {
    Some(definition(name)?.command)
}

#[test]
fn a_defined_vmm_adds_environments() {
    define("fc-1", "fc {image} {cmdline}").unwrap();
    let [here, simulated] =
        ["fc-1", "sim/fc-1"].map(|name| EnvironmentId::from_name(name).unwrap());
    assert_eq!((here.name(), here.clock()), ("fc-1", Clock::Wall));
    assert_eq!(
        (simulated.name(), simulated.clock()),
        ("sim/fc-1", Clock::Insn)
    );
    assert_eq!(
        [here, simulated].map(|id| id.stack().name()),
        ["fc-1", "sim/fc-1"]
    );
    assert!(here.is_custom() && simulated.is_custom() && simulated.has(Feature::DetailedProfiles));
    for name in ["fc-1/linux", "sim/fc-1/linux"] {
        let linux = EnvironmentId::from_name(name).unwrap();
        assert_eq!(linux.stack().name(), name);
        assert!(
            linux.is_linux_guest() && linux.is_custom() && !linux.has(Feature::DetailedProfiles)
        );
    }
    assert!(EnvironmentId::all().any(|id| id == simulated));
    assert_eq!(
        EnvironmentId::from_stack(simulated.stack()),
        Some(simulated)
    );
}

#[test]
fn a_later_definition_replaces_the_command() {
    EnvironmentId::from_recorded("sim/crosvm/linux").unwrap();
    assert_eq!(command("crosvm"), None);
    for text in ["crosvm run", "crosvm --new run"] {
        define("crosvm", text).unwrap();
        assert_eq!(command("crosvm").as_deref(), Some(text));
    }
    EnvironmentId::from_recorded("crosvm").unwrap();
    assert_eq!(command("crosvm").as_deref(), Some("crosvm --new run"));
}

#[test]
fn invalid_names_are_rejected() {
    let error = |name: &str| define(name, "x").unwrap_err().to_string();
    let long = "a".repeat(25);
    let names = [
        "", "1st", "Alioth", "a/b", "a:b", "a,b", "a b", &long, "kvm", "sim", "linux", "custom",
        "qemu-tcg", "sim-vmx",
    ];
    expect![[r#"
        VMM '': a name has at most 24 characters, a-z, 0-9 and '-', and starts with a letter
        VMM '1st': a name has at most 24 characters, a-z, 0-9 and '-', and starts with a letter
        VMM 'Alioth': a name has at most 24 characters, a-z, 0-9 and '-', and starts with a letter
        VMM 'a/b': a name has at most 24 characters, a-z, 0-9 and '-', and starts with a letter
        VMM 'a:b': a name has at most 24 characters, a-z, 0-9 and '-', and starts with a letter
        VMM 'a,b': a name has at most 24 characters, a-z, 0-9 and '-', and starts with a letter
        VMM 'a b': a name has at most 24 characters, a-z, 0-9 and '-', and starts with a letter
        VMM 'aaaaaaaaaaaaaaaaaaaaaaaaa': a name has at most 24 characters, a-z, 0-9 and '-', and starts with a letter
        VMM 'kvm': an environment has this name: choose another
        VMM 'sim': an environment has this name: choose another
        VMM 'linux': an environment has this name: choose another
        VMM 'custom': an environment has this name: choose another
        VMM 'qemu-tcg': an environment has this name: choose another
        VMM 'sim-vmx': an environment has this name: choose another"#]].assert_eq(&names.map(error).join("\n"));
    assert_eq!(EnvironmentId::from_recorded("sim/nested/kvm"), None);
}

#[test]
fn plans_and_the_configuration_define_vmms() {
    let plan = "environments = ['alioth', 'sim/alioth']\n[vmm.alioth]\ncommand = 'alioth {image} {cmdline}'\n";
    let study = file::read(plan).unwrap();
    let names: Vec<_> = study
        .configs
        .iter()
        .map(|it| it.environment.name())
        .collect();
    assert_eq!(names, ["alioth", "sim/alioth"]);
    file::read_configuration("[vmm.kvmtool]\ncommand = 'lkvm run'\n").unwrap();
    assert_eq!(command("kvmtool").as_deref(), Some("lkvm run"));
}

#[test]
fn definitions_have_files_variables_and_a_configuration() {
    let text = "[vmm.full]\ncommand = 'full {config}'\nformat = 'bzimage'\nfiles = ['/a/fw']\n\
                env = { A = 'b' }\nconfig = '{image} {cmdline}'\nconsole = 'debugcon'\n\
                transport = 'pci'\nlinux = 'full {kernel}'\n\
                linux-config = '{initramfs}'\n";
    file::read_configuration(text).unwrap();
    let expected = Definition {
        command: "full {config}".to_owned(),
        format: ImageFormat::Bzimage,
        files: vec!["/a/fw".into()],
        env: [("A".to_owned(), "b".to_owned())].into(),
        config: Some("{image} {cmdline}".to_owned()),
        console: Console::Debugcon,
        transport: Transport::Pci,
        linux: Some("full {kernel}".to_owned()),
        linux_config: Some("{initramfs}".to_owned()),
    };
    assert_eq!(definition("full"), Some(expected));
    let error = file::read_configuration("[vmm.x]\ncommand = 'x'\nformat = 'elf'").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 3: unknown variant `elf`, expected one of `pvh`, `bzimage`, `multiboot`, `raw`"
    );
}

#[test]
fn errors_name_the_line() {
    let error = |text: &str| file::read_configuration(text).unwrap_err().to_string();
    let texts = [
        "\n[vmm.kvm]\ncommand = 'x'",
        "[vmm.x]\n",
        "[vmm.x]\ncommand = 'x'\ncomand = 'y'",
        "boots = 3",
    ];
    expect![[r#"
        line 2: VMM 'kvm': an environment has this name: choose another
        line 1: missing field `command`
        line 3: unknown field `comand`, expected one of `command`, `format`, `files`, `env`, `config`, `console`, `transport`, `linux`, `linux-config`
        line 1: unknown field `boots`, expected `vmm`"#]]
    .assert_eq(&texts.map(error).join("\n"));
    let unknown = file::read("environments = ['sim/kvn']")
        .unwrap_err()
        .to_string();
    expect!["line 1: unknown environment 'sim/kvn'; did you mean 'sim/kvm'?"].assert_eq(&unknown);
}
