//! Start of a guest's processes.

use crate::config::Config;
use crate::control::Control;
use crate::mappings::{fill, Mappings};
use crate::pages::Pages;
use crate::registers::Registers;
use crate::shared::Shared;
use crate::signalled::{Prepared, Signalled};
use crate::signals::Targets;
use crate::spaces::SpaceTable;
use crate::{handler, sandbox};
use std::io;
use std::sync::Arc;
use trapline_interface::BootState;

/// The processes of a guest, and what the VMM has of each.
pub(super) struct Started {
    pub process: Box<dyn Control + Send>,
    pub pages: Vec<Pages>,
    pub mappings: Vec<Mappings>,
}

impl Started {
    /// Starts the processes. The first has these registers; the others have no address space yet.
    pub fn new(
        shared: &Arc<Shared>,
        boot: &BootState,
        registers: &Registers,
        config: Config,
    ) -> io::Result<Self> {
        let Config { crossing, .. } = config;
        let first = Pages::new()?;
        sandbox::load(&first.common, crossing)?;
        let mut pages = vec![first];
        // Code of optimisation spaces.
        for _ in 1..config.processes() {
            pages.push(pages[0].further()?);
        }
        // End of optimisation spaces.
        let (mut tracees, mut mappings) = (Vec::new(), Vec::new());
        for (index, own) in pages.iter().enumerate() {
            handler::set_words(own, crossing, index);
            let mut memory = shared.memory();
            let mut tracee = sandbox::start(&mut memory, own, &config)?;
            mappings.push(Mappings::new(&memory, pages.len()));
            fill(&mut tracee, &mut memory, &boot.system)?;
            let listener = sandbox::confine(&mut tracee, own, crossing)?;
            tracees.push((tracee, own.clone(), listener));
        }
        shared.lines.set_targets(Targets {
            processes: tracees.iter().map(|(tracee, ..)| tracee.pid()).collect(),
            control: Arc::clone(&pages[0].common),
        });
        let process: Box<dyn Control + Send> = match crossing.signal_source() {
            None => Box::new(tracees.remove(0).0),
            Some(_) => {
                let table =
                    SpaceTable::new(Arc::clone(&pages[0].common), tracees.len(), boot.system.cr3);
                let prepared = tracees.into_iter().filter_map(|(tracee, pages, listener)| {
                    listener.map(|listener| Prepared {
                        tracee,
                        pages,
                        listener,
                    })
                });
                let prepared = prepared.collect();
                let lines = Arc::clone(&shared.lines);
                let processes = Signalled::detach(prepared, registers, table, config, lines)?;
                Box::new(processes)
            }
        };
        Ok(Self {
            process,
            pages,
            mappings,
        })
    }
}
