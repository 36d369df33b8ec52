//! Enums whose variants have codes.

/// Declares an enum with each variant's code and, where it is printed, its word. Adds `ALL`, in the order of the codes, and
/// `from_code`; with words also `name` and `Display`.
#[doc(hidden)]
#[macro_export]
macro_rules! codes {
    ($(#[$meta:meta])* pub enum $name:ident: $code:ty {
        $($(#[$doc:meta])* $variant:ident = $value:literal => $word:literal,)+
    }) => {
        $crate::codes! { $(#[$meta])* pub enum $name: $code { $($(#[$doc])* $variant = $value,)+ } }

        impl $name {
            /// Name in texts.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
    ($(#[$meta:meta])* pub enum $name:ident: $code:ty {
        $($(#[$doc:meta])* $variant:ident = $value:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr($code)]
        pub enum $name {
            $($(#[$doc])* $variant = $value,)+
        }

        impl $name {
            /// All, in the order of their codes.
            pub const ALL: [Self; [$($value),+].len()] = [$(Self::$variant),+];

            /// The one with this code; `None` if the code is unknown.
            #[inline]
            #[must_use]
            pub const fn from_code(code: $code) -> Option<Self> {
                match code {
                    $($value => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
