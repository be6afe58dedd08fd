//! Enumerations whose values have a name, and in some cases a number on the wire.

/// Defines an enumeration with `ALL`, `name` and `from_name`.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All values, in the order of their definition.
            pub const ALL: [$name; [$($text),*].len()] = [$($name::$variant),*];

            /// The names of all values, in the same order.
            pub const NAMES: [&'static str; $name::ALL.len()] = [$($text),*];

            /// Returns the name.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// Returns the value called `name`.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }
    };
}

/// Defines an enumeration with `ALL`, `name` and a number on the wire.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_doc])* $variant = $number,)* }

        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: [$name; [$($number),*].len()] = [$($name::$variant),*];

            /// Returns the name.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            pub(crate) fn from_number(number: u8) -> Result<Self, $crate::codec::Error> {
                match number {
                    $($number => Ok($name::$variant),)*
                    _ => Err($crate::codec::Error::Malformed),
                }
            }
        }
    };
}

pub(crate) use {named, numbered};
