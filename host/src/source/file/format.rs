//! How a file's bytes become records: where a record ends, and what its payload is. Knows bytes
//! only; files, positions and limits are elsewhere.

use memchr::memchr;

use crate::types::pipeline::RecordFormat;

/// A record found at the beginning of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Its bytes, without its line end.
    pub(super) length: usize,
    /// Its bytes with its line end.
    pub(super) end: usize,
    /// How many line ends lie within `end`.
    pub(super) lines: u64,
}

/// Looks for the end of one record, going on where it stopped when more bytes are there.
#[derive(Debug)]
pub(super) struct Cutter {
    /// Quotes can hide line ends.
    has_quotes: bool,
    quoting: Quoting,
    /// Bytes looked at.
    seen: usize,
    lines: u64,
}

impl Cutter {
    pub(super) fn new(format: RecordFormat) -> Cutter {
        Cutter {
            has_quotes: format == RecordFormat::Csv,
            quoting: Quoting::FieldStart,
            seen: 0,
            lines: 0,
        }
    }

    /// The record that `bytes` begin with, if its line end is among them. `bytes` must be those
    /// of the last call, or more.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<Cut> {
        while let Some(at) = memchr(b'\n', &bytes[self.seen..]) {
            let line = &bytes[self.seen..self.seen + at];
            self.seen += at + 1;
            self.lines += 1;
            if self.has_quotes {
                self.quoting = self.quoting.after(line);
                if self.quoting == Quoting::Quoted {
                    continue;
                }
            }
            let end = self.seen;
            let length = end - 1 - usize::from(bytes[..end - 1].ends_with(b"\r"));
            return Some(Cut {
                length,
                end,
                lines: self.lines,
            });
        }
        if self.has_quotes {
            self.quoting = self.quoting.after(&bytes[self.seen..]);
        }
        self.seen = bytes.len();
        None
    }

    /// Whether the bytes looked at end within quotes.
    pub(super) fn is_in_quotes(&self) -> bool {
        self.quoting == Quoting::Quoted
    }

    /// The lines that the bytes looked at have ended.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }
}

/// Where in a row of fields the bytes have led.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quoting {
    FieldStart,
    /// In a field without quotes, or behind the closing one.
    Plain,
    Quoted,
    /// Behind a quote within quotes: the closing one, or the first of a doubled one.
    QuoteInQuoted,
}

impl Quoting {
    fn after(self, bytes: &[u8]) -> Quoting {
        // Most rows have no quotes at all; then only the end matters.
        if self != Quoting::Quoted && memchr(b'"', bytes).is_none() {
            return match bytes.last() {
                None => self,
                Some(b',') => Quoting::FieldStart,
                Some(_) => Quoting::Plain,
            };
        }
        bytes.iter().fold(self, |state, byte| match (state, byte) {
            (Quoting::FieldStart, b'"') => Quoting::Quoted,
            (Quoting::Quoted, b'"') => Quoting::QuoteInQuoted,
            (Quoting::Quoted, _) | (Quoting::QuoteInQuoted, b'"') => Quoting::Quoted,
            (_, b',') => Quoting::FieldStart,
            _ => Quoting::Plain,
        })
    }
}

/// Turns a record's bytes into its payload.
#[derive(Debug)]
pub(super) enum Decoder {
    /// As it stands.
    Lines,
    /// As it stands, if it is JSON.
    Jsonl,
    /// As a JSON object, by the names of the file's header.
    Csv(CsvHeader),
}

impl Decoder {
    /// Whether the format passes over such a record.
    pub(super) fn skips(&self, record: &[u8]) -> bool {
        match self {
            Decoder::Lines => false,
            Decoder::Jsonl => record.iter().all(u8::is_ascii_whitespace),
            Decoder::Csv(_) => record.is_empty(),
        }
    }

    /// Appends the record's payload.
    ///
    /// # Errors
    ///
    /// What is wrong with the record; some of the payload may have been appended then.
    pub(super) fn decode(&mut self, record: &[u8], payload: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Decoder::Lines => payload.extend_from_slice(record),
            Decoder::Jsonl => {
                check_json(record)?;
                payload.extend_from_slice(record);
            }
            Decoder::Csv(header) => header.decode(record, payload)?,
        }
        Ok(())
    }
}

