//! Machine of the fake kernel.

use super::{Defect, Fake};
use trapline_abi::platform::{FLOATING_BUS, LOCAL_APIC, SERIAL_SCRATCH, VIRTIO_MAGIC};
use trapline_abi::Op;
use trapline_workloads::{DeviceRegisters, Doorbell, Machine, Reason};

/// Address of the register of notifications.
const DOORBELL: u64 = 0xc000_3000;

impl Machine for Fake {
    fn supports(&self, op: Op) -> Result<(), Reason> {
        if op == Op::Hypercall && self.defect == Defect::NoSleep {
            return Err("there is no hypervisor");
        }
        Ok(())
    }
    fn port_out(&mut self, port: u16, value: u8) {
        assert_eq!(port, SERIAL_SCRATCH);
        if self.defect != Defect::ForgetScratch {
            self.scratch = value;
        }
    }
    fn port_in(&mut self, _: u16) -> u8 {
        match self.defect {
            Defect::NoDevice => FLOATING_BUS,
            Defect::ChangeAnswer => {
                self.scratch = self.scratch.wrapping_add(1);
                self.scratch
            }
            _ => self.scratch,
        }
    }
    fn device_registers(&mut self) -> Option<DeviceRegisters> {
        let has_pci = [Defect::OnPci, Defect::IgnorePci, Defect::ChangePci].contains(&self.defect);
        has_pci.then_some(DeviceRegisters {
            selector: 0xc000_1000,
            features: 0xc000_1004,
        })
    }
    fn mmio_read(&mut self, address: u64) -> u32 {
        match address & 0xff {
            0 if self.defect == Defect::WrongMagic => !0,
            0 => VIRTIO_MAGIC,
            _ if self.defect == Defect::ChangePci => {
                self.selector = self.selector.wrapping_add(2);
                self.selector
            }
            _ => self.selector,
        }
    }
    fn doorbell(&mut self) -> Doorbell {
        Doorbell {
            address: DOORBELL,
            is_narrow: self.defect == Defect::OnPci,
        }
    }
    fn mmio_write16(&mut self, address: u64, value: u16) {
        assert_eq!((address, value), (DOORBELL, 0));
        self.rings += 1;
    }
    fn check_doorbell(&mut self) -> Result<(), Reason> {
        match self.defect {
            Defect::StopDevice => Err("the device stopped"),
            _ => Ok(()),
        }
    }
    fn mmio_write(&mut self, address: u64, value: u32) {
        if address == DOORBELL {
            self.rings += 1;
            return;
        }
        if ![Defect::IgnoreMmio, Defect::IgnorePci].contains(&self.defect) {
            self.selector = value;
        }
    }
    fn hypercall(&mut self) -> i64 {
        if self.defect == Defect::AcceptHypercall {
            0
        } else {
            -1000
        }
    }
    fn self_ipi(&mut self) {
        let lost = self.defect == Defect::LoseInterrupt && self.interrupts == 1;
        self.interrupts += u64::from(!lost);
        self.defect = if lost { Defect::None } else { self.defect };
    }
    fn self_ipi_count(&mut self) -> u64 {
        self.interrupts
    }
    fn read_msr(&mut self, _: u32) -> u64 {
        let changing = u64::from(self.port_in(SERIAL_SCRATCH) & 0x3f);
        match self.defect {
            Defect::WrongMagic => 0,
            _ => LOCAL_APIC | 1 << 11 | changing,
        }
    }
    fn xen_version(&mut self) -> i64 {
        self.versions += i64::from(self.defect == Defect::ChangeVersion);
        0x4_0011 + self.versions
    }
    fn send_event(&mut self) {
        let lost = self.defect == Defect::LoseEvent && self.events == 1;
        self.events += u64::from(!lost);
        self.defect = if lost { Defect::None } else { self.defect };
    }
    fn event_count(&mut self) -> u64 {
        self.events
    }
}
