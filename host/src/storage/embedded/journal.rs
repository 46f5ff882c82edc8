//! The tail of the bulk store's journal after a crash. A loss of power may leave out pages in the
//! middle of what was not synced; the bulk store itself then refuses to open, or reads lengths out
//! of garbage. So the journals are checked before it opens, and the newest is cut at its last whole
//! batch; what is cut off is kept beside the stores.
//!
//! Nothing decided can be lost by the cut unnoticed: entries are synced before they are decided,
//! and recovery follows each partition's chain of entries up to its head. An older journal was
//! synced whole when it was sealed; damage there is no torn tail, and is refused.
//!
//! Layout of a journal, as fjall 3.1 writes it (numbers little-endian): batches of `01`, count u32,
//! sequence number u64; count items of `02`, value type u8, compression u8, keyspace u64, key length
//! u16, value length u32, length on disk u32, key, value (or `04`, keyspace u64: the keyspace was
//! emptied); `03`, XXH3-64 of the items, "FJL" `03`. Behind the last batch zeros or nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::storage::StorageError;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const MAGIC: [u8; 4] = *b"FJL\x03";

/// What the names of saved tails begin with.
const TAIL_PREFIX: &str = "bulk-journal-";

/// How many cut-off tails are kept; the newest takes the place of the last.
const TAILS_MAX: usize = 8;

/// Checks the journals in `bulk_dir` and cuts a torn tail off the newest. Returns where the tail was
/// saved, if there was one. The bulk store must not be open.
pub(super) fn cut_torn_tail(
    bulk_dir: &Path,
    data_dir: &Path,
) -> Result<Option<PathBuf>, StorageError> {
    let mut journals = list(bulk_dir)?;
    let Some((id, newest)) = journals.pop() else {
        return Ok(None);
    };
    for (_, sealed) in journals {
        let whole = scan(&sealed).map_err(|error| failed("read", &sealed, error))?;
        if let Tail::Torn { .. } = whole.tail {
            return Err(StorageError::Backend {
                store: "the bulk store",
                action: "open",
                source: format!(
                    "its sealed journal {} is damaged at byte {}",
                    sealed.display(),
                    whole.whole_until
                )
                .into(),
            });
        }
    }
    let found = scan(&newest).map_err(|error| failed("read", &newest, error))?;
    let Tail::Torn { end } = found.tail else {
        return Ok(None);
    };
    let saved = save_tail(&newest, id, found.whole_until, end, data_dir)?;
    let cut = || -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&newest)?;
        file.set_len(found.whole_until)?;
        file.sync_all()
    };
    cut().map_err(|error| failed("cut the torn tail of", &newest, error))?;
    Ok(Some(saved))
}

fn list(dir: &Path) -> Result<Vec<(u64, PathBuf)>, StorageError> {
    let mut journals = Vec::new();
    for file in std::fs::read_dir(dir).map_err(|error| failed("list", dir, error))? {
        let path = file.map_err(|error| failed("list", dir, error))?.path();
        let id = (path.extension().is_some_and(|extension| extension == "jnl"))
            .then(|| path.file_stem()?.to_str()?.parse().ok())
            .flatten();
        journals.extend(id.map(|id| (id, path)));
    }
    journals.sort();
    Ok(journals)
}

/// A torn tail that was saved in a data directory, if there is any.
pub(super) fn any_saved_tail(data_dir: &Path) -> Result<Option<PathBuf>, StorageError> {
    for file in std::fs::read_dir(data_dir).map_err(|error| failed("list", data_dir, error))? {
        let file = file.map_err(|error| failed("list", data_dir, error))?;
        if file.file_name().to_string_lossy().starts_with(TAIL_PREFIX) {
            return Ok(Some(file.path()));
        }
    }
    Ok(None)
}

