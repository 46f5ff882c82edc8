//! The derives of `tidelock-guest`: `Streams`, `Timers`, `State`. They only spell out what a
//! declaration says; what it means is in the traits that they implement.

mod names;
mod state;
mod streams;
mod timers;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Declares streams: the variants of an enum without fields.
#[proc_macro_derive(Streams, attributes(stream))]
pub fn derive_streams(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    streams::expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Declares timer streams: the variants of an enum without fields.
#[proc_macro_derive(Timers, attributes(timer))]
pub fn derive_timers(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    timers::expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Declares keyed states: the fields of a struct.
#[proc_macro_derive(State, attributes(state))]
pub fn derive_state(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    state::expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
