//! Defaults of the command line.

use super::SerialMode;
use super::{Backend, EntryMode, Guest, MemoryKind, VmConfig, DEFAULT_MEMORY};
use crate::placement::Placement;
use std::path::PathBuf;
use trapline_process::Crossing;

impl Default for VmConfig {
    fn default() -> Self {
        Self {
            guest: Guest::Image,
            backend: Backend::Kvm,
            process: Crossing::Auto.into(),
            domain: None,
            image: PathBuf::new(),
            initrd: None,
            disks: Vec::new(),
            cpus: 1,
            memory: DEFAULT_MEMORY,
            pages: MemoryKind::Auto,
            prefault: None,
            command_line: String::new(),
            net: Vec::new(),
            placement: Placement::Free,
            api: None,
            vsock: None,
            ring: None,
            entry: EntryMode::Auto,
            events: None,
            serial: SerialMode::default(),
            ticker: false,
            entropy: false,
            halt_in_guest: false,
            paravirtual_eoi: true,
            seconds: None,
            populate: None,
            user: None,
            chroot: None,
            sandbox: true,
        }
    }
}
