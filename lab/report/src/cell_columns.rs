//! The columns of a cell.

use crate::columns::{Column, Get, Role};
use crate::notes;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use trapline_stats::{Cell, Failure, Figure, Flag, Value};

const fn column(
    name: &'static str,
    role: Role,
    get: Get<Cell>,
    help: &'static str,
) -> Column<Cell> {
    Column {
        name,
        role,
        help,
        get,
    }
}

/// All columns. Names, types and meanings are a contract, and so is the order: new ones are added at the end.
pub const COLUMNS: &[Column<Cell>] = &[
    column(
        "environment",
        Role::Key,
        Get::Name(|cell| Some(cell.config.environment.to_string())),
        "name of the environment",
    ),
    column(
        "workload",
        Role::Key,
        Get::Name(|cell| Some(cell.op.workload_name().to_owned())),
        "name of the workload",
    ),
    column(
        "operation",
        Role::Key,
        Get::Name(|cell| Some(cell.op.name())),
        "name of the operation",
    ),
    column(
        "clock",
        Role::Key,
        Get::Name(|cell| Some(cell.clock.to_string())),
        "clock of the figure: `wall`, `insn` or `insn-vmx`",
    ),
    column(
        "unit",
        Role::Key,
        Get::Name(|cell| Some(cell.unit.to_owned())),
        "unit of the figure",
    ),
    column(
        "estimate",
        Role::Measured,
        Get::Number(|cell| Some(figure(cell)?.estimate)),
        "wall: the median, over boots, of each boot's median batch. insn: the mean over all batches, weighted \
         by operations: all instructions after calibration by all operations, for a rate all bytes by all \
         instructions",
    ),
    column(
        "low",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.interval?.low)),
        "lower end of the interval of the estimate: order statistics of the boots, none for a single boot. \
         insn: none; the figure is reproduced, not estimated, and `min` and `max` say how batches differ",
    ),
    column(
        "high",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.interval?.high)),
        "upper end of that interval",
    ),
    column(
        "min",
        Role::Measured,
        Get::Number(|cell| Some(figure(cell)?.min)),
        "the smallest batch of all boots; none is ever left out",
    ),
    column(
        "max",
        Role::Measured,
        Get::Number(|cell| Some(figure(cell)?.max)),
        "the largest batch of all boots",
    ),
    column(
        "p50",
        Role::Measured,
        Get::Number(|cell| Some(figure(cell)?.p50)),
        "median of all batches (nearest rank): a value that occurred. For rates, too, from small to large",
    ),
    column(
        "p90",
        Role::Optional,
        Get::Number(|cell| figure(cell)?.p90),
        "90th percentile of all batches; none for fewer than 36, as no batch may be beyond it",
    ),
    column(
        "p99",
        Role::Optional,
        Get::Number(|cell| figure(cell)?.p99),
        "99th percentile of all batches; none for fewer than 368",
    ),
    column(
        "samples",
        Role::Measured,
        Get::Count(|cell| Some(figure(cell)?.samples)),
        "batches that the percentiles are of",
    ),
    column(
        "boots",
        Role::Measured,
        Get::Count(|cell| Some(figure(cell)?.boots)),
        "boots that the estimate is of; insn: boots that gave the same digits, batch by batch",
    ),
    column(
        "ratio",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.ratio?.estimate)),
        "ratio to the bare row of the same clock (`host`, `sim`); wall: median of the ratios within blocks. \
         None where the bare row has no figure, did other work, or either is below resolution. 1 for the bare \
         row",
    ),
    column(
        "ratio_low",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.ratio?.interval?.low)),
        "lower end of the interval of the ratio; insn: none",
    ),
    column(
        "ratio_high",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.ratio?.interval?.high)),
        "upper end of that interval",
    ),
    column(
        "exits",
        Role::Optional,
        Get::Number(|cell| figure(cell)?.exits),
        "exits during one operation - for a rate, during a megabyte -, median over boots; none where they are \
         not counted",
    ),
    column(
        "host_cpu_ns",
        Role::Optional,
        Get::Number(|cell| figure(cell)?.host_cpu_ns),
        "CPU time that the host spends on one operation - for a rate, on a megabyte -, in nanoseconds, median \
         over boots: that of the VMM's process from the operation's beginning to its end, less the share of \
         reporting the batches; the kernel counts it by its tick, so it is coarse for short operations",
    ),
    column(
        "flags",
        Role::Measured,
        Get::Names(&Flag::NAMES, |cell| Some(figure(cell)?.flags.iter().map(Flag::name).collect())),
        "remarks that qualify the figure, see below",
    ),
    column(
        "skip",
        Role::Missing,
        Get::Sentence(|cell| match &cell.value {
 Value::Skip(reason) => Some(reason.clone()),
 _ => None,
 }),
        "the reason why this cannot be measured here",
    ),
    column(
        "failure",
        Role::Missing,
        Get::Name(|cell| Some(failure(cell)?.kind.name().to_owned())),
        "kind of a failure: `not-deterministic` (boots on the instruction clock gave different digits), \
         `unequal-work` (the checksums of equal work differ) or `broken` (the guest failed, was lost, or sent \
         invalid data)",
    ),
    column(
        "failed",
        Role::Missing,
        Get::Sentence(|cell| Some(failure(cell)?.reason.clone())),
        "cause of the failure",
    ),
    column(
        "settings",
        Role::Key,
        Get::Name(|cell| Some(cell.config.overrides.to_string())),
        "settings that differ from the default, as `memory=1024M`; absent if none do",
    ),
    column(
        "level",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.interval?.level)),
        "level of the interval of the estimate, from 0 to 1",
    ),
    column(
        "ratio_level",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.ratio?.interval?.level)),
        "level of the interval of the ratio",
    ),
    column(
        "idle_time",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.idle?.time)),
        "work of the guest between the batches, which `estimate` does not include, per operation, median over \
         boots: its time in nanoseconds or instructions ([memory.md](memory.md#memory-that-is-zero)); none \
         where there was none",
    ),
    column(
        "idle_bytes",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.idle?.bytes)),
        "bytes of memory that this work wrote",
    ),
    column(
        "notes",
        Role::Measured,
        Get::Sentences(|cell| Some(figure(cell)?.flags.chunks(1).map(notes::describe).collect())),
        "the flags for people, a sentence for each",
    ),
    column(
        "sd_boots",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.components?.between)),
        "standard deviation between boots as a share, without that of their batches; none for a single boot. \
         insn: none",
    ),
    column(
        "sd_batches",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.components?.within)),
        "standard deviation between the batches of a boot as a share; likewise",
    ),
    column(
        "batches_advised",
        Role::Optional,
        Get::Count(|cell| figure(cell)?.components?.advised),
        "batches of a boot with which a given time gives the narrowest interval (Kalibera and Jones 2013); none if \
         the time of a boot is not known",
    ),
    column(
        "raw",
        Role::Optional,
        Get::Number(|cell| figure(cell)?.raw),
        "insn: the estimate with the instructions that find the length of intercepted instructions, which processors \
         report and the simulated one does not ([clocks.md](clocks.md)); none where there were none",
    ),
    column(
        "layouts",
        Role::Optional,
        Get::Count(|cell| Some(figure(cell)?.layouts?.count)),
        "insn: layouts of the machine's memory with a figure, this one among them (`--layouts`); none for one",
    ),
    column(
        "layouts_min",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.layouts?.min)),
        "insn: the least figure of these layouts",
    ),
    column(
        "layouts_max",
        Role::Optional,
        Get::Number(|cell| Some(figure(cell)?.layouts?.max)),
        "insn: the largest figure of these layouts",
    ),
];

