//! Bytes that people and programs are to read, and how they write them: keys, values, payloads.

use std::borrow::Cow;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::ValueEnum;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How keys are written on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyFormat {
    /// As they are.
    Text,
    /// Two digits for each byte.
    Hex,
    /// In base64, padded.
    Base64,
}

impl KeyFormat {
    /// The bytes of a key.
    pub(in crate::cli) fn parse(self, text: &str) -> anyhow::Result<Vec<u8>> {
        match self {
            KeyFormat::Text => Ok(text.as_bytes().to_vec()),
            KeyFormat::Hex => from_hex(text)
                .with_context(|| format!("{text} is no key in hexadecimal, two digits a byte")),
            KeyFormat::Base64 => {
                (BASE64.decode(text)).with_context(|| format!("{text} is no key in base64"))
            }
        }
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8; 2]| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok();
    match rest.is_empty() {
        true => pairs.iter().map(byte).collect(),
        false => None,
    }
}

/// Bytes as JSON: a text where they are UTF-8, else an object with their base64.
pub(in crate::cli) fn json_of(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::Value::from(text).to_string(),
        Err(_) => format!("{{\"base64\":\"{}\"}}", BASE64.encode(bytes)),
    }
}

/// Whether a character is not seen, or changes how others are: controls, and marks that turn the direction of text.
pub(in crate::cli) fn is_hidden(character: char) -> bool {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control()
}

/// Bytes as one line of text: themselves, or as JSON where that would not be one line.
pub(in crate::cli) fn text_of(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(is_hidden) => text.to_owned(),
        _ => json_of(bytes),
    }
}

/// Bytes in a JSON document: a text where they are UTF-8, else an object with their base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonBytes<'a>(pub Cow<'a, [u8]>);

impl<'a> From<&'a [u8]> for JsonBytes<'a> {
    fn from(bytes: &'a [u8]) -> JsonBytes<'a> {
        JsonBytes(Cow::Borrowed(bytes))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum WrittenBytes<'a> {
    Text(Cow<'a, str>),
    Base64 { base64: String },
}

impl Serialize for JsonBytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match std::str::from_utf8(&self.0) {
            Ok(text) => WrittenBytes::Text(Cow::Borrowed(text)),
            Err(_) => WrittenBytes::Base64 {
                base64: BASE64.encode(&self.0),
            },
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonBytes<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = match WrittenBytes::deserialize(deserializer)? {
            WrittenBytes::Text(text) => text.into_owned().into_bytes(),
            WrittenBytes::Base64 { base64 } => {
                BASE64.decode(base64).map_err(serde::de::Error::custom)?
            }
        };
        Ok(JsonBytes(Cow::Owned(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_in_each_format_and_refused_with_their_name() {
        let check = |format: KeyFormat, text: &str, key: &[u8]| {
            assert_eq!(format.parse(text).unwrap(), key);
        };
        check(KeyFormat::Text, "a\u{e9}", b"a\xc3\xa9");
        check(KeyFormat::Hex, "00fFa9", &[0, 0xff, 0xa9]);
        check(KeyFormat::Hex, "", &[]);
        check(KeyFormat::Base64, "AP+p", &[0, 0xff, 0xa9]);
        for (format, text) in [
            (KeyFormat::Hex, "abc"),
            (KeyFormat::Hex, "zz"),
            (KeyFormat::Hex, "+1"),
            (KeyFormat::Base64, "a"),
        ] {
            let error = format.parse(text).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn bytes_are_one_line_of_text_and_come_back_from_json() {
        assert_eq!(text_of(b"a b"), "a b");
        assert_eq!(text_of(b"a\tb"), r#""a\tb""#);
        for (bytes, json) in [
            (&b"a\"\xc3\xa9"[..], "\"a\\\"\u{e9}\""),
            (b"\xff\x00", r#"{"base64":"/wA="}"#),
            (b"", r#""""#),
        ] {
            assert_eq!(json_of(bytes), json);
            let written = serde_json::to_string(&JsonBytes::from(bytes)).unwrap();
            assert_eq!(written, json);
            let back: JsonBytes<'_> = serde_json::from_str(&written).unwrap();
            assert_eq!(back.0, bytes);
        }
        for wrong in [r#"{"base64":"?"}"#, r#"{"hex":"00"}"#, "7"] {
            assert!(serde_json::from_str::<JsonBytes<'_>>(wrong).is_err());
        }
    }
}
