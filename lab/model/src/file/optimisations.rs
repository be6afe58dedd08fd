//! Optimisations of a plan.

use super::{InvalidFile, Reader};
use crate::config::Config;
use crate::names;
use serde::Deserialize;
use toml::Spanned;
use trapline_abi::{Op, OpSet};

/// An optimisation: two configurations that differ in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optimisation {
    /// Title.
    pub title: String,
    /// The operation that gains by it.
    pub op: Op,
    /// The configuration without it.
    pub without: Config,
    /// The configuration with it.
    pub with: Config,
    /// Mark of its code.
    pub code: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    title: String,
    operation: Spanned<String>,
    without: Spanned<String>,
    with: Spanned<String>,
    code: String,
}

impl Reader<'_> {
    /// Parses `[[optimisations]]`.
    pub(super) fn optimisations(
        &self,
        written: &[Written],
        measured: OpSet,
        configs: &[Config],
    ) -> Result<Vec<Optimisation>, InvalidFile> {
        let config = |text: &Spanned<String>| {
            let config = self.each(text, str::parse::<Config>)?;
            match configs.contains(&config) {
                true => Ok(config),
                false => {
                    let what = format!("'{}' is not among the environments above", text.get_ref());
                    Err(self.bad(text.span().start, what))
                }
            }
        };
        let each = |it: &Written| {
            let (name, at) = (it.operation.get_ref(), it.operation.span().start);
            let op = measured.iter().find(|op| names::path(*op) == *name);
            let op = op.ok_or_else(|| {
                self.bad(
                    at,
                    format!("'{name}' is not an operation of the workloads above"),
                )
            })?;
            let (without, with) = (config(&it.without)?, config(&it.with)?);
            if without.environment.clock() != with.environment.clock() {
                let what = "'without' and 'with' are on different clocks";
                return Err(self.bad(it.with.span().start, what));
            }
            Ok(Optimisation {
                title: it.title.clone(),
                op,
                without,
                with,
                code: it.code.clone(),
            })
        };
        written.iter().map(each).collect()
    }
}
