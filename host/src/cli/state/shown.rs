//! Rows of states as JSON.

use serde::de::IgnoredAny;

use crate::cli::bytes::json_of;
use crate::cli::state::rows::StateRow;
use crate::types::moment::Moment;

/// The format that components declare for values that are JSON.
const JSON: &str = "json";

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
    fn a_value_is_json_where_it_says_so_and_is_else_text_or_base64() {
        let json = |format: &str, value: &[u8]| json_of_value(format, value);
        // Numbers are not rounded, and no line is broken.
        let exact = b"{\"n\": 123456789012345678901234567890,\n \"x\": 1.10}";
        let line = "{\"n\": 123456789012345678901234567890,  \"x\": 1.10}";
        assert_eq!(json("json", exact), line);
        assert_eq!(json("json", b"{\"n\": "), r#""{\"n\": ""#);
        assert_eq!(json("postcard", b"12"), "\"12\"");
        assert_eq!(json("bytes", b"\xff\x00"), "{\"base64\":\"/wA=\"}");
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