fn figure(cell: &Cell) -> Option<&Figure> {
    cell.value.figure()
}

fn failure(cell: &Cell) -> Option<&Failure> {
    match &cell.value {
        Value::Failed(failure) => Some(failure),
        _ => None,
    }
}

/// A cell in JSON. A measured one has all measured values, `null` if unknown.
pub struct JsonCell(Cell);

impl From<&Cell> for JsonCell {
    fn from(cell: &Cell) -> Self {
        Self(cell.clone())
    }
}

impl Serialize for JsonCell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_measured = self.0.value.figure().is_some();
        let mut map = serializer.serialize_map(None)?;
        for column in COLUMNS {
            let datum = column.value(&self.0);
            if datum.is_some() || (is_measured && column.role == Role::Optional) {
                map.serialize_entry(column.name, &datum)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Map, Value as Json};

    /// A file of the documentation.
    fn path(name: &str) -> String {
        format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    fn is_blessing() -> bool {
        std::env::var_os("TRAPLINE_BLESS").is_some()
    }

    fn measured() -> impl Iterator<Item = &'static Column<Cell>> {
        let is_measured = |it: &&Column<Cell>| matches!(it.role, Role::Measured | Role::Optional);
        COLUMNS.iter().filter(is_measured)
    }

    fn schema(column: &Column<Cell>) -> Json {
        let known = match column.get {
            Get::Number(_) => json!({"type": "number"}),
            Get::Count(_) => json!({"type": "integer", "minimum": 0}),
            Get::Name(_) | Get::Sentence(_) => json!({"type": "string"}),
            Get::Names(names, _) => json!({"type": "array", "items": {"enum": names}}),
            Get::Sentences(_) => json!({"type": "array", "items": {"type": "string"}}),
        };
        match column.role {
            Role::Optional => json!({"type": [known["type"], "null"]}),
            _ => known,
        }
    }

    /// `TRAPLINE_BLESS=1` writes them into the schema.
    #[test]
    fn the_schema_has_the_measured_values() {
        let path = path("schema/run.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut whole: Json = serde_json::from_str(&text).unwrap();
        let place = &mut whole["$defs"]["cell"]["oneOf"][0];
        let properties: Map<_, _> = measured()
            .map(|it| (it.name.to_owned(), schema(it)))
            .collect();
        let names: Vec<_> = measured().map(|it| it.name).collect();
        if is_blessing() {
            place["properties"] = json!(properties);
            place["required"] = json!(names);
            std::fs::write(path, format!("{whole:#}\n")).unwrap();
        } else {
            assert_eq!(place["properties"], json!(properties), "{path}");
            assert_eq!(place["required"], json!(names), "{path}");
        }
    }

    /// `TRAPLINE_BLESS=1` writes the table into the page.
    #[test]
    fn the_documentation_has_the_measured_values() {
        let path = path("json.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let begin = page.find("| `estimate` |").unwrap();
        let end = begin + page[begin..].find("\n\n").unwrap() + 1;
        let rows = measured().map(|it| format!("| `{}` | {} |\n", it.name, it.help));
        let rows: String = rows.collect();
        if is_blessing() {
            let page = [&page[..begin], &rows, &page[end..]].concat();
            std::fs::write(path, page).unwrap();
        } else {
            assert_eq!(&page[begin..end], rows, "docs/json.md");
        }
    }
}
