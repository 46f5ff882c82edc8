//! What happens before a data directory is served: every partition's chain of entries is followed
//! from its head back to where its rows stand, and applied in order.
//!
//! Entries that no head leads to were never decided and go. A hole or a wrong checksum in a chain is
//! damage: that partition stops, nothing of it is touched, the others run.
//!
//! Before that the decisions are held against the marks (`mark.rs`). Where they have lost rows, heads
//! are brought forward to where the rows stand if that proves to make them whole; otherwise nothing
//! is opened, for what was lost with them would be started afresh.
//!
//! **Invariant:** everything here may be interrupted and done again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use crate::storage::embedded::applying::{Pending, apply, place_appends, write_appends};
use crate::storage::embedded::bulk::{RowChange, prefix_range};
use crate::storage::embedded::chain::{Chains, follow_chain, read_entry, withhold};
use crate::storage::embedded::decisions::read_head;
use crate::storage::embedded::faults::pass;
use crate::storage::embedded::finishing::{finish_files_left, remove_stray_lengths};
use crate::storage::embedded::mark::Mark;
use crate::storage::embedded::queue_partitions::DecidedChunks;
use crate::storage::embedded::run::Run;
use crate::storage::embedded::withheld::Withheld;
use crate::storage::embedded::{Damage, Shared};
use crate::storage::{StorageError, StoredRow, codec, keys};
use crate::types::epoch::Head;
use crate::types::ids::{PartitionId, SinkFileId};

/// Brings the stores of `shared` to where the heads say they are.
pub(super) fn recover(shared: &Shared) -> Result<(), StorageError> {
    let mut heads = read_heads(shared)?;
    let applied = read_applied(shared)?;
    let (repairs, mark) = plan_repair(shared, &heads, &applied)?;
    heads.extend(repairs.iter().map(|(partition, head)| (*partition, *head)));

    let entry_keys = read_entry_keys(shared)?;
    let mut partitions: BTreeSet<PartitionId> = heads.keys().copied().collect();
    partitions.extend(entry_keys.iter().filter_map(|key| keys::owner(key)));
    let mut damaged = BTreeMap::new();
    let mut withheld = Withheld::default();
    let mut chains = Chains::new();
    for partition in &partitions {
        let head = heads.get(partition).copied().unwrap_or_default();
        let stands_at = applied.get(partition).copied().unwrap_or_default();
        match follow_chain(shared, *partition, head, stands_at, &mut withheld)? {
            Ok(chain) => {
                chains.insert(*partition, chain);
            }
            Err(damage) => {
                damaged.insert(*partition, damage);
            }
        }
    }
    set_aside_unplaceable(shared, &mut chains, &mut damaged, &mut withheld)?;
    set_aside_unwritable(shared, &mut chains, &mut damaged, &mut withheld)?;
    for (partition, damage) in &damaged {
        tracing::error!(%partition, epoch = %damage.epoch, finding = damage.finding, "partition damaged");
    }

    write_sink_bytes(shared, &chains)?;
    apply_chains(shared, &chains)?;
    withheld.mark(shared)?;
    let is_repair = !repairs.is_empty();
    remove_foreign(shared, &entry_keys, &chains, &damaged, is_repair)?;
    if shared.decisions.mark()? != Some(mark) {
        repair(shared, &repairs, mark)?;
    }
    shared.bulk.set_decisions_mark(mark)?;
    pass(&shared.faults, "open: sync the rows")?;
    shared.bulk.sync()?;

    for (partition, head) in heads {
        shared.set_decided_head(partition, head);
    }
    shared.set_damaged(damaged);
    // Their catalog rows go, which the mark has to be right for.
    finish_files_left(shared)?;
    remove_stray_lengths(shared)
}

