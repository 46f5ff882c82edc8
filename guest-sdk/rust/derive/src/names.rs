//! Names of streams, timers and states: made from identifiers, or given, and checked.

use std::collections::BTreeSet;

use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Fields, Ident, LitStr, Variant};

/// The variants of an enum that declares something: at least one, none with fields.
pub(crate) fn variants(input: &DeriveInput) -> syn::Result<Vec<&Variant>> {
    let Data::Enum(data) = &input.data else {
        return Err(syn::Error::new(
            input.span(),
            "only an enum can declare these",
        ));
    };
    if !input.generics.params.is_empty() {
        return Err(syn::Error::new(
            input.generics.span(),
            "generics have no meaning here",
        ));
    }
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(syn::Error::new(
                variant.span(),
                "a variant that declares has no fields",
            ));
        }
    }
    if data.variants.len() > usize::from(u16::MAX) {
        return Err(syn::Error::new(
            input.span(),
            "at most 65,535 can be declared",
        ));
    }
    Ok(data.variants.iter().collect())
}

/// The name given by an attribute, or else the identifier in snake case. `taken` holds the names
/// before it.
pub(crate) fn name(
    ident: &Ident,
    given: Option<LitStr>,
    taken: &mut BTreeSet<String>,
) -> syn::Result<String> {
    let (name, span) = match given {
        Some(given) => (given.value(), given.span()),
        None => (snake_case(&ident.to_string()), ident.span()),
    };
    if name.is_empty() {
        return Err(syn::Error::new(span, "the name is empty"));
    }
    if !taken.insert(name.clone()) {
        return Err(syn::Error::new(span, format!("the name {name:?} is taken")));
    }
    Ok(name)
}

fn snake_case(ident: &str) -> String {
    let ident = ident.trim_start_matches("r#");
    let mut name = String::with_capacity(ident.len() + 4);
    let mut lower_before = false;
    for letter in ident.chars() {
        if letter.is_uppercase() && lower_before {
            name.push('_');
        }
        lower_before = letter.is_lowercase() || letter.is_numeric();
        name.extend(letter.to_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_become_snake_case() {
        for (ident, expected) in [
            ("Statistics", "statistics"),
            ("LateAlerts", "late_alerts"),
            ("last_names", "last_names"),
            ("Top10Carriers", "top10_carriers"),
            ("r#type", "type"),
        ] {
            assert_eq!(snake_case(ident), expected);
        }
    }
}
