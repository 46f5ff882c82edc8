//! What a backup holds and what is found of one that was spoilt.

use std::fs;
use std::path::Path;

use super::reader::{BackupReader, BackupRows};
use super::writer::{unfinished_path, write_backup};
use super::*;
use crate::golden;
use crate::storage::memory::MemoryStorage;
use crate::storage::scan::ScanLimit;
use crate::storage::{StoreSnapshot, StoredRow};

/// A snapshot of rows that are made up.
struct Rows {
    catalog: Vec<StoredRow>,
    bulk: Vec<StoredRow>,
}

impl StoreSnapshot for Rows {
    fn catalog(&self) -> &[StoredRow] {
        &self.catalog
    }

    fn scan(&self, start: &[u8], limit: ScanLimit) -> Result<Vec<StoredRow>, StorageError> {
        let mut size_bytes = 0;
        let rows = self.bulk.iter().filter(|(key, _)| key.as_slice() >= start);
        Ok(rows
            .take_while(|(key, value)| {
                let fits = size_bytes < limit.bytes;
                size_bytes += key.len() + value.len();
                fits
            })
            .cloned()
            .collect())
    }

    fn approximate_rows(&self) -> u64 {
        self.bulk.len() as u64
    }
}

fn header() -> BackupHeader {
    BackupHeader {
        store_id: "ab12".to_owned(),
        changes: 7,
        taken_at: 1_700_000_000_000,
        release: "0.1.0".to_owned(),
    }
}

/// Several blocks: rows that compress, one that does not, an empty value, one longer than a block.
fn rows() -> Rows {
    let mut noise = blake3::Hasher::new();
    noise.update(b"noise");
    let mut random = vec![0; 3 << 20];
    noise.finalize_xof().fill(&mut random);
    let row = |number: u32| {
        let key = [&[5], number.to_be_bytes().as_slice()].concat();
        (
            key,
            format!("value {number}, and again {number}").into_bytes(),
        )
    };
    let mut bulk: Vec<StoredRow> = (0..60_000).map(row).collect();
    bulk.push((vec![6], Vec::new()));
    bulk.push((vec![7], random));
    bulk.push((vec![8], b"behind".to_vec()));
    Rows {
        catalog: vec![
            (b"i".to_vec(), b"id".to_vec()),
            (b"pa".to_vec(), Vec::new()),
        ],
        bulk,
    }
}

fn write(rows: &Rows, path: &Path) -> Result<BackupContents, BackupError> {
    write_backup(rows, &header(), path, &mut |_| ControlFlow::Continue(()))
}

fn read(path: &Path) -> Result<(Rows, BackupContents), BackupError> {
    let mut reader = BackupReader::open(path)?;
    assert_eq!(*reader.header(), header());
    let mut found = Rows {
        catalog: Vec::new(),
        bulk: Vec::new(),
    };
    while let Some(rows) = reader.next_rows()? {
        match rows {
            BackupRows::Catalog(rows) => found.catalog.extend(rows),
            BackupRows::Bulk(rows) => found.bulk.extend(rows),
        }
    }
    Ok((found, reader.contents()))
}

#[test]
fn every_row_comes_back_and_the_file_says_how_many() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole");
    let rows = rows();
    let written = write(&rows, &path).unwrap();
    assert_eq!(written.file_bytes, fs::metadata(&path).unwrap().len());
    assert!(written.file_bytes < written.row_bytes, "it is compressed");
    assert!(!unfinished_path(&path).exists());
    let (found, contents) = read(&path).unwrap();
    assert_eq!(contents, written);
    assert!(found.catalog == rows.catalog && found.bulk == rows.bulk);
    let nothing = Rows {
        catalog: Vec::new(),
        bulk: Vec::new(),
    };
    let path = folder.path().join("empty");
    write(&nothing, &path).unwrap();
    assert_eq!(read(&path).unwrap().1.bulk_rows, 0);
}

#[test]
fn a_store_in_memory_has_a_backup_too() {
    let storage = MemoryStorage::default();
    let folder = tempfile::tempdir().unwrap();
    let snapshot = crate::storage::Storage::snapshot(&storage).unwrap();
    let path = folder.path().join("memory");
    let written = write_backup(&*snapshot, &header(), &path, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(read(&path).unwrap().1, written);
}

#[test]
fn a_byte_flipped_anywhere_and_a_cut_anywhere_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole");
    write(&rows(), &path).unwrap();
    let whole = fs::read(&path).unwrap();
    assert!(read(&path).is_ok());
    let spoilt = folder.path().join("spoilt");
    // Every byte of the beginning and the end, and of the rest one of many.
    let places =
        (0..whole.len()).filter(|at| *at < 300 || *at + 300 > whole.len() || at % 40_009 == 0);
    for at in places {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        fs::write(&spoilt, &bytes).unwrap();
        assert!(read(&spoilt).is_err(), "byte {at} was flipped");
        fs::write(&spoilt, &whole[..at]).unwrap();
        assert!(read(&spoilt).is_err(), "it was cut at {at}");
    }
    fs::write(&spoilt, [&whole[..], b"x"].concat()).unwrap();
    let text = read(&spoilt).err().unwrap().to_string();
    assert!(text.contains("bytes follow its end"), "{text}");
}

