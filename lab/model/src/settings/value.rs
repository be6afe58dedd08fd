//! Values of settings.

use super::SETTINGS;

/// A value of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// A number, or a size in MiB.
    Number(u32),
    /// Index into the names of [`ValueType::Choice`].
    Choice(usize),
    /// A path, or a command.
    Text(String),
}

impl Value {
    /// Returns the number.
    ///
    /// # Panics
    /// It is no number.
    pub fn number(&self) -> u32 {
        match self {
            Self::Number(number) => *number,
            other => unreachable!("{other:?} is not a number"),
        }
    }

    pub(crate) fn choice(&self) -> usize {
        match self {
            Self::Choice(index) => *index,
            other => unreachable!("{other:?} is not a choice"),
        }
    }
}

/// A file of an environment that a configuration may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileOverride {
    /// The unikernel.
    Image,
    /// The Linux program.
    Agent,
    /// trapline-vmm, or in `custom` and `sim/custom` a command.
    Vmm,
    /// The NOVA hypervisor.
    Nova,
    /// QEMU.
    Qemu,
    /// The Linux of the simulated machine.
    Kernel,
    /// The directory of its modules.
    Modules,
}

/// Parses whole MiB; the unit of a number without one is MiB, too.
pub(crate) fn mebibytes(text: &str) -> Option<u32> {
    let (digits, factor) = match text.strip_suffix('G') {
        Some(digits) => (digits, 1024),
        None => (text.strip_suffix('M').unwrap_or(text), 1),
    };
    let number: u32 = digits.parse().ok()?;
    number.checked_mul(factor).filter(|mib| *mib > 0)
}

impl FileOverride {
    /// Returns the name of the setting.
    pub fn name(self) -> &'static str {
        let mut rows = SETTINGS.iter();
        let row = rows.find(|setting| setting.file() == Some(self));
        row.map_or("", |setting| setting.name)
    }
}
