//! `#[derive(State)]`.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Field, Fields, Ident, LitInt, LitStr, Path, Type};

use crate::names;

/// One field: one named state.
struct Declared<'a> {
    ident: &'a Ident,
    ty: &'a Type,
    name: String,
    version: u32,
    codec: TokenStream,
}

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let mut taken = BTreeSet::new();
    let states = fields(input)?
        .into_iter()
        .map(|field| declared(field, &mut taken))
        .collect::<syn::Result<Vec<_>>>()?;

    let ident = &input.ident;
    let idents: Vec<_> = states.iter().map(|state| state.ident).collect();
    let types: Vec<_> = states.iter().map(|state| state.ty).collect();
    let names: Vec<_> = states.iter().map(|state| &state.name).collect();
    let versions: Vec<_> = states.iter().map(|state| state.version).collect();
    let codecs: Vec<_> = states.iter().map(|state| &state.codec).collect();
    Ok(quote! {
        impl ::tidelock_guest::State for #ident {
            fn declarations() -> ::std::vec::Vec<::tidelock_guest::__private::StateDeclaration> {
                ::std::vec![#(<#types>::declaration::<#codecs>(#names, #versions)),*]
            }

            fn load(
                columns: ::std::vec::Vec<::tidelock_guest::__private::StateColumn>,
                key_count: usize,
            ) -> ::tidelock_guest::Result<Self> {
                let mut columns = ::core::iter::IntoIterator::into_iter(columns);
                ::core::result::Result::Ok(Self {
                    #(#idents: <#types>::load::<#codecs>(
                        #names,
                        ::core::iter::Iterator::next(&mut columns),
                        key_count,
                    )?,)*
                })
            }

            fn select(&mut self, key: u32, item: u32) {
                #(self.#idents.select(key, item);)*
            }

            fn store(
                self,
            ) -> ::core::result::Result<
                ::std::vec::Vec<::tidelock_guest::__private::StateColumn>,
                ::tidelock_guest::__private::Failure,
            > {
                ::core::result::Result::Ok(::std::vec![#(self.#idents.store()?),*])
            }
        }
    })
}

fn fields(input: &DeriveInput) -> syn::Result<Vec<&Field>> {
    match &input.data {
        Data::Struct(data) if !input.generics.params.is_empty() => Err(syn::Error::new(
            data.struct_token.span,
            "generics have no meaning here",
        )),
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) if !fields.named.is_empty() => Ok(fields.named.iter().collect()),
            Fields::Unnamed(fields) => Err(syn::Error::new(
                fields.span(),
                "a state is named by its field: give the fields names",
            )),
            _ => Err(syn::Error::new(
                input.ident.span(),
                "no state is declared: use tidelock_guest::NoState",
            )),
        },
        _ => Err(syn::Error::new(
            input.span(),
            "only a struct can declare states, one field each",
        )),
    }
}

fn declared<'a>(field: &'a Field, taken: &mut BTreeSet<String>) -> syn::Result<Declared<'a>> {
    let ident = field
        .ident
        .as_ref()
        .ok_or_else(|| syn::Error::new(field.span(), "a state needs a name"))?;
    let mut given = None;
    let mut version = 1;
    let mut codec = quote!(::tidelock_guest::Postcard);
    for attribute in &field.attrs {
        if !attribute.path().is_ident("state") {
            continue;
        }
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                given = Some(meta.value()?.parse::<LitStr>()?);
            } else if meta.path.is_ident("version") {
                version = meta.value()?.parse::<LitInt>()?.base10_parse()?;
            } else if meta.path.is_ident("codec") {
                let path = meta.value()?.parse::<Path>()?;
                codec = quote!(#path);
            } else {
                return Err(meta
                    .error("a state has `name = \"...\"`, `version = 1` and `codec = Postcard`"));
            }
            Ok(())
        })?;
    }
    Ok(Declared {
        ident,
        ty: &field.ty,
        name: names::name(ident, given, taken)?,
        version,
        codec,
    })
}
