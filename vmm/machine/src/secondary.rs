//! Secondary vCPUs of an image, each with a thread.
//!
//! They wait for INIT and SIPI, which the hypervisor delivers. The image accesses devices from its first vCPU only, so that
//! this one has the devices to itself.

use crate::{sandbox, threads, Failure, VmConfig};
use trapline_interface::{Entry, Exit, Vcpu};

/// Starts the threads. `end` ends the process when a vCPU cannot continue.
///
/// # Errors
/// A thread cannot be created.
pub fn start<V: Vcpu + Send + 'static>(
    vcpus: Vec<V>,
    settings: &VmConfig,
    end: fn(&Failure) -> !,
) -> Result<(), Failure> {
    let (role, sandbox) = (settings.role(), settings.sandbox);
    for (number, mut vcpu) in (1_u32..).zip(vcpus) {
        threads::spawn_unfiltered(&format!("vcpu{number}"), move || {
            let confined = sandbox::enter(role, sandbox);
            match confined.and_then(|()| run(&mut vcpu, number)) {
                Ok(never) => match never {},
                Err(failure) => end(&failure),
            }
        })?;
    }
    Ok(())
}

/// Runs a vCPU until it cannot continue.
fn run(vcpu: &mut impl Vcpu, number: u32) -> Result<std::convert::Infallible, Failure> {
    loop {
        match vcpu.run(Entry::Resume)? {
            Exit::Started | Exit::Kicked => {}
            exit => {
                return Err(Failure::Host(format!(
                    "vCPU {number} of the image cannot continue, only vCPU 0 has devices: {exit:?}"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_interface::fake::{Fake, Step};
    use trapline_interface::{Controllers, Hypervisor, IoAddr, VcpuId, Vm, VmSpec};

    #[test]
    fn an_access_to_a_device_is_rejected() {
        let access = Exit::Write {
            at: IoAddr::Port(0x51c),
            size: 4,
            data: 1,
        };
        let steps = [Exit::Started, access].map(Step::new);
        let fake = Fake::with_machines([vec![Vec::new(), steps.to_vec()]]);
        let vm = fake.create_vm(&VmSpec::with(Controllers::Local)).unwrap();
        let mut vcpu = vm.create_vcpu(VcpuId(1), None).unwrap();
        let failure = run(&mut vcpu, 1).unwrap_err();
        expect!["vCPU 1 of the image cannot continue, only vCPU 0 has devices: Write { at: Port(1308), size: 4, data: 1 }"].assert_eq(&failure.to_string());
    }
}
