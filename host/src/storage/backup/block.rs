//! One block of a backup: a heading of known size, then its bytes, compressed where that makes them
//! fewer.

use std::io::{self, Read, Write};

use crate::storage::StoredRow;
use crate::types::epoch::Checksum;

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// What the backup says of itself. The first block.
    Header,
    /// Rows of the catalog.
    Catalog,
    /// Bulk rows.
    Bulk,
    /// Counts, and a checksum over all headings. The last block.
    End,
}

impl BlockKind {
    fn byte(self) -> u8 {
        match self {
            BlockKind::Header => 0,
            BlockKind::Catalog => 1,
            BlockKind::Bulk => 2,
            BlockKind::End => 3,
        }
    }

    fn of(byte: u8) -> Option<BlockKind> {
        [
            BlockKind::Header,
            BlockKind::Catalog,
            BlockKind::Bulk,
            BlockKind::End,
        ]
        .into_iter()
        .find(|kind| kind.byte() == byte)
    }
}

/// Length of a heading: kind, compression, rows, length, length as stored, checksum.
pub(super) const HEADING_BYTES: usize = 1 + 1 + 4 + 4 + 4 + 16;

/// Where the checksum begins in a heading; it covers what stands before it and the stored bytes.
const CHECKSUM_AT: usize = HEADING_BYTES - 16;

/// The largest block, in bytes: one row of the greatest size that can be stored, and some.
pub(super) const BLOCK_BYTES_MAX: u32 = 1_100 << 20;

/// Bytes that are stored as they are.
const PLAIN: u8 = 0;
/// Bytes that LZ4 has compressed, as one block of its format.
const LZ4: u8 = 1;

/// A block as it was read.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: BlockKind,
    pub(super) rows: u32,
    pub(super) bytes: Vec<u8>,
    pub(super) heading: [u8; HEADING_BYTES],
}

/// Why a block can't be read.
pub(super) enum BlockError {
    Io(io::Error),
    Damaged(String),
}

impl From<io::Error> for BlockError {
    fn from(error: io::Error) -> BlockError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                BlockError::Damaged("the file ends within a block".to_owned())
            }
            _ => BlockError::Io(error),
        }
    }
}

/// Writes a block and returns its heading.
pub(super) fn write(
    output: &mut impl Write,
    kind: BlockKind,
    rows: u32,
    bytes: &[u8],
) -> io::Result<[u8; HEADING_BYTES]> {
    let compressed = match kind {
        BlockKind::Catalog | BlockKind::Bulk => lz4_flex::block::compress(bytes),
        BlockKind::Header | BlockKind::End => bytes.to_vec(),
    };
    let (compression, stored) = match compressed.len() < bytes.len() {
        true => (LZ4, compressed.as_slice()),
        false => (PLAIN, bytes),
    };
    let length = |bytes: &[u8]| {
        u32::try_from(bytes.len()).map_err(|_| io::Error::other("a row is too large for a backup"))
    };
    let mut heading = [0; HEADING_BYTES];
    heading[0] = kind.byte();
    heading[1] = compression;
    heading[2..6].copy_from_slice(&rows.to_le_bytes());
    heading[6..10].copy_from_slice(&length(bytes)?.to_le_bytes());
    heading[10..14].copy_from_slice(&length(stored)?.to_le_bytes());
    let checksum = checksum(&heading, stored);
    heading[CHECKSUM_AT..].copy_from_slice(&checksum.0);
    output.write_all(&heading)?;
    output.write_all(stored)?;
    Ok(heading)
}

/// Reads the next block, of a file of which `left` bytes follow.
pub(super) fn read(input: &mut impl Read, left: u64) -> Result<Block, BlockError> {
    let damaged = |finding: &str| BlockError::Damaged(finding.to_owned());
    if left == 0 {
        return Err(damaged("the file ends before the backup does"));
    }
    let mut heading = [0; HEADING_BYTES];
    input.read_exact(&mut heading)?;
    let number = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&heading[at..at + 4]);
        u32::from_le_bytes(bytes)
    };
    let (rows, length, stored_length) = (number(2), number(6), number(10));
    // Nothing is allocated for what can't be there.
    if u64::from(stored_length) > left.saturating_sub(HEADING_BYTES as u64) {
        return Err(damaged("the file ends within a block"));
    }
    let mut stored = vec![0; stored_length as usize];
    input.read_exact(&mut stored)?;
    if checksum(&heading, &stored).0 != heading[CHECKSUM_AT..] {
        return Err(damaged("a block's checksum is wrong"));
    }
    let kind = BlockKind::of(heading[0]).ok_or_else(|| damaged("a block is of no known kind"))?;
    if length > BLOCK_BYTES_MAX {
        return Err(damaged("a block is larger than any can be"));
    }
    let bytes = match heading[1] {
        PLAIN => stored,
        LZ4 => lz4_flex::block::decompress(&stored, length as usize)
            .map_err(|error| BlockError::Damaged(format!("a block does not unpack: {error}")))?,
        _ => return Err(damaged("a block is compressed in no known way")),
    };
    match bytes.len() == length as usize {
        true => Ok(Block {
            kind,
            rows,
            bytes,
            heading,
        }),
        false => Err(damaged("a block has another length than it says")),
    }
}

fn checksum(heading: &[u8; HEADING_BYTES], stored: &[u8]) -> Checksum {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&heading[..CHECKSUM_AT]);
    hasher.update(stored);
    Checksum::finish(&hasher)
}

/// Appends a row to the bytes of a block.
pub(super) fn put_row(bytes: &mut Vec<u8>, key: &[u8], value: &[u8]) -> io::Result<()> {
    for part in [key, value] {
        let length = u32::try_from(part.len()).map_err(io::Error::other)?;
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(part);
    }
    Ok(())
}

/// The rows of a block; `None` when its bytes are not so many rows.
pub(super) fn rows_of(block: &Block) -> Option<Vec<StoredRow>> {
    let mut rest = block.bytes.as_slice();
    let mut part = || {
        let (length, behind) = rest.split_first_chunk()?;
        let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = behind;
        Some(part.to_vec())
    };
    // A row has eight bytes at least, so this allocates no more than a multiple of the block.
    let rows: Option<Vec<StoredRow>> = (0..block.rows).map(|_| Some((part()?, part()?))).collect();
    rows.filter(|_| rest.is_empty())
}
