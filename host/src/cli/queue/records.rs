//! How input is cut into the rows of a queue: line by line, in one of three formats.

use std::borrow::Cow;
use std::io::{self, BufRead, Read as _};
use std::time::UNIX_EPOCH;

use clap::ValueEnum;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::types::batch::Timestamp;

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PushFormat {
    /// A payload, whatever is in it.
    Lines,
    /// A payload that is a JSON value; blank lines are passed over.
    Jsonl,
    /// A JSON object with "payload", and with "key", "event_time", "producer_id" and "seq_no" where a row has them.
    Records,
}

/// What is to be made of a line, beside its format.
#[derive(Debug, Clone, Default)]
pub struct LineOptions {
    /// The field of a JSON line that is its key.
    pub key_field: Option<String>,
    /// The field of a JSON line that is its event time.
    pub event_time_field: Option<String>,
}

/// A line as a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineRow<'a> {
    /// The key; empty for none.
    pub key: Cow<'a, [u8]>,
    /// The event time; 0 for none.
    pub event_time: Timestamp,
    /// The payload.
    pub payload: Cow<'a, [u8]>,
    /// Who sends it, where the line says so.
    pub producer_id: Option<String>,
    /// Its number among those of its producer, where the line says so.
    pub seq_no: Option<u64>,
}

/// Reads the next line into `line`, without its end, if there is any.
///
/// # Errors
///
/// When the input can't be read, or the line is longer than `bytes_max`.
pub fn read_line(
    input: &mut dyn BufRead,
    line: &mut Vec<u8>,
    bytes_max: usize,
) -> io::Result<bool> {
    line.clear();
    // A line of the greatest length has an end of two bytes.
    let read = input.take(bytes_max as u64 + 2).read_until(b'\n', line)?;
    if line.pop_if(|last| *last == b'\n').is_some() {
        line.pop_if(|last| *last == b'\r');
    }
    if line.len() > bytes_max {
        let finding = format!(
            "the line is longer than {bytes_max} bytes; look for a missing line end, or cut it"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, finding));
    }
    Ok(read > 0)
}

/// What a line brings; `None` for one that is passed over.
///
/// # Errors
///
/// What is wrong with it.
pub fn parse_line<'a>(
    format: PushFormat,
    line: &'a [u8],
    options: &LineOptions,
) -> Result<Option<LineRow<'a>>, String> {
    if format == PushFormat::Lines {
        return Ok(Some(LineRow {
            payload: Cow::Borrowed(line),
            ..LineRow::default()
        }));
    }
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    match format {
        PushFormat::Records => parse_record(line).map(Some),
        _ => parse_json(line, options).map(Some),
    }
}

/// A record as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRecord<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
    key: Option<String>,
    #[serde(borrow)]
    event_time: Option<&'a RawValue>,
    producer_id: Option<String>,
    seq_no: Option<u64>,
}

fn parse_record(line: &[u8]) -> Result<LineRow<'_>, String> {
    let record: WrittenRecord<'_> = serde_json::from_slice(line).map_err(not_json("a record"))?;
    Ok(LineRow {
        key: Cow::Owned(record.key.unwrap_or_default().into_bytes()),
        event_time: record.event_time.map_or(Ok(0), event_time)?,
        payload: text_or_json(record.payload)?,
        producer_id: record.producer_id,
        seq_no: record.seq_no,
    })
}

fn parse_json<'a>(line: &'a [u8], options: &LineOptions) -> Result<LineRow<'a>, String> {
    let value: &RawValue = serde_json::from_slice(line).map_err(not_json("a JSON value"))?;
    let field = |name: &Option<String>| match name {
        Some(name) => field_of(value, name),
        None => Ok(None),
    };
    let key = field(&options.key_field)?;
    let key = key.filter(|key| key.get() != "null");
    let time = field(&options.event_time_field)?;
    Ok(LineRow {
        key: key.map_or_else(|| Ok(Cow::default()), text_or_json)?,
        event_time: time.map_or(Ok(0), event_time)?,
        payload: Cow::Borrowed(value.get().as_bytes()),
        ..LineRow::default()
    })
}

/// A field of an object, if it has that field.
fn field_of<'a>(object: &'a RawValue, name: &str) -> Result<Option<&'a RawValue>, String> {
    let fields: serde_json::Result<std::collections::HashMap<Cow<'a, str>, &'a RawValue>> =
        serde_json::from_str(object.get());
    let fields =
        fields.map_err(|_| format!("it is no JSON object, so it has no field {name:?}"))?;
    Ok(fields.get(name).copied())
}