fn check_json(record: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(record).map_err(not_utf8)?;
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => Ok(()),
        Err(error) => {
            // The record is one line, so the line in serde_json's text is always 1.
            let text = error.to_string();
            let finding = text.split(" at line ").next().unwrap_or_default();
            Err(format!("{finding} at column {}", error.column()))
        }
    }
}

fn not_utf8(error: std::str::Utf8Error) -> String {
    format!("byte {} is not UTF-8", error.valid_up_to() + 1)
}

/// The names of a CSV file's columns.
#[derive(Debug)]
pub(super) struct CsvHeader {
    /// What stands before each value in the objects: `{"a":`, `,"b":`.
    prefixes: Vec<Vec<u8>>,
    /// A quoted field without its quotes.
    unquoted: Vec<u8>,
}

impl CsvHeader {
    /// Reads the names from a file's first row.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn parse(row: &[u8]) -> Result<CsvHeader, String> {
        let mut prefixes: Vec<Vec<u8>> = Vec::new();
        let mut names = std::collections::HashSet::new();
        let mut unquoted = Vec::new();
        let mut rest = Some(row);
        while let Some(bytes) = rest {
            let field = next_field(bytes, prefixes.len(), &mut unquoted)?;
            let name = std::str::from_utf8(field.plain.unwrap_or(&unquoted)).map_err(not_utf8)?;
            if !names.insert(name.to_owned()) {
                return Err(format!("two columns have the name {name:?}"));
            }
            let mut prefix = vec![if prefixes.is_empty() { b'{' } else { b',' }];
            write_json_string(name, &mut prefix);
            prefix.push(b':');
            prefixes.push(prefix);
            rest = field.rest;
        }
        Ok(CsvHeader { prefixes, unquoted })
    }

    fn decode(&mut self, row: &[u8], payload: &mut Vec<u8>) -> Result<(), String> {
        let mut count = 0;
        let mut rest = Some(row);
        while let Some(bytes) = rest {
            let field = next_field(bytes, count, &mut self.unquoted)?;
            if let Some(prefix) = self.prefixes.get(count) {
                let value = std::str::from_utf8(field.plain.unwrap_or(&self.unquoted))
                    .map_err(|error| format!("field {}: {}", count + 1, not_utf8(error)))?;
                payload.extend_from_slice(prefix);
                write_json_string(value, payload);
            }
            count += 1;
            rest = field.rest;
        }
        if count != self.prefixes.len() {
            let expected = self.prefixes.len();
            return Err(format!("it has {count} fields, the header has {expected}"));
        }
        payload.push(b'}');
        Ok(())
    }
}

/// The first field of some bytes.
struct Field<'a> {
    /// `None`: it had quotes, and was written without them to where the caller said.
    plain: Option<&'a [u8]>,
    /// The bytes behind its comma, if it has one.
    rest: Option<&'a [u8]>,
}

/// The field that `bytes` begin with, `index` fields into the row.
fn next_field<'a>(
    bytes: &'a [u8],
    index: usize,
    unquoted: &mut Vec<u8>,
) -> Result<Field<'a>, String> {
    let unquoted_field = |rest| Field { plain: None, rest };
    let Some(mut rest) = bytes.strip_prefix(b"\"") else {
        return Ok(match memchr(b',', bytes) {
            Some(at) => Field {
                plain: Some(&bytes[..at]),
                rest: Some(&bytes[at + 1..]),
            },
            None => Field {
                plain: Some(bytes),
                rest: None,
            },
        });
    };
    unquoted.clear();
    loop {
        let Some(at) = memchr(b'"', rest) else {
            return Err(format!("field {} has no closing quote", index + 1));
        };
        unquoted.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.first() {
            None => return Ok(unquoted_field(None)),
            Some(b',') => return Ok(unquoted_field(Some(&rest[1..]))),
            Some(b'"') => {
                unquoted.push(b'"');
                rest = &rest[1..];
            }
            Some(_) => {
                return Err(format!(
                    "field {} goes on behind its closing quote",
                    index + 1
                ));
            }
        }
    }
}

fn write_json_string(text: &str, json: &mut Vec<u8>) {
    serde_json::to_writer(json, text).expect("a string is written to memory");
}
