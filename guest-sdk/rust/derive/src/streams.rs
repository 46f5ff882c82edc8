//! `#[derive(Streams)]`.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, LitStr};

use crate::names;

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let mut stream_names = Vec::new();
    let mut taken = BTreeSet::new();
    let variants = names::variants(input)?;
    for variant in &variants {
        let mut given = None;
        for attribute in &variant.attrs {
            if !attribute.path().is_ident("stream") {
                continue;
            }
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    given = Some(meta.value()?.parse::<LitStr>()?);
                    Ok(())
                } else {
                    Err(meta.error("a stream has `name = \"...\"` and nothing else"))
                }
            })?;
        }
        stream_names.push(names::name(&variant.ident, given, &mut taken)?);
    }

    let ident = &input.ident;
    let variants: Vec<_> = variants.iter().map(|variant| &variant.ident).collect();
    let usizes = 0..variants.len();
    let u16s = 0..variants.len() as u16;
    Ok(quote! {
        impl ::tidelock_guest::Streams for #ident {
            const NAMES: &'static [&'static str] = &[#(#stream_names),*];

            fn from_index(index: usize) -> ::core::option::Option<Self> {
                match index {
                    #(#usizes => ::core::option::Option::Some(Self::#variants),)*
                    _ => ::core::option::Option::None,
                }
            }

            fn index(&self) -> u16 {
                match *self {
                    #(Self::#variants => #u16s,)*
                }
            }
        }
    })
}