fn read_heads(shared: &Shared) -> Result<BTreeMap<PartitionId, Head>, StorageError> {
    (shared.decisions.scan(&[keys::CATALOG_HEAD])?.into_iter())
        .map(|(key, value)| {
            let partition = PartitionId(keys::catalog_number(&key).unwrap_or_default());
            Ok((partition, read_head(partition, Some(&value))?))
        })
        .collect()
}

fn read_applied(shared: &Shared) -> Result<BTreeMap<PartitionId, Head>, StorageError> {
    (shared.bulk.view().range(prefix_range(keys::APPLIED)))
        .map(|row| {
            let (key, value) = row?;
            let partition = keys::owner(&key).unwrap_or(PartitionId(0));
            let what = || format!("the applied head of partition {partition}");
            Ok((partition, codec::decode_head(what, &value)?))
        })
        .collect()
}

fn read_entry_keys(shared: &Shared) -> Result<Vec<Vec<u8>>, StorageError> {
    shared
        .bulk
        .view()
        .keys(prefix_range(keys::ENTRY))
        .map(|key| Ok(key?.to_vec()))
        .collect()
}

/// What must be done for the decisions to be whole: the heads to bring forward, and the mark that is
/// right then. Rows are only ever applied after their decision was durable, so rows beyond a head
/// mean that the decision was lost since.
fn plan_repair(
    shared: &Shared,
    heads: &BTreeMap<PartitionId, Head>,
    applied: &BTreeMap<PartitionId, Head>,
) -> Result<(Vec<(PartitionId, Head)>, Mark), StorageError> {
    let rows = shared.decisions.rows()?;
    let mut whole: BTreeMap<Vec<u8>, Vec<u8>> = rows.into_iter().collect();
    let repairs: Vec<(PartitionId, Head)> = (applied.iter())
        .filter(|(partition, stands_at)| {
            let decided = heads.get(partition).copied().unwrap_or_default();
            stands_at.epoch > decided.epoch
        })
        .map(|(partition, stands_at)| (*partition, *stands_at))
        .collect();
    whole.extend(
        (repairs.iter())
            .map(|(partition, head)| (keys::head(*partition), codec::encode_head(head))),
    );
    let digest = Mark::digest_of((whole.iter()).map(|(key, value)| (&key[..], &value[..])));
    let (found, expected) = (shared.decisions.mark()?, shared.bulk.decisions_mark()?);
    let mark = match (found, expected) {
        // Made before there were marks.
        (None, None) if repairs.is_empty() => Mark {
            transactions: 1,
            digest,
        },
        (None, expected) => expected.unwrap_or_default(),
        (Some(found), None) => found,
        (Some(found), Some(expected)) if found.transactions >= expected.transactions => found,
        (Some(_), Some(expected)) => expected,
    };
    if mark.digest != digest {
        return Err(StorageError::DecisionsLost {
            path: shared.dir.clone(),
            expected: mark.transactions,
            found: found.unwrap_or_default().transactions,
        });
    }
    for (partition, stands_at) in &repairs {
        tracing::warn!(
            %partition, decided = %heads.get(partition).copied().unwrap_or_default().epoch,
            applied = %stands_at.epoch, "head brought forward: a durable decision was lost"
        );
    }
    Ok((repairs, mark))
}

/// Comes after what the repair is judged by is set aside, so that an interrupted one is judged in the
/// same way again.
fn repair(
    shared: &Shared,
    repairs: &[(PartitionId, Head)],
    mark: Mark,
) -> Result<(), StorageError> {
    let rows: Vec<StoredRow> = (repairs.iter())
        .map(|(partition, head)| (keys::head(*partition), codec::encode_head(head)))
        .collect();
    shared.bulk.sync()?;
    pass(&shared.faults, "open: bring heads forward")?;
    shared.decisions.repair(&rows, mark)?;
    shared.decisions.flush()?;
    shared.decisions.sync()
}

