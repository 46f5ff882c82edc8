//! `#[derive(Timers)]`.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, LitStr};

use crate::names;

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let mut declarations = Vec::new();
    let mut taken = BTreeSet::new();
    let variants = names::variants(input)?;
    for variant in &variants {
        let mut given = None;
        let mut domain = quote!(EventTime);
        for attribute in &variant.attrs {
            if !attribute.path().is_ident("timer") {
                continue;
            }
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    given = Some(meta.value()?.parse::<LitStr>()?);
                } else if meta.path.is_ident("event_time") {
                    domain = quote!(EventTime);
                } else if meta.path.is_ident("system_time") {
                    domain = quote!(SystemTime);
                } else {
                    return Err(meta
                        .error("a timer has `event_time` or `system_time`, and `name = \"...\"`"));
                }
                Ok(())
            })?;
        }
        let name = names::name(&variant.ident, given, &mut taken)?;
        declarations.push(quote!((#name, ::tidelock_guest::TimeDomain::#domain)));
    }

    let ident = &input.ident;
    let variants: Vec<_> = variants.iter().map(|variant| &variant.ident).collect();
    let usizes = 0..variants.len();
    let u16s = 0..variants.len() as u16;
    Ok(quote! {
        impl ::tidelock_guest::Timers for #ident {
            const DECLARATIONS: &'static [(&'static str, ::tidelock_guest::TimeDomain)] =
                &[#(#declarations),*];

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
