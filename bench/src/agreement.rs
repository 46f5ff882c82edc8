//! Whether two outputs agree: for each user the same rows in the same order. Rows of different users may
//! stand in any order to each other, as partitions write beside each other.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// What stands before the user's name in each row.
const USER: &[u8] = br#"{"user":""#;

/// How many rows a user has, and a digest of them in their order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rows {
    count: u64,
    digest: u64,
}

/// Compares two outputs and returns the number of rows and of users.
///
/// # Errors
///
/// If they differ: the first user found whose rows do; or if one cannot be read.
pub(crate) fn check(ours: &Path, theirs: &Path) -> Result<(u64, usize)> {
    let ours = rows_of_users(ours)?;
    let theirs = rows_of_users(theirs)?;
    for (user, expected) in &theirs {
        let user_name = String::from_utf8_lossy(user);
        match ours.get(user) {
            None => bail!("the outputs differ: there is no row of {user_name}"),
            Some(found) if found.count != expected.count => bail!(
                "the outputs differ: {} rows of {user_name}, expected {}",
                found.count,
                expected.count
            ),
            Some(found) => ensure!(
                found == expected,
                "the outputs differ: rows of {user_name} have other contents or another order"
            ),
        }
    }
    ensure!(
        ours.len() == theirs.len(),
        "the outputs differ: rows of {} users, expected {}",
        ours.len(),
        theirs.len()
    );
    Ok((ours.values().map(|rows| rows.count).sum(), ours.len()))
}

fn rows_of_users(path: &Path) -> Result<HashMap<Vec<u8>, Rows>> {
    let file = File::open(path).with_context(|| format!("failed to open {}", path.display()))?;
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut users: HashMap<Vec<u8>, Rows> = HashMap::new();
    let mut row = Vec::new();
    let mut number = 0_u64;
    loop {
        row.clear();
        let read = file.read_until(b'\n', &mut row);
        if read.with_context(|| format!("failed to read {}", path.display()))? == 0 {
            return Ok(users);
        }
        number += 1;
        let user = row
            .strip_prefix(USER)
            .and_then(|rest| rest.split(|byte| *byte == b'"').next())
            .with_context(|| format!("line {number} of {} is no row", path.display()))?;
        let rows = match users.get_mut(user) {
            Some(rows) => rows,
            None => users.entry(user.to_owned()).or_default(),
        };
        let mut hasher = DefaultHasher::new();
        (rows.digest, &row).hash(&mut hasher);
        rows.digest = hasher.finish();
        rows.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A1: &str = "{\"user\":\"a\",\"sum\":1}\n";
    const A2: &str = "{\"user\":\"a\",\"sum\":2}\n";
    const B1: &str = "{\"user\":\"b\",\"sum\":1}\n";

    fn compared(ours: &[&str], theirs: &[&str]) -> Result<(u64, usize), String> {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, rows: &[&str]| {
            let path = folder.path().join(name);
            std::fs::write(&path, rows.concat()).unwrap();
            path
        };
        check(&write("ours", ours), &write("theirs", theirs)).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_of_different_users_may_change_places() {
        assert_eq!(compared(&[B1, A1, A2], &[A1, A2, B1]), Ok((3, 2)));
    }

    #[test]
    fn rows_of_one_user_may_not_change_places_be_missing_or_come_twice() {
        let error = compared(&[A2, A1], &[A1, A2]).unwrap_err();
        assert!(error.ends_with("another order"), "{error}");
        let error = compared(&[A1], &[A1, A2]).unwrap_err();
        assert!(error.ends_with("1 rows of a, expected 2"), "{error}");
        let error = compared(&[A1, A1], &[A1]).unwrap_err();
        assert!(error.ends_with("2 rows of a, expected 1"), "{error}");
        assert!(compared(&[A1, B1], &[A1]).is_err());
        assert!(compared(&[A1], &[A1, B1]).is_err());
    }
}
