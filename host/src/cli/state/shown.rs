//! Keys and values of states as text, as JSON, and back.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::ValueEnum;
use serde::de::IgnoredAny;

use crate::cli::state::rows::StateRow;
use crate::types::moment::Moment;

/// The format that components declare for values that are JSON.
const JSON: &str = "json";

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
    pub(super) fn parse(self, text: &str) -> anyhow::Result<Vec<u8>> {
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
pub(super) fn json_of(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::Value::from(text).to_string(),
        Err(_) => format!("{{\"base64\":\"{}\"}}", BASE64.encode(bytes)),
    }
}

/// A value as JSON: itself where its format says that it is, on one line.
fn json_of_value(format: &str, value: &[u8]) -> String {
    let as_json = std::str::from_utf8(value)
        .ok()
        .filter(|text| format == JSON && serde_json::from_str::<IgnoredAny>(text).is_ok());
    match as_json {
        // Between tokens a line break is a space, and within texts there is none.
        Some(text) => text.trim().replace(['\n', '\r'], " "),
        None => json_of(value),
    }
}

/// Bytes as one line of text: themselves, or as JSON where that would not be one line.
pub(super) fn text_of(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => json_of(bytes),
    }
}

/// A row as one line of JSON.
pub(super) fn json_line(format: &str, row: &StateRow) -> String {
    let mut line = format!(
        "{{\"key\":{},\"value\":{},\"partition\":\"{}\"",
        json_of(&row.key),
        json_of_value(format, &row.stored.value),
        row.partition
    );
    if row.stored.touched > 0 {
        line.push_str(&format!(",\"touched\":\"{}\"", Moment(row.stored.touched)));
    }
    for (name, is_true) in [("absent", row.is_absent), ("retiring", row.is_retiring)] {
        if is_true {
            line.push_str(&format!(",\"{name}\":true"));
        }
    }
    line.push('}');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::epoch::StoredState;
    use crate::types::ids::PartitionId;

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
    fn a_value_is_json_where_it_says_so_and_is_else_text_or_base64() {
        let json = |format: &str, value: &[u8]| json_of_value(format, value);
        // Numbers are not rounded, and no line is broken.
        let exact = b"{\"n\": 123456789012345678901234567890,\n \"x\": 1.10}";
        let line = "{\"n\": 123456789012345678901234567890,  \"x\": 1.10}";
        assert_eq!(json("json", exact), line);
        assert_eq!(json("json", b"{\"n\": "), r#""{\"n\": ""#);
        assert_eq!(json("postcard", b"12"), "\"12\"");
        assert_eq!(json("bytes", b"\xff\x00"), "{\"base64\":\"/wA=\"}");
        assert_eq!(text_of(b"a b"), "a b");
        assert_eq!(text_of(b"a\tb"), r#""a\tb""#);
    }

    #[test]
    fn a_line_says_what_is_not_as_usual() {
        let mut row = StateRow {
            key: b"a".to_vec(),
            stored: StoredState {
                value: b"1".to_vec(),
                touched: 0,
            },
            partition: PartitionId(3),
            is_retiring: false,
            is_absent: false,
        };
        let line = r#"{"key":"a","value":1,"partition":"p3"}"#;
        assert_eq!(json_line("json", &row), line);
        row.stored.touched = 1_000;
        (row.is_absent, row.is_retiring) = (true, true);
        let line = r#"{"key":"a","value":1,"partition":"p3","touched":"1970-01-01T00:00:01.000Z","absent":true,"retiring":true}"#;
        assert_eq!(json_line("json", &row), line);
    }
}
