//! The one error of a computation. Every [`std::error::Error`] becomes one by `?`, context is put
//! in front of it, and the host gets the whole chain as the reason of a failure, together with the
//! item that was being handled.

use std::fmt;

/// Why a computation refuses an item.
///
/// Returned from a handler it fails the batch: none of its effects happen, and the pipeline's
/// policy for failures decides about the item. It displays as its context and its causes, outermost
/// first, joined by colons.
pub struct Error(Box<Chain>);

struct Chain {
    /// The innermost first.
    contexts: Vec<String>,
    cause: Box<dyn std::error::Error + Send + Sync>,
}

/// What the functions of a computation return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error that says `text`.
    pub fn new(text: impl Into<String>) -> Error {
        let text: String = text.into();
        Error(Box::new(Chain {
            contexts: Vec::new(),
            cause: text.into(),
        }))
    }

    /// Puts `context` in front: what was being done, and with what.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Error {
        self.0.contexts.push(context.into());
        self
    }
}

// `Error` itself is no `std::error::Error`, so that this conversion covers every type that is.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(cause: E) -> Error {
        Error(Box::new(Chain {
            contexts: Vec::new(),
            cause: Box::new(cause),
        }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for context in self.0.contexts.iter().rev() {
            write!(formatter, "{context}: ")?;
        }
        write!(formatter, "{}", self.0.cause)?;
        let mut source = self.0.cause.source();
        while let Some(cause) = source {
            write!(formatter, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

// The chain is what a test that unwraps an error has to show.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Puts context in front of the error of a `Result`, or makes one of a missing value.
pub trait Context<T> {
    /// Says what was being done.
    ///
    /// # Errors
    ///
    /// The error that there was, or that there was no value.
    fn context(self, context: impl Into<String>) -> Result<T>;

    /// Says what was being done, in words that are only made where they are needed.
    ///
    /// # Errors
    ///
    /// The error that there was, or that there was no value.
    fn with_context<S: Into<String>>(self, context: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, context: impl Into<String>) -> Result<T> {
        self.map_err(|error| error.into().context(context))
    }

    fn with_context<S: Into<String>>(self, context: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| error.into().context(context()))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, context: impl Into<String>) -> Result<T> {
        self.ok_or_else(|| Error::new(context))
    }

    fn with_context<S: Into<String>>(self, context: impl FnOnce() -> S) -> Result<T> {
        self.ok_or_else(|| Error::new(context()))
    }
}

/// Returns an [`Error`] with a formatted text.
#[macro_export]
macro_rules! bail {
    ($($text:tt)+) => {
        return ::core::result::Result::Err($crate::Error::new(::std::format!($($text)+)))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_its_contexts_outermost_first_and_then_its_cause() {
        let parsed: Result<i32> = "x"
            .parse::<i32>()
            .context("field 3")
            .with_context(|| format!("line {}", 7));
        assert_eq!(
            parsed.expect_err("x is no number").to_string(),
            "line 7: field 3: invalid digit found in string"
        );
    }

    #[test]
    fn a_missing_value_becomes_an_error_that_says_what_is_missing() {
        let error = None::<u8>
            .context("no such airport")
            .expect_err("nothing there");
        assert_eq!(error.to_string(), "no such airport");
    }
}
