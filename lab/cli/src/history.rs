//! `trapline history`: where the figures of a store's runs shifted, and what changed there.

use crate::args::{HistoryArgs, PlainFormat};
use crate::failure::{Failure, Status};
use crate::{keep, outcome, run, show, terminal};
use trapline_model::request;
use trapline_report::history;
use trapline_stats::history::{screen, Moment, Past, Settings};
use trapline_store::Store;

/// Reads all runs of the store and prints the shifts of the series that were asked for. All
/// series of the store are tested, so that the correction does not depend on the selection.
///
/// # Errors
/// There is no such store, or it cannot be read.
pub fn history(args: &HistoryArgs) -> Result<Status, Failure> {
    let failed = |error: trapline_store::StoreError| Failure::from_error(&error);
    let mut store = Store::open_existing(&keep::file(&args.store)?).map_err(failed)?;
    let mut past = Past::default();
    for info in store.runs().map_err(failed)? {
        let run = store.load(info.id).map_err(failed)?;
        let moment = Moment {
            run: info.id.0,
            at: info.started_at,
        };
        let settings = keep::comparable(&info);
        past.add(&moment, &info.facts, &settings, &run.observations);
    }
    let operations = match args.workloads.as_slice() {
        [] => request::known_operations(),
        workloads => run::selected(workloads).0,
    };
    let settings = Settings {
        least_change: args.margin / 100.0,
        ..Settings::default()
    };
    let mut screening = screen(past.series(), &settings);
    screening.series.retain(|one| {
        let named = &args.environments;
        let environment = &one.series.contender.environment;
        let is_named = named.is_empty() || named.contains(environment);
        is_named && operations & one.series.op.bit() != 0
    });
    match args.format {
        PlainFormat::Table => {
            let style = outcome::style();
            terminal::print_text(&history::terminal(&screening, &show::date, &style))?;
        }
        PlainFormat::Json => terminal::print_json(&history::json(&screening))?,
    }
    Ok(Status::Done)
}
