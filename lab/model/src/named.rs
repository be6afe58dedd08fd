//! Names of enums whose values are chosen by name.

/// An enum whose values are chosen by name.
pub trait Named: Copy + Send + Sync + 'static {
    /// All values.
    const VALUES: &'static [Self];

    /// Returns the name, as options and files have it.
    fn name_of(self) -> &'static str;
}

/// Implements `ALL`, `NAMES`, `name` and `from_name` for an enum of unit variants, given in their order.
macro_rules! named {
    ($type:ident { $($variant:ident $name:literal),* $(,)? }) => {
        impl $type {
            /// All values.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Their names, in the same order.
            pub const NAMES: [&str; Self::ALL.len()] = [$($name),*];

            /// Returns the name, as options and files have it.
            pub const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }

            /// Returns the value with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl crate::named::Named for $type {
            const VALUES: &'static [Self] = &Self::ALL;

            fn name_of(self) -> &'static str {
                self.name()
            }
        }
    };
}

pub(crate) use named;