/// A JSON string as its text, anything else as it is written.
fn text_or_json(value: &RawValue) -> Result<Cow<'_, [u8]>, String> {
    let written = value.get();
    if !written.starts_with('"') {
        return Ok(Cow::Borrowed(written.as_bytes()));
    }
    // Half of a pair of surrogates, say.
    let text: String = serde_json::from_str(written)
        .map_err(|error| format!("the text {written} stands for no characters: {error}"))?;
    Ok(Cow::Owned(text.into_bytes()))
}

/// Milliseconds since 1970, or a moment as RFC 3339 writes it; null for none.
fn event_time(value: &RawValue) -> Result<Timestamp, String> {
    if value.get() == "null" {
        return Ok(0);
    }
    if let Ok(number) = serde_json::from_str::<u64>(value.get()) {
        return Ok(number);
    }
    let moment = serde_json::from_str::<String>(value.get()).ok();
    let moment = moment.and_then(|text| humantime::parse_rfc3339_weak(&text).ok());
    let since = moment.and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
    since
        .map(|since| since.as_millis() as Timestamp)
        .ok_or_else(|| {
            format!(
                "event time {} is neither milliseconds since 1970 nor like \"2013-01-01T06:15:00Z\"",
                value.get()
            )
        })
}

fn not_json(what: &'static str) -> impl Fn(serde_json::Error) -> String {
    move |error| format!("it is not {what}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(format: PushFormat, line: &str) -> Result<Option<LineRow<'_>>, String> {
        let options = LineOptions {
            key_field: Some("carrier".to_owned()),
            event_time_field: Some("at".to_owned()),
        };
        parse_line(format, line.as_bytes(), &options)
    }

    fn row(key: &str, event_time: Timestamp, payload: &str) -> LineRow<'static> {
        LineRow {
            key: key.as_bytes().to_vec().into(),
            event_time,
            payload: payload.as_bytes().to_vec().into(),
            ..LineRow::default()
        }
    }

    #[test]
    fn a_line_is_a_payload() {
        let lines = |line| parse(PushFormat::Lines, line).unwrap().unwrap();
        assert_eq!(lines("{broken"), row("", 0, "{broken"));
        assert_eq!(lines(""), row("", 0, ""));
    }

    #[test]
    fn a_json_line_has_its_key_and_time_in_fields() {
        let json = |line| parse(PushFormat::Jsonl, line);
        let line = r#"{"carrier": "UA", "n": 1.0, "at": 5}"#;
        assert_eq!(json(line).unwrap().unwrap(), row("UA", 5, line));
        let line = r#"{"carrier":17,"at":"1970-01-01T00:00:01Z"}"#;
        assert_eq!(json(line).unwrap().unwrap(), row("17", 1_000, line));
        let line = r#"{"carrier":null}"#;
        assert_eq!(json(line).unwrap().unwrap(), row("", 0, line));
        assert_eq!(json(" \t").unwrap(), None);
        assert!(json("[1]").unwrap_err().contains("no JSON object"));
        assert!(json("{\"a\":").unwrap_err().contains("not a JSON value"));
        let wrong = json(r#"{"at":"yesterday"}"#).unwrap_err();
        assert!(wrong.contains("yesterday"), "{wrong}");
    }

    #[test]
    fn a_record_says_all_of_its_row() {
        let record = |line| parse(PushFormat::Records, line);
        let line = r#"{"payload":"a\nb","key":"k","event_time":7,"producer_id":"p","seq_no":3}"#;
        let expected = LineRow {
            producer_id: Some("p".to_owned()),
            seq_no: Some(3),
            ..row("k", 7, "a\nb")
        };
        assert_eq!(record(line).unwrap().unwrap(), expected);
        let line = r#"{"payload":{"a": 1.50},"event_time":null}"#;
        assert_eq!(record(line).unwrap().unwrap(), row("", 0, r#"{"a": 1.50}"#));
        assert!(record(r#"{"key":"k"}"#).unwrap_err().contains("payload"));
        assert!(
            record(r#"{"payload":1,"keys":2}"#)
                .unwrap_err()
                .contains("keys")
        );
        assert!(record(r#"{"payload":1,"seq_no":-1}"#).is_err());
        let wrong = record(r#"{"payload":"\ud800"}"#).unwrap_err();
        assert!(wrong.contains(r"\ud800"), "{wrong}");
    }

    #[test]
    fn lines_lose_their_ends_and_long_ones_are_refused() {
        let mut input: &[u8] = b"ab\r\n\ncd\rx\nlast";
        let mut line = Vec::new();
        let mut lines = Vec::new();
        while read_line(&mut input, &mut line, 4).unwrap() {
            lines.push(String::from_utf8(line.clone()).unwrap());
        }
        assert_eq!(lines, ["ab", "", "cd\rx", "last"]);
        for long in [&b"abcde\n"[..], b"abcdefghi", b"abcde"] {
            let mut input = long;
            assert!(read_line(&mut input, &mut line, 4).is_err());
        }
    }
}
