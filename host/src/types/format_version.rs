//! Format versions of stored bytes: the one byte that stands before most of them.

/// What is wrong with stored bytes whose format version is not the one that is known: both versions, and what to do.
/// Whoever says it says before which bytes those are.
pub fn unknown_version(found: u8, known: u8) -> String {
    match found > known {
        true => format!(
            "its format version {found} is newer than {known}, the newest that this release knows; run the release \
             that wrote it, or a newer one"
        ),
        false => format!("there is no format version {found}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_version_names_the_remedy_and_one_that_never_was_does_not() {
        let newer = unknown_version(3, 2);
        assert!(newer.contains("version 3 is newer than 2"), "{newer}");
        assert!(newer.contains("run the release that wrote it"), "{newer}");
        assert_eq!(unknown_version(0, 2), "there is no format version 0");
    }
}
