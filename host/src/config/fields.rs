//! Reads one TOML table field by field. Asking for a field is what makes it known: whatever nobody
//! asked for is reported at the end, with the name that was probably meant.
//!
//! A field that is there but can't be used is reported and read as if it were not there, so that
//! reading goes on and every other field gets its finding too.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::report::{Report, listed, nearest};
use crate::config::units;

/// The longest name of a pipeline or of anything in it, in characters.
pub(super) const NAME_LENGTH_MAX: usize = 64;

/// How to write a name, for messages.
pub(crate) const NAME_FORM: &str = "use 1 to 64 of a-z, 0-9, \"_\" and \"-\"";

/// A value and its line.
#[derive(Debug, Clone)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) line: usize,
}

/// A table, and which of its fields were asked for.
pub(super) struct Fields<'a> {
    report: &'a Report<'a>,
    /// The table as messages name it: `source departures`.
    pub(super) what: String,
    /// Where the table begins.
    pub(super) line: usize,
    table: &'a DeTable<'a>,
    known: Vec<&'static str>,
    /// Asked for only to say that a later release will act on them.
    later: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(
        report: &'a Report<'a>,
        what: String,
        line: usize,
        table: &'a DeTable<'a>,
    ) -> Fields<'a> {
        Fields {
            report,
            what,
            line,
            table,
            known: Vec::new(),
            later: Vec::new(),
        }
    }

    /// Whether the field is written, well or badly. Does not count as asking for it.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The line of a field, or where the table begins if it has none.
    pub(super) fn line_of(&self, key: &str) -> usize {
        match self.table.get_key_value(key) {
            Some((name, _)) => self.report.line_at(name.span().start),
            None => self.line,
        }
    }

    /// Reports that a field is missing, unless it is there and was reported as unusable.
    pub(super) fn require<T>(
        &self,
        key: &str,
        value: Option<T>,
        remedy: impl Into<String>,
    ) -> Option<T> {
        if !self.has(key) {
            let message = format!("{} has no {key}", self.what);
            self.report.error(self.line, message, remedy);
        }
        value
    }

    /// A string.
    pub(super) fn text(&mut self, key: &'static str) -> Option<Located<String>> {
        let (line, value) = self.value(key)?;
        match value {
            DeValue::String(text) => Some(Located {
                value: text.clone().into_owned(),
                line,
            }),
            other => self.wrong_type(key, line, other, "a string", "put it in quotes"),
        }
    }

    /// A whole number in `range`.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<Located<u64>> {
        let (line, value) = self.value(key)?;
        let DeValue::Integer(integer) = value else {
            return self.wrong_type(
                key,
                line,
                value,
                "a whole number",
                "write it without quotes",
            );
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.and_then(|number| u64::try_from(number).ok());
        let bounds = (range.start().to_string(), range.end().to_string());
        self.within(key, line, &integer.to_string(), number, &range, bounds)
    }

    /// A size in bytes, written as text with a unit.
    pub(super) fn size(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<Located<u64>> {
        let (line, value) = self.value(key)?;
        let form = units::SIZE_FORM;
        let (text, bytes) = self.quantity(key, line, value, ("a size", form), units::size_bytes)?;
        let bounds = (
            units::show_size(*range.start()),
            units::show_size(*range.end()),
        );
        self.within(key, line, &text, Some(bytes), &range, bounds)
    }

    /// A duration, written as text with a unit.
    pub(super) fn duration(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Option<Located<Duration>> {
        let (line, value) = self.value(key)?;
        self.duration_of(key, line, value, &range)
    }

    /// The table `key` as a list of named durations; names are checked.
    pub(super) fn named_durations(
        &mut self,
        key: &'static str,
        noun: &str,
        range: &RangeInclusive<Duration>,
    ) -> Vec<(Located<String>, Duration)> {
        let mut durations = Vec::new();
        for (name, value) in self.named(key, noun) {
            if let Some(duration) = self.duration_of(&name.value, name.line, value, range) {
                durations.push((name, duration.value));
            }
        }
        durations
    }

    fn duration_of(
        &self,
        key: &str,
        line: usize,
        value: &DeValue<'_>,
        range: &RangeInclusive<Duration>,
    ) -> Option<Located<Duration>> {
        let form = units::DURATION_FORM;
        let (text, duration) =
            self.quantity(key, line, value, ("a duration", form), units::duration)?;
        let bounds = (
            units::show_duration(*range.start()),
            units::show_duration(*range.end()),
        );
        self.within(key, line, &text, Some(duration), range, bounds)
    }

    /// A number in `range`, with or without a decimal point.
    pub(super) fn decimal(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Option<Located<f64>> {
        let (line, value) = self.value(key)?;
        let (written, number) = match value {
            DeValue::Float(float) => (float.to_string(), float.as_str().parse().ok()),
            DeValue::Integer(integer) => (integer.to_string(), integer.as_str().parse().ok()),
            other => {
                let remedy = "write it without quotes, as in 0.5";
                return self.wrong_type(key, line, other, "a number", remedy);
            }
        };
        let bounds = (range.start().to_string(), range.end().to_string());
        self.within(key, line, &written, number, &range, bounds)
    }

    /// `true` or `false`.
    pub(super) fn switch(&mut self, key: &'static str) -> Option<Located<bool>> {
        let (line, value) = self.value(key)?;
        match value {
            DeValue::Boolean(value) => Some(Located {
                value: *value,
                line,
            }),
            other => self.wrong_type(key, line, other, "true or false", "write it without quotes"),
        }
    }

    /// One of some words. Those in `later` are for a later release.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        later: &[&str],
    ) -> Option<Located<T>> {
        let word = self.text(key)?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == word.value) {
            return Some(Located {
                value: *value,
                line: word.line,
            });
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let what = format!("{key} = {:?} of {}", word.value, self.what);
        if later.contains(&word.value.as_str()) {
            let remedy = format!("write {}", listed(&names, "or"));
            self.report.not_supported_yet(word.line, &what, remedy);
            return None;
        }
        let remedy = match nearest(&word.value, names.iter().copied()) {
            Some(name) => format!("did you mean {name:?}?"),
            None => format!("write {}", listed(&names, "or")),
        };
        self.report
            .error(word.line, format!("{what} is unknown"), remedy);
        None
    }

    /// An array of strings, each with its line.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Located<Vec<Located<String>>>> {
        let (line, value) = self.value(key)?;
        let remedy = "write names in quotes between brackets, as in [\"a\", \"b\"]";
        let DeValue::Array(array) = value else {
            return self.wrong_type(key, line, value, "a list of strings", remedy);
        };
        let mut texts = Vec::new();
        for element in array {
            let line = self.report.line_at(element.span().start);
            match element.get_ref() {
                DeValue::String(text) => texts.push(Located {
                    value: text.clone().into_owned(),
                    line,
                }),
                other => return self.wrong_type(key, line, other, "a list of strings", remedy),
            }
        }
        Some(Located { value: texts, line })
    }

    /// A table, to be read field by field.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Fields<'a>> {
        let (line, value) = self.value(key)?;
        match value {
            DeValue::Table(table) => {
                let what = format!("{key} of {}", self.what);
                Some(Fields::new(self.report, what, line, table))
            }
            other => self.wrong_type(key, line, other, "a table", "write { name = value, ... }"),
        }
    }

    /// Any value, as it stands.
    pub(super) fn raw(&mut self, key: &'static str) -> Option<Located<&'a DeValue<'a>>> {
        let (line, value) = self.value(key)?;
        Some(Located { value, line })
    }

    /// The table `key` as a list of named values; names are checked.
    pub(super) fn named(
        &mut self,
        key: &'static str,
        noun: &str,
    ) -> Vec<(Located<String>, &'a DeValue<'a>)> {
        let named = self.entries(key);
        for (name, _) in &named {
            check_name(self.report, noun, name);
        }
        named
    }

    /// [`Fields::named`] where each value is a table.
    pub(super) fn named_tables(
        &mut self,
        key: &'static str,
        noun: &str,
    ) -> Vec<(Located<String>, Fields<'a>)> {
        let named = self.named(key, noun).into_iter();
        let tables = named.filter_map(|entry| self.table_of(key, noun, entry));
        tables.collect()
    }

    /// [`Fields::named_tables`] whose names others have given: they may be any.
    pub(super) fn tables_of_others(
        &mut self,
        key: &'static str,
        noun: &str,
    ) -> Vec<(Located<String>, Fields<'a>)> {
        let named = self.entries(key).into_iter();
        let tables = named.filter_map(|entry| self.table_of(key, noun, entry));
        tables.collect()
    }

    fn entries(&mut self, key: &'static str) -> Vec<(Located<String>, &'a DeValue<'a>)> {
        let Some((line, value)) = self.value(key) else {
            return Vec::new();
        };
        let DeValue::Table(table) = value else {
            let remedy = format!("write [{key}] and what belongs to it below");
            let _: Option<()> = self.wrong_type(key, line, value, "a table", &remedy);
            return Vec::new();
        };
        let entry = |(name, value): (&Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let name = Located {
                value: String::from(name.get_ref() as &str),
                line: self.report.line_at(name.span().start),
            };
            (name, value.get_ref())
        };
        table
            .iter()
            .map(|(name, value)| entry((name, value)))
            .collect()
    }

    fn table_of(
        &self,
        key: &str,
        noun: &str,
        (name, value): (Located<String>, &'a DeValue<'a>),
    ) -> Option<(Located<String>, Fields<'a>)> {
        match value {
            DeValue::Table(table) => {
                let what = format!("{noun} {}", name.value);
                let fields = Fields::new(self.report, what, name.line, table);
                Some((name, fields))
            }
            other => {
                let message = format!(
                    "{noun} {} is {}, not a table",
                    name.value,
                    with_article(other.type_str())
                );
                let remedy = format!("write [{key}.{}] and its fields below", name.value);
                self.report.error(name.line, message, remedy);
                None
            }
        }
    }

    /// Refuses a field that a later release will act on.
    pub(super) fn later(&mut self, key: &'static str, remedy: &str) {
        // Not counted as known: it is no name to recommend.
        self.later.push(key);
        if self.has(key) {
            let what = format!("{key} of {}", self.what);
            self.report
                .not_supported_yet(self.line_of(key), &what, remedy);
        }
    }

    /// Reports every field that nobody asked for.
    pub(super) fn finish(self) {
        for (name, _) in self.table {
            let key: &str = name.get_ref();
            if self.known.contains(&key) || self.later.contains(&key) {
                continue;
            }
            let remedy = match nearest(key, self.known.iter().copied()) {
                Some(known) => format!("did you mean {known:?}?"),
                None => format!("remove it; known here: {}", self.known.join(", ")),
            };
            let line = self.report.line_at(name.span().start);
            let message = format!("unknown field {key:?} in {}", self.what);
            self.report.error(line, message, remedy);
        }
    }

    fn value(&mut self, key: &'static str) -> Option<(usize, &'a DeValue<'a>)> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let value = self.table.get(key)?;
        Some((self.line_of(key), value.get_ref()))
    }

    /// A text with a unit, and what it comes to.
    fn quantity<T>(
        &self,
        key: &str,
        line: usize,
        value: &DeValue<'_>,
        (noun, form): (&str, &str),
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<(String, T)> {
        let DeValue::String(text) = value else {
            return self.wrong_type(key, line, value, noun, form);
        };
        let Some(quantity) = parse(text) else {
            let message = format!("{key} = {text:?} of {} is not {noun}", self.what);
            self.report.error(line, message, form);
            return None;
        };
        Some((text.clone().into_owned(), quantity))
    }

    fn within<T: PartialOrd>(
        &self,
        key: &str,
        line: usize,
        written: &str,
        value: Option<T>,
        range: &RangeInclusive<T>,
        (least, greatest): (String, String),
    ) -> Option<Located<T>> {
        match value {
            Some(value) if range.contains(&value) => Some(Located { value, line }),
            _ => {
                let message = format!("{key} = {written} of {} is out of range", self.what);
                let remedy = format!("write {least} to {greatest}");
                self.report.error(line, message, remedy);
                None
            }
        }
    }

    fn wrong_type<T>(
        &self,
        key: &str,
        line: usize,
        found: &DeValue<'_>,
        expected: &str,
        remedy: &str,
    ) -> Option<T> {
        let found = with_article(found.type_str());
        let message = format!("{key} of {} must be {expected}, not {found}", self.what);
        self.report.error(line, message, remedy);
        None
    }
}

/// Reports a name that is not 1 to [`NAME_LENGTH_MAX`] of `a-z`, `0-9`, `_` and `-`.
pub(super) fn check_name(report: &Report<'_>, noun: &str, name: &Located<String>) {
    if !is_name(&name.value) {
        report.error(
            name.line,
            format!("{noun} name {:?} is not allowed", name.value),
            NAME_FORM,
        );
    }
}

/// Whether a name is 1 to [`NAME_LENGTH_MAX`] of `a-z`, `0-9`, `_` and `-`.
pub(crate) fn is_name(name: &str) -> bool {
    let legal =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    (1..=NAME_LENGTH_MAX).contains(&name.len()) && name.bytes().all(legal)
}

fn with_article(noun: &str) -> String {
    let article = match noun.starts_with(['a', 'e', 'i', 'o', 'u']) {
        true => "an",
        false => "a",
    };
    format!("{article} {noun}")
}