fn save_tail(
    journal: &Path,
    id: u64,
    start: u64,
    end: u64,
    data_dir: &Path,
) -> Result<PathBuf, StorageError> {
    let name = |number| data_dir.join(format!("{TAIL_PREFIX}{id}-at-{start}.torn-{number}"));
    let path = (0..TAILS_MAX)
        .map(name)
        .find(|path| !path.exists())
        .unwrap_or_else(|| name(TAILS_MAX - 1));
    let save = || -> io::Result<()> {
        let mut from = File::open(journal)?;
        from.seek(SeekFrom::Start(start))?;
        let mut to = File::create(&path)?;
        io::copy(&mut from.take(end - start), &mut to)?;
        to.sync_all()
    };
    save().map_err(|error| {
        // A part of it is of no use; the tail itself is still where it was.
        let _ = std::fs::remove_file(&path);
        failed("save the torn tail in", &path, error)
    })?;
    Ok(path)
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StorageError {
    StorageError::File {
        action,
        path: path.to_owned(),
        source,
    }
}

/// How far a journal is whole, and what follows.
#[derive(Debug, PartialEq, Eq)]
struct Scan {
    whole_until: u64,
    tail: Tail,
}

#[derive(Debug, PartialEq, Eq)]
enum Tail {
    /// Nothing, or zeros that were allocated in advance.
    Clean,
    /// Something that is no whole batch; its last byte that is not zero lies before `end`.
    Torn { end: u64 },
}

fn scan(path: &Path) -> io::Result<Scan> {
    let file = File::open(path)?;
    let mut reader = Counted {
        reader: BufReader::with_capacity(1 << 20, file),
        position: 0,
    };
    let mut whole_until = 0;
    while read_batch(&mut reader)? {
        whole_until = reader.position;
    }
    let mut file = reader.reader.into_inner();
    file.seek(SeekFrom::Start(whole_until))?;
    let tail = match last_nonzero(&mut BufReader::with_capacity(1 << 20, file))? {
        None => Tail::Clean,
        Some(offset) => Tail::Torn {
            end: whole_until + offset + 1,
        },
    };
    Ok(Scan { whole_until, tail })
}

/// Reads one batch; `false` when what comes is none.
fn read_batch(reader: &mut Counted) -> io::Result<bool> {
    let mut read = || -> io::Result<bool> {
        if reader.array::<1>()? != [START] {
            return Ok(false);
        }
        let count = u32::from_le_bytes(reader.array()?);
        reader.array::<8>()?;
        let mut hasher = Xxh3::new();
        for _ in 0..count {
            let tag = reader.array::<1>()?;
            hasher.update(&tag);
            match tag {
                [ITEM] => {
                    let head: [u8; 20] = reader.array()?;
                    hasher.update(&head);
                    let [.., k0, k1, _, _, _, _, d0, d1, d2, d3] = head;
                    let key_len = u64::from(u16::from_le_bytes([k0, k1]));
                    let disk_len = u64::from(u32::from_le_bytes([d0, d1, d2, d3]));
                    reader.hash(key_len + disk_len, &mut hasher)?;
                }
                [CLEAR] => hasher.update(&reader.array::<8>()?),
                _ => return Ok(false),
            }
        }
        if reader.array::<1>()? != [END] {
            return Ok(false);
        }
        let checksum = u64::from_le_bytes(reader.array()?);
        Ok(reader.array()? == MAGIC && checksum == hasher.digest())
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        result => result,
    }
}

struct Counted {
    reader: BufReader<File>,
    position: u64,
}

impl Counted {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        self.reader.read_exact(&mut array)?;
        self.position += N as u64;
        Ok(array)
    }

    fn hash(&mut self, mut count: u64, hasher: &mut Xxh3) -> io::Result<()> {
        let mut buffer = [0; 8_192];
        while count > 0 {
            let step = buffer
                .len()
                .min(usize::try_from(count).unwrap_or(usize::MAX));
            self.reader.read_exact(&mut buffer[..step])?;
            hasher.update(&buffer[..step]);
            self.position += step as u64;
            count -= step as u64;
        }
        Ok(())
    }
}

fn last_nonzero(reader: &mut impl Read) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; 1 << 16];
    let (mut position, mut last) = (0, None);
    loop {
        let count = reader.read(&mut buffer)?;
        if count == 0 {
            return Ok(last);
        }
        if let Some(index) = buffer[..count].iter().rposition(|byte| *byte != 0) {
            last = Some(position + index as u64);
        }
        position += count as u64;
    }
}

/// How far a journal is whole, for tests that tear it.
#[cfg(test)]
pub(super) fn whole_until(path: &Path) -> u64 {
    let found = scan(path).expect("the journal can be read");
    assert_eq!(found.tail, Tail::Clean);
    found.whole_until
}
