//! Arguments of `populate`.

use super::pages::after_help;
use super::{environment_parser, EnvironmentOptions, Format, RunOptions, SizeOptions};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::Args;
use trapline_abi::{populate::ORDERS, OpSet};
use trapline_model::load::InvalidLoad;
use trapline_model::{populate, EnvironmentId, Feature, Loads};

/// Arguments of `trapline populate`.
#[derive(Args, Debug)]
#[command(after_help = after_help("populate"))]
pub struct PopulateArgs {
    /// Environments to measure [default: host, kvm, sim/linux, sim/kvm]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser(), hide_possible_values = true)]
    pub environments: Vec<EnvironmentId>,
    /// Orders of the regions [default: 0, 3, 9, and 18 where that takes seconds]
    #[arg(long = "order", value_name = "N,M", value_delimiter = ',', value_parser = order_parser())]
    pub orders: Vec<u8>,
    /// Also measure timer lateness of a guest in kvm and sim/kvm while another machine of this size is
    /// populated, by each method
    #[arg(long = "co-tenant", alias = "neighbour", value_name = "MIB", value_parser = mib_parser())]
    pub co_tenant: Option<u32>,
    #[command(flatten)]
    pub size_options: SizeOptions,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    #[command(flatten)]
    pub environment_options: EnvironmentOptions,
    #[command(flatten)]
    pub run_options: RunOptions,
}

impl PopulateArgs {
    /// Returns the operations to measure, and those that are named.
    pub fn operations(&self) -> (OpSet, OpSet) {
        match self.orders.as_slice() {
            [] => (populate::operations(), OpSet::EMPTY),
            orders => {
                let named = populate::of_orders(orders);
                (named, named)
            }
        }
    }

    /// Returns the environments to measure.
    pub fn environments(&self) -> Vec<EnvironmentId> {
        match self.environments.as_slice() {
            [] => default_environments(),
            chosen => chosen.to_vec(),
        }
    }
}

/// Returns the default environments that can give memory to a guest.
fn default_environments() -> Vec<EnvironmentId> {
    let all = EnvironmentId::all();
    all.filter(|id| id.has(Feature::Default) && id.has(Feature::Hotplug))
        .collect()
}

/// Returns the loads of co-tenants: none, and one machine of `mib` MiB per method of populating it.
pub fn populate_methods(mib: u32) -> Vec<Loads> {
    let created = |how: &str| format!("create-vm:{mib}:{how}").parse().ok();
    let methods = ["4k", "4k:steps", "4k:whole", "2m", "2m:steps", "2m:whole"];
    let methods = methods.into_iter().filter_map(created);
    std::iter::once(Loads::default()).chain(methods).collect()
}

/// Parses the memory size of a load.
fn mib_parser() -> impl TypedValueParser<Value = u32> {
    clap::builder::StringValueParser::new().try_map(|text| {
        let mib: Option<u32> = text.parse().ok();
        let mib = mib.ok_or_else(|| InvalidLoad::OutOfRange(text.clone()))?;
        let load: Result<Loads, InvalidLoad> = format!("create-vm:{mib}:4k").parse();
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
    fn a_co_tenant_is_populated_by_every_method() {
        let args = parsed(&["--co-tenant", "512"]).unwrap();
        let methods: Vec<_> = populate_methods(args.co_tenant.unwrap())
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(methods.len(), 7);
        assert_eq!(methods[0], "none");
        assert_eq!(methods[6], "create-vm:512:2m:whole");
        for bad in ["0", "16", "99999999", "2G", "512:2m", ""] {
            assert!(parsed(&["--neighbour", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_known_orders_are_accepted() {
        assert_eq!(
            parsed(&[]).unwrap().operations(),
            (populate::operations(), OpSet::EMPTY)
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