/// Partitions whose sink bytes can't be written without a gap are damaged too: their entries hold
/// the only copy. Setting one aside may leave a gap for another, so this goes on until none is left.
fn set_aside_unwritable(
    shared: &Shared,
    chains: &mut Chains,
    damaged: &mut BTreeMap<PartitionId, Damage>,
    withheld: &mut Withheld,
) -> Result<(), StorageError> {
    loop {
        let mut appends: Vec<(SinkFileId, u64, u64, PartitionId, Head)> = Vec::new();
        for (partition, chain) in chains.iter() {
            for link in chain {
                appends.extend(
                    (link.appends.iter())
                        .map(|(file, offset, end)| (*file, *offset, *end, *partition, link.head)),
                );
                // Nobody asks for a finished file again, so it has to be whole as well.
                let files = shared.sink_files();
                appends.extend(
                    (link.finished.iter())
                        .filter(|file| files.may_finish(**file))
                        .map(|file| {
                            let start = files.decided_len(*file);
                            (*file, start, start, *partition, link.head)
                        }),
                );
            }
        }
        appends.sort_by_key(|(file, offset, ..)| (*file, *offset));
        let mut files = shared.sink_files();
        let mut found = None;
        let mut reached: Option<(SinkFileId, u64)> = None;
        for (file, offset, end, partition, head) in appends {
            let whole_until = match reached {
                Some((same, end)) if same == file => end,
                _ => match files.check_holds_applied(file)? {
                    Ok(()) => files.decided_len(file),
                    Err(finding) => {
                        found = Some((partition, head, finding));
                        break;
                    }
                },
            };
            if offset > whole_until {
                let path = files.path(file);
                let finding = format!(
                    "bytes {whole_until} to {offset} of its sink file {} belong to a damaged \
                     partition",
                    path.display()
                );
                found = Some((partition, head, finding));
                break;
            }
            reached = Some((file, end.max(whole_until)));
        }
        drop(files);
        let Some((partition, head, finding)) = found else {
            return Ok(());
        };
        let epoch = head.epoch;
        let damage = Damage {
            epoch,
            finding,
            hides_queue_rows: false,
        };
        set_aside(shared, partition, chains, withheld);
        damaged.insert(partition, damage);
    }
}

/// Partitions with rows for queues whose bounds do not decode are damaged too.
fn set_aside_unplaceable(
    shared: &Shared,
    chains: &mut Chains,
    damaged: &mut BTreeMap<PartitionId, Damage>,
    withheld: &mut Withheld,
) -> Result<(), StorageError> {
    let mut found = Vec::new();
    for (partition, chain) in chains.iter() {
        for (link, span) in
            (chain.iter()).flat_map(|it| it.queues.iter().map(move |span| (it, span)))
        {
            if shared.decodable_bounds(span.queue)?.is_none() {
                let finding = format!(
                    "it has rows for queue partition {}, whose bounds do not decode",
                    span.queue
                );
                let damage = Damage {
                    epoch: link.head.epoch,
                    finding,
                    hides_queue_rows: false,
                };
                found.push((*partition, damage));
                break;
            }
        }
    }
    for (partition, damage) in found {
        set_aside(shared, partition, chains, withheld);
        damaged.insert(partition, damage);
    }
    Ok(())
}

/// Leaves a partition's entries as they are: their sink files get no more rows, their room in queues stays theirs.
fn set_aside(
    shared: &Shared,
    partition: PartitionId,
    chains: &mut Chains,
    withheld: &mut Withheld,
) {
    let waiting = chains.remove(&partition).unwrap_or_default();
    for link in &waiting {
        let written = link.appends.iter().map(|(file, ..)| file);
        for file in written.chain(&link.finished) {
            shared.sink_files().block(*file);
        }
    }
    withhold(withheld, partition, &waiting);
}

