//! Fake kernel with one configured defect.

mod cpus;
mod files;
mod machine;
mod processes;
mod system;

use files::FakeFiles;
use std::ptr::NonNull;
use trapline_abi::record::Sender;
use trapline_abi::{Job, Op};
use trapline_workloads::{ticks, Block, GuestInfo};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Defect {
    None,
    ForgetScratch,
    WrongMagic,
    IgnoreMmio,
    /// None, with devices on PCI.
    OnPci,
    IgnorePci,
    ChangePci,
    StopDevice,
    AcceptHypercall,
    LoseInterrupt,
    NoDevice,
    ChangeAnswer,
    ChangeVersion,
    LoseEvent,
    ChangePid,
    NoNullDevice,
    ShortWrite,
    FullNullDevice,
    NeverSwitch,
    WakeEarly,
    NoMemory,
    NoSleep,
    NeverTick,
    SlowHandler,
    UsedRegion,
    ShortRegion,
    NoRegion,
    KeepRegion,
    NoProcesses,
    WrongStatus,
    WrongAnswer,
    NoSwitch,
    LosePipe,
    WrongPages,
    KeepMapping,
    IgnoreProtection,
    ShareForEver,
    UsedPages,
    UsedMemory,
    NoDisk,
    WrongUnit,
    NoRequest,
    NoFiles,
    WrongContent,
    ShortRead,
    KeepCache,
    NeverCold,
    ForgetCache,
    LoseWrite,
    WriteThrough,
    IgnoreSync,
    NoNetwork,
    NoSecondCpu,
    NoThread,
    KeepTranslation,
    /// A CPU starts once, and not again.
    NeverStart,
    SlowFirst,
}

/// Duration of a slow first operation, in ticks: far longer than a batch.
pub const SLOW: u64 = 10_000_000;

/// More expiries than in one window.
pub const EXPIRIES: u64 = 1030;

/// Page of memory.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
pub struct Page([u128; 256]);

impl Page {
    /// Returns pages of at least `bytes` in total, each word `filling`.
    pub fn filled(bytes: usize, filling: u128) -> Vec<Page> {
        vec![Page([filling; 256]); bytes.div_ceil(size_of::<Page>())]
    }
}

pub struct Fake {
    pub defect: Defect,
    pub records: Vec<String>,
    /// Numbers of the expiries in all interrupt records, in order.
    pub expiries: Vec<u64>,
    pub scratch: u8,
    pub selector: u32,
    /// Notifications of a device.
    pub rings: u64,
    pub interrupts: u64,
    pub versions: i64,
    pub events: u64,
    pub pids: u32,
    pub turns: u64,
    pub blocks: Vec<Vec<Page>>,
    pub released: Vec<Vec<Page>>,
    pub region: Option<Vec<u128>>,
    pub begun: bool,
    pub answers: u64,
    pub mapped: Vec<u64>,
    pub writable: bool,
    pub shared: Option<(Block, u64)>,
    pub quiesced: u32,
    pub sleeps: u32,
    pub exchanges: u32,
    pub opened: FakeFiles,
}

impl Fake {
    pub fn new(defect: Defect) -> Self {
        Self {
            defect,
            records: Vec::new(),
            expiries: Vec::new(),
            scratch: 0,
            selector: 0,
            rings: 0,
            interrupts: 0,
            versions: 0,
            events: 0,
            pids: 0,
            turns: 0,
            blocks: Vec::new(),
            released: Vec::new(),
            region: None,
            begun: false,
            answers: 0,
            mapped: Vec::new(),
            writable: true,
            shared: None,
            quiesced: 0,
            sleeps: 0,
            exchanges: 0,
            opened: FakeFiles::new(defect),
        }
    }

    pub fn run(defect: Defect, names: &str) -> Vec<String> {
        let mut fake = Self::new(defect);
        fake.measure(names);
        fake.records
    }

    /// Returns `memory` as an allocated block.
    pub fn hold(&mut self, memory: Vec<Page>) -> Option<Block> {
        let length = memory.len() * size_of::<Page>();
        self.blocks.push(memory);
        let start = NonNull::new(self.blocks.last_mut()?.as_mut_ptr().cast())?;
        Some(Block { start, length })
    }

    /// Measures the operations with these names.
    pub fn measure(&mut self, names: &str) {
        let word = format!("trapline.run={names}");
        let asked = Job::parse([word.as_str()]).expect("a valid selection");
        let sizes = Job {
            blocks: 8,
            pages: 512,
            doubles: 1003,
            passes: 2,
            expiries: EXPIRIES as u32,
            file_mib: 2,
            period: 2_000,
            ..asked
        };
        let job = Job {
            batches: 3,
            batch_ticks: 1000,
            ..sizes
        };
        let origin = GuestInfo {
            sender: Sender::Image,
            ring: 0,
            memory: 0,
            entry: ticks(),
            main: ticks(),
        };
        trapline_workloads::run(self, &job, &origin);
        assert!(self.blocks.is_empty(), "every block is released");
        assert!(self.region.is_none(), "every region is detached");
        assert!(self.opened.is_closed(), "every file is closed");
        assert!(!self.begun, "resources are released");
    }

    /// Asserts that the only result of the operation `name` is a record of `kind`.
    pub fn assert_result(defect: Defect, name: &str, kind: &str) {
        let op = Op::from_path(name).expect("an operation");
        let records = Self::run(defect, name);
        let wanted = format!("{kind} {{ op: {op:?}");
        let others = ["End", "Skip", "Fail"]
            .into_iter()
            .filter(|other| *other != kind);
        assert!(
            records.iter().any(|record| record.starts_with(&wanted)),
            "{defect:?}: {records:#?}"
        );
        for other in others {
            let unwanted = format!("{other} {{ op: {op:?}");
            assert!(
                !records.iter().any(|record| record.starts_with(&unwanted)),
                "{defect:?}: {records:#?}"
            );
        }
    }
}