#[test]
fn blocks_of_two_backups_are_none_together() {
    let folder = tempfile::tempdir().unwrap();
    let backup = |name: &str, value: &[u8]| {
        let path = folder.path().join(name);
        let rows = Rows {
            catalog: vec![(b"i".to_vec(), value.to_vec())],
            bulk: vec![(vec![5], value.to_vec())],
        };
        write(&rows, &path).unwrap();
        fs::read(path).unwrap()
    };
    let (left, right) = (backup("left", b"12345"), backup("right", b"67890"));
    // Of one the header and the catalog, of the other what follows: every block's checksum is right.
    let behind_two_blocks = |backup: &[u8]| {
        (0..2).fold(MAGIC.len() + 1, |at, _| {
            let length = backup[at + 10..].first_chunk().unwrap();
            at + block::HEADING_BYTES + u32::from_le_bytes(*length) as usize
        })
    };
    let (cut, same) = (behind_two_blocks(&left), behind_two_blocks(&right));
    let mixed = folder.path().join("mixed");
    fs::write(&mixed, [&left[..cut], &right[same..]].concat()).unwrap();
    let text = read(&mixed).err().unwrap().to_string();
    assert!(text.contains("its end is another backup's"), "{text}");
}

#[test]
fn what_is_no_backup_or_of_a_later_release_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "departures, 1999\n").unwrap();
    let text = BackupReader::open(&path).unwrap_err().to_string();
    assert!(text.contains("is no backup of a store"), "{text}");
    fs::write(&path, [MAGIC.as_slice(), &[FORMAT_VERSION + 1]].concat()).unwrap();
    let text = BackupReader::open(&path).unwrap_err().to_string();
    assert!(text.contains("newer than 1"), "{text}");
    let text = BackupReader::open(folder.path()).unwrap_err().to_string();
    assert!(text.contains("no regular file"), "{text}");
}

#[test]
fn a_name_that_is_taken_stays_and_a_failure_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("taken");
    fs::write(&path, "mine").unwrap();
    let text = write(&rows(), &path).unwrap_err().to_string();
    assert!(text.contains("takes nobody's place"), "{text}");
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    // What a killed process left is overwritten, what a living one writes is not.
    let path = folder.path().join("new");
    let left = fs::File::create(unfinished_path(&path)).unwrap();
    left.try_lock().unwrap();
    let text = write(&rows(), &path).unwrap_err().to_string();
    assert!(text.contains("another process"), "{text}");
    drop(left);
    let given_up = write_backup(&rows(), &header(), &path, &mut |_| ControlFlow::Break(()));
    assert!(matches!(given_up, Err(BackupError::GivenUp { .. })));
    assert!(!unfinished_path(&path).exists() && !path.exists());
    write(&rows(), &path).unwrap();
    assert!(!unfinished_path(&path).exists());
}

/// A backup as this release writes it, held against the file that the release which made the version wrote.
#[test]
fn backups_of_every_format_version_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("golden");
    let rows = Rows {
        catalog: vec![(b"i".to_vec(), b"\x01id".to_vec())],
        bulk: vec![(b"\x05key".to_vec(), b"\x01value".to_vec())],
    };
    write(&rows, &path).unwrap();
    let shown = |rows: &Rows| format!("{:?} {:?}", rows.catalog, rows.bulk);
    let read_back = |_: &[u8], bytes: &[u8]| {
        let path = folder.path().join("read back");
        fs::write(&path, bytes).unwrap();
        let read = read(&path).map_err(|error| error.to_string());
        read.map(|(rows, _)| shown(&rows))
    };
    let kinds = [golden::Kind {
        name: "backup",
        called: "backup ",
        version: FORMAT_VERSION,
        version_at: MAGIC.len(),
        written: (Vec::new(), fs::read(&path).unwrap()),
        held: shown(&rows),
        decode: Box::new(read_back),
    }];
    golden::check("src/storage/backup/golden", &kinds);
    golden::check_newer_is_refused(&kinds);
}