/// Writes the sink bytes of all chains before any row: chains share files, and a file's length may
/// only move on over bytes that are there.
fn write_sink_bytes(shared: &Shared, chains: &Chains) -> Result<(), StorageError> {
    let (mut appends, mut size_bytes) = (Vec::new(), 0);
    let links = chains
        .iter()
        .flat_map(|(partition, chain)| chain.iter().map(|link| (*partition, link)));
    for (partition, link) in links.filter(|(_, link)| !link.appends.is_empty()) {
        let entry = read_entry(shared, partition, link)?;
        size_bytes += entry
            .commit
            .appends
            .iter()
            .map(|append| append.bytes.len())
            .sum::<usize>();
        appends.extend(place_appends(entry.commit.appends, &entry.head.files));
        if size_bytes >= shared.options.apply_bytes {
            write_appends(shared, &mut appends)?;
            appends.clear();
            size_bytes = 0;
        }
    }
    write_appends(shared, &mut appends)?;
    let mut files = shared.sink_files();
    for (file, _, end) in chains.values().flatten().flat_map(|link| &link.appends) {
        let len = files.decided_len(*file).max(*end);
        files.set_decided_len(*file, len);
    }
    Ok(())
}

fn apply_chains(shared: &Shared, chains: &Chains) -> Result<(), StorageError> {
    let (mut pending, mut size_bytes) = (Vec::new(), 0);
    for (partition, chain) in chains {
        for link in chain {
            let mut entry = read_entry(shared, *partition, link)?;
            // Partitions are applied one after another, so chunks come in no order: each has its place.
            let mut chunks = DecidedChunks::default();
            let appends = std::mem::take(&mut entry.commit.queue_appends);
            let finished = std::mem::take(&mut entry.commit.finished_files);
            chunks.add(appends, entry.head.queues.iter().map(|span| span.place));
            let mut runs = chunks.into_runs(shared)?;
            runs.push((*partition, Arc::new(Run::of_commit(entry.commit))));
            for (partition, run) in runs {
                size_bytes += run.rows().size_bytes();
                shared.overlay.publish([(partition, run)]);
                shared.overlay.compact(partition);
            }
            pending.push(Pending {
                entry_key: keys::entry(*partition, link.head.generation, link.head.epoch),
                partition: *partition,
                head: link.head,
                files: link.appends.iter().map(|(file, ..)| *file).collect(),
                finished,
            });
            if size_bytes >= shared.options.apply_bytes {
                apply(shared, &mut pending)?;
                size_bytes = 0;
            }
        }
    }
    apply(shared, &mut pending)
}

/// Removes the entries of epochs that were never decided; a damaged partition keeps all of its. After
/// a loss of decisions theirs may be among the lost ones: they are set aside.
fn remove_foreign(
    shared: &Shared,
    entry_keys: &[Vec<u8>],
    chains: &Chains,
    damaged: &BTreeMap<PartitionId, Damage>,
    is_repair: bool,
) -> Result<(), StorageError> {
    let applied: HashSet<Vec<u8>> = (chains.iter())
        .flat_map(|(partition, chain)| {
            chain
                .iter()
                .map(|link| keys::entry(*partition, link.head.generation, link.head.epoch))
        })
        .collect();
    let mut foreign: Vec<RowChange> = (entry_keys.iter())
        .filter(|key| !applied.contains(*key))
        .filter(|key| keys::owner(key).is_none_or(|partition| !damaged.contains_key(&partition)))
        .map(|key| (key.as_slice().into(), None))
        .collect();
    if is_repair && !foreign.is_empty() {
        tracing::warn!(count = foreign.len(), "undecided entries set aside");
        for index in 0..foreign.len() {
            let key = foreign[index].0.clone();
            let entry = shared.bulk.get(&key)?;
            foreign.push((keys::set_aside(&key).into(), entry));
        }
        pass(&shared.faults, "open: set undecided entries aside")?;
        shared.bulk.write(foreign)?;
    } else if !foreign.is_empty() {
        tracing::info!(count = foreign.len(), "undecided entries removed");
        pass(&shared.faults, "open: remove undecided entries")?;
        shared.bulk.write(foreign)?;
    }
    Ok(())
}
