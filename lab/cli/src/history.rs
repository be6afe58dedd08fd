//! `trapline history`: prints shifts in the figures of all stored runs.

use crate::args::{selected, Format, HistoryArgs, HistoryFormat};
use crate::failure::{Failure, Status};
use crate::store_path::store_path;
use crate::{outcome, show, terminal};
use trapline_model::Operation;
use trapline_report::{history, page::trend};
use trapline_runner::series_settings::comparable;
use trapline_stats::history::{screen, RunTime, SeriesBuilder, Settings};
use trapline_store::Store;

/// Prints the shifts of the selected series. All series of the store are tested, so that the correction
/// does not depend on the selection.
///
/// # Errors
/// The store does not exist or cannot be read.
pub fn history(args: &HistoryArgs) -> Result<Status, Failure> {
    let mut store = Store::open_existing(&store_path(args.store.file.as_deref())?)?;
    let mut past = SeriesBuilder::default();
    for info in store.runs()? {
        let run = store.load(info.id)?;
        let moment = RunTime {
            run: info.id.0,
            at: info.started_at,
        };
        let settings = comparable(&info.request);
        past.add(&moment, &info.facts, &settings, &run.observations);
    }
    let of_guests = selected(&args.workloads).0;
    let is_chosen = |operation: Operation| match operation.guest() {
        _ if args.workloads.is_empty() => true,
        Some(op) => of_guests.contains(op),
        None => {
            let mut names = args.workloads.iter();
            names.any(|name| operation.is_named(name))
        }
    };
    let settings = Settings {
        least_change: args.margin / 100.0,
        ..Settings::default()
    };
    let mut screening = screen(past.series(), &settings);
    screening.series.retain(|one| {
        let named = &args.environments;
        let environment = &one.series.config.environment;
        let is_named = named.is_empty() || named.contains(environment);
        is_named && is_chosen(one.series.op)
    });
    let document = history::document(&screening, &show::date);
    match args.format {
        HistoryFormat::Table => outcome::print(&document, Format::Table)?,
        HistoryFormat::Json => outcome::print(&document, Format::Json)?,
        HistoryFormat::Html => terminal::print_text(&trend(&screening, &document))?,
    }
    Ok(Status::Done)
}
