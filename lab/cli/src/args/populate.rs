//! The arguments of `populate`: what it costs to give a guest memory.

use super::{environment_parser, ExtentArgs, Format, MannerArgs};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::Args;
use trapline_abi::{populate::ORDERS, OpSet};
use trapline_model::load::BadLoad;
use trapline_model::{populate, EnvironmentId, Loads};

/// Of `trapline populate`.
#[derive(Args, Debug)]
#[command(after_help = ORDER)]
pub struct PopulateArgs {
    /// Environments to measure in [default: host, kvm, sim/linux, sim/kvm]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser())]
    pub environments: Vec<EnvironmentId>,
    /// Orders of the regions [default: 0, 3, 9, and 18 where that is a matter of seconds]
    #[arg(long = "order", value_name = "N,M", value_delimiter = ',', value_parser = order_parser())]
    pub orders: Vec<u8>,
    /// Measure, too, how late another guest's timer is while a machine of so many MiB is
    /// populated, in kvm and sim/kvm, for each way to populate it
    #[arg(long, value_name = "MIB", value_parser = mib_parser())]
    pub neighbour: Option<u32>,
    #[command(flatten)]
    pub extent: ExtentArgs,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    #[command(flatten)]
    pub manner: MannerArgs,
}

const ORDER: &str = "\
A region of order N has 2^N pages of 4 KiB: 4 KiB, 32 KiB, 2 MiB and 1 GiB. Each is
given on demand and populated before, in pages of 4 KiB and, where it is large enough,
of 2 MiB.

With --neighbour each way is a run of its own; trapline show --list has them. What
is too large for the simulated machine is told.";

impl PopulateArgs {
    /// The operations that are wanted, and those of them that were named.
    pub fn operations(&self) -> (OpSet, OpSet) {
        match self.orders.as_slice() {
            [] => (populate::operations(), 0),
            orders => {
                let named = populate::of_orders(orders);
                (named, named)
            }
        }
    }

    /// Where it is measured.
    pub fn environments(&self) -> Vec<EnvironmentId> {
        match self.environments.as_slice() {
            [] => GIVERS.to_vec(),
            chosen => chosen.to_vec(),
        }
    }
}

/// Where a guest can be given memory, of those environments that are measured by default.
const GIVERS: [EnvironmentId; 4] = [
    EnvironmentId::Host,
    EnvironmentId::Kvm,
    EnvironmentId::SimLinux,
    EnvironmentId::SimKvm,
];

/// What can be populated beside a guest, in each way and by nobody.
pub fn ways(mib: u32) -> Vec<Loads> {
    let created = |how: &str| format!("create-vm:{mib}:{how}").parse().ok();
    let ways = ["4k", "4k:steps", "4k:whole", "2m", "2m:steps", "2m:whole"];
    let ways = ways.into_iter().filter_map(created);
    std::iter::once(Loads::default()).chain(ways).collect()
}

/// Memory that a load may have.
fn mib_parser() -> impl TypedValueParser<Value = u32> {
    clap::builder::StringValueParser::new().try_map(|text| {
        let mib: Option<u32> = text.parse().ok();
        let mib = mib.ok_or_else(|| BadLoad::OutOfRange(text.clone()))?;
        let load: Result<Loads, BadLoad> = format!("create-vm:{mib}:4k").parse();
        load.map(|_| mib)
    })
}

fn order_parser() -> impl TypedValueParser<Value = u8> {
    PossibleValuesParser::new(["0", "3", "9", "18"]).map(|text| {
        let known = |order: &u8| order.to_string() == text;
        ORDERS
            .into_iter()
            .find(known)
            .expect("the order was checked")
    })
}

#[cfg(test)]
mod tests {
    use super::super::{command, Command};
    use super::*;

    fn parsed(words: &[&str]) -> Result<PopulateArgs, clap::Error> {
        match command("populate", words)? {
            Command::Populate(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_neighbour_is_disturbed_in_every_way() {
        let args = parsed(&["--neighbour", "512"]).unwrap();
        let ways: Vec<_> = ways(args.neighbour.unwrap())
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(ways.len(), 7);
        assert_eq!(ways[0], "none");
        assert_eq!(ways[6], "create-vm:512:2m:whole");
        for bad in ["0", "16", "99999999", "2G", "512:2m", ""] {
            assert!(parsed(&["--neighbour", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn orders_are_those_that_there_are() {
        assert_eq!(
            parsed(&[]).unwrap().operations(),
            (populate::operations(), 0)
        );
        for order in ORDERS {
            let args = parsed(&["--order", &order.to_string()]).unwrap();
            let set = populate::of_orders(&[order]);
            assert_eq!(args.operations(), (set, set));
        }
        let both = parsed(&["--order", "0,18"]).unwrap();
        assert_eq!(both.operations().0, populate::of_orders(&[18, 0]));
        for bad in ["1", "19", "-1", "0,", "2m"] {
            assert!(parsed(&["--order", bad]).is_err(), "{bad}");
        }
    }
}
