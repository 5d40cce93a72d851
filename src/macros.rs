//! Macros of this crate.

/// Declares an enum of messages, each with its reason.
///
/// The doc comment of a variant is the text of the message. The enum has one method, which returns the value after `=>`. Each invocation
/// derives the `Display` of displaydoc, because a derive in this macro could not name the fields of tuples.
macro_rules! messages {
    ($(#[$about:meta])* pub enum $name:ident: $method:ident -> $meaning:ty;
     $($(#[$text:meta])* $variant:ident $({ $($field:ident: $type:ty),* })? $(($inner:ty))? => $value:expr,)*) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[ignore_extra_doc_attributes]
        #[expect(missing_docs, reason = "a message shows what its fields are")]
        pub enum $name {
            $($(#[$text])* $variant $({ $($field: $type),* })? $(($inner))?,)*
        }

        impl $name {
            /// The meaning of the message.
            pub const fn $method(&self) -> $meaning {
                match self {
                    $(Self::$variant { .. } => $value,)*
                }
            }
        }
    };
}

/// Hides the content of a type from `Debug`, because it is secret or long.
macro_rules! opaque {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    };
}
