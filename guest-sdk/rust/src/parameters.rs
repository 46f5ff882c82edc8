//! Reads a computation's parameters, the `parameters` table of the pipeline file, into its own type.
//!
//! A parameter that the type does not know is refused, without an attribute of serde: a misspelt
//! name would otherwise be a default that nobody asked for. Tables inside of the table are read as
//! serde does; there, `#[serde(deny_unknown_fields)]` does the same.

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::error::{Context, Error, Result};

/// The parameters of a computation that has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
pub struct NoParameters {}

/// Reads the JSON text of an object.
pub(crate) fn read<P: DeserializeOwned>(json: &str) -> Result<P> {
    let mut json = serde_json::Deserializer::from_str(json);
    P::deserialize(Table(&mut json))
        .and_then(|parameters| json.end().map(|()| parameters))
        .map_err(|error| without_position(&error))
        .context("parameters")
}

/// The author of a pipeline file has never seen the JSON that positions would point into.
fn without_position(error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    Error::new(text.strip_suffix(&position).unwrap_or(&text))
}

/// Reads the whole table. It passes on what it reads rather than keep it in a map, which may hash
/// with random numbers.
struct Table<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Table<D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Entries {
            inner: visitor,
            fields: Some(fields),
            name: String::new(),
        })
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Entries {
            inner: visitor,
            fields: None,
            name: String::new(),
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self)
    }

    /// `()` is the type of a computation without parameters, so of a table without entries.
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Entries {
            inner: IgnoredAny,
            fields: Some(&[]),
            name: String::new(),
        })?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Stands between the JSON and the author's type: around its visitor, then around what the visitor
/// is given. Refuses a name that is not known, and names the parameter whose value does not fit.
struct Entries<T> {
    inner: T,
    /// The names that the type knows, where it tells them.
    fields: Option<&'static [&'static str]>,
    /// The parameter whose value comes next.
    name: String,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Entries<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Entries {
            inner: entries,
            fields: self.fields,
            name: self.name,
        })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Some(name) = self.inner.next_key::<String>()? else {
            return Ok(None);
        };
        match self.fields {
            Some([]) => {
                return Err(A::Error::custom(format!(
                    "unknown parameter {name:?}: there are none"
                )));
            }
            Some(fields) if !fields.contains(&name.as_str()) => {
                let fields = fields.join(", ");
                return Err(A::Error::custom(format!(
                    "unknown parameter {name:?}: there are {fields}"
                )));
            }
            _ => {}
        }
        let key = seed.deserialize(serde::de::value::StrDeserializer::new(&name))?;
        self.name = name;
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.inner.next_value_seed(seed).map_err(|error| {
            let error = error.to_string();
            A::Error::custom(format!("{}: {error}", self.name))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Parameters {
        alert_minutes: i64,
        #[serde(default)]
        carriers: Vec<String>,
        window: Option<u32>,
    }

    fn check_refused(json: &str, reason: &str) {
        let error = read::<Parameters>(json).expect_err(json);
        assert_eq!(error.to_string(), reason);
    }

    #[test]
    fn parameters_become_the_computations_own_type() {
        let parameters: Parameters =
            read(r#"{"alert_minutes": 180, "carriers": ["UA"], "window": 3}"#).expect("they fit");
        assert_eq!(parameters.alert_minutes, 180);
        assert_eq!(parameters.carriers, ["UA"]);
        assert_eq!(parameters.window, Some(3));
        assert_eq!(read::<NoParameters>("{}").expect("none"), NoParameters {});
        read::<()>("{}").expect("none");
    }

    #[test]
    fn an_unknown_parameter_is_refused_with_the_known_ones() {
        check_refused(
            r#"{"alert_minutes": 180, "alert_minuts": 1}"#,
            "parameters: unknown parameter \"alert_minuts\": there are alert_minutes, carriers, window",
        );
        let error = read::<()>(r#"{"x": 1}"#).expect_err("there are none");
        assert_eq!(
            error.to_string(),
            "parameters: unknown parameter \"x\": there are none"
        );
        let error = read::<NoParameters>(r#"{"x": 1}"#).expect_err("there are none");
        assert_eq!(
            error.to_string(),
            "parameters: unknown parameter \"x\": there are none"
        );
    }

    #[test]
    fn a_value_that_does_not_fit_is_named() {
        check_refused(
            r#"{"alert_minutes": "soon"}"#,
            "parameters: alert_minutes: invalid type: string \"soon\", expected i64",
        );
        check_refused("{}", "parameters: missing field `alert_minutes`");
    }
}
