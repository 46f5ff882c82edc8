//! Reads a computation's parameters, the `parameters` table of the pipeline file, into its own type.
//!
//! A parameter that the type does not know is refused, without an attribute of serde: a misspelt
//! name would otherwise be a default that nobody asked for. Tables inside of the table are read as
//! serde does; there, `#[serde(deny_unknown_fields)]` does the same.

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use crate::error::{Context, Result};

/// The parameters of a computation that has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
pub struct NoParameters {}

/// Reads the JSON text of an object.
pub(crate) fn read<P: DeserializeOwned>(json: &str) -> Result<P> {
    let table = serde_json::from_str(json).context("parameters")?;
    P::deserialize(Table(table)).context("parameters")
}

/// The whole table.
struct Table(Map<String, Value>);

impl<'de> Deserializer<'de> for Table {
    type Error = serde_json::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let unknown = self.0.keys().find(|name| !fields.contains(&name.as_str()));
        if let Some(name) = unknown {
            return Err(Self::Error::custom(match fields {
                [] => format!("unknown parameter {name:?}: there are none"),
                _ => format!(
                    "unknown parameter {name:?}: there are {}",
                    fields.join(", ")
                ),
            }));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_map(Entries {
            entries: self.0.into_iter(),
            entry: None,
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Hands over one parameter after the other and names the one whose value does not fit.
struct Entries {
    entries: serde_json::map::IntoIter,
    /// The parameter whose name was handed over, and whose value is next.
    entry: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = serde_json::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Self::Error> {
        self.entry = self.entries.next();
        match &self.entry {
            Some((name, _)) => seed
                .deserialize(StrDeserializer::<Self::Error>::new(name))
                .map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, Self::Error> {
        let (name, value) = self
            .entry
            .take()
            .ok_or_else(|| Self::Error::custom("a value was asked for before its name"))?;
        seed.deserialize(value)
            .map_err(|error| Self::Error::custom(format!("{name}: {error}")))
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
    }

    #[test]
    fn an_unknown_parameter_is_refused_with_the_known_ones() {
        check_refused(
            r#"{"alert_minutes": 180, "alert_minuts": 1}"#,
            "parameters: unknown parameter \"alert_minuts\": there are alert_minutes, carriers, window",
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
