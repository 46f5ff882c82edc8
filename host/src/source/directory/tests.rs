//! Directories that are read file by file, run after run, whatever comes, changes or leaves in between.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::*;
use crate::types::connectors::FileOrder;
use crate::types::pipeline::{OnFailure, RecordFormat};

const NO_LIMIT: PollLimit = PollLimit {
    rows: usize::MAX,
    bytes: usize::MAX,
};

/// A directory, and what a store would hold of its reading.
struct Directory {
    folder: tempfile::TempDir,
    options: DirectorySourceOptions,
    position: Option<Vec<u8>>,
    marks: BTreeMap<String, Vec<u8>>,
    on_failure: OnFailure,
    source: Option<DirectorySource>,
}

impl Directory {
    fn new() -> Directory {
        let folder = tempfile::tempdir().unwrap();
        let options = DirectorySourceOptions {
            path: folder.path().to_owned(),
            written_path: "in".to_owned(),
            pattern: "*".to_owned(),
            order: FileOrder::Name,
            partition: 0,
            partitions: 1,
            partition_name: "all".to_owned(),
            format: RecordFormat::Lines,
            max_record_bytes: 100,
            follow: false,
        };
        Directory {
            folder,
            options,
            position: None,
            marks: BTreeMap::new(),
            on_failure: OnFailure::Fail,
            source: None,
        }
    }

    fn with(change: impl FnOnce(&mut DirectorySourceOptions)) -> Directory {
        let mut directory = Directory::new();
        change(&mut directory.options);
        directory
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    fn written_at(&self, name: &str, seconds: u64) {
        let file = File::options().append(true).open(self.path(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
            .unwrap();
    }

    fn open(&mut self, on_change: OnChange) -> Result<(), SourceError> {
        self.source = None;
        let mark = |(name, value): (&String, &Vec<u8>)| SourceMark {
            name: name.clone(),
            value: Some(value.clone()),
        };
        let marks: Vec<SourceMark> = self.marks.iter().map(mark).collect();
        let opening = Opening {
            position: self.position.as_deref(),
            marks: &marks,
            on_change,
            on_failure: self.on_failure,
            queues: None,
        };
        self.source = Some(DirectorySource::open(&self.options, opening)?);
        Ok(())
    }

    /// Commits where the source stands.
    fn commit(&mut self) {
        let source = self.source.as_mut().unwrap();
        self.position = Some(source.position());
        for mark in source.take_marks() {
            match mark.value {
                Some(value) => self.marks.insert(mark.name, value),
                None => self.marks.remove(&mark.name),
            };
        }
    }

    fn poll(&mut self, limit: PollLimit) -> Result<(PollOutcome, Vec<String>), SourceError> {
        let mut records = SourceRecords::default();
        let outcome = self.source.as_mut().unwrap().poll(limit, &mut records)?;
        let texts = records.payloads.iter();
        let texts = texts.map(|it| String::from_utf8(it.to_vec()).unwrap());
        Ok((outcome, texts.collect()))
    }

    /// Reads to the end, or to where it waits.
    fn read_on(&mut self) -> Vec<String> {
        let mut read = Vec::new();
        loop {
            let (outcome, records) = self.poll(NO_LIMIT).unwrap();
            read.extend(records);
            if outcome != PollOutcome::More {
                self.commit();
                return read;
            }
        }
    }

    /// Opens it, reads on and commits.
    fn run(&mut self) -> Vec<String> {
        self.open(OnChange::Refuse).unwrap();
        self.read_on()
    }

    fn marked(&self) -> Vec<&str> {
        self.marks.keys().map(String::as_str).collect()
    }
}

#[test]
fn files_are_read_in_the_order_of_their_names_and_once() {
    let mut directory = Directory::new();
    directory.write("b", "3\n4\n");
    directory.write("a", "1\n2");
    directory.write("c", "");
    assert_eq!(directory.run(), ["1", "2", "3", "4"]);
    assert_eq!(directory.marked(), ["a", "b", "c"]);
    assert_eq!(directory.run(), [""; 0]);
    // What comes later is read by the next run, wherever its name stands.
    directory.write("aa", "5\n");
    assert_eq!(directory.run(), ["5"]);
    assert_eq!(directory.marked(), ["a", "aa", "b", "c"]);
}

#[test]
fn files_may_be_read_in_the_order_of_their_times() {
    let mut directory = Directory::with(|options| options.order = FileOrder::Modified);
    for (name, seconds) in [("a", 30), ("b", 10), ("c", 20), ("d", 20)] {
        directory.write(name, &format!("{name}\n"));
        directory.written_at(name, seconds);
    }
    directory.open(OnChange::Refuse).unwrap();
    assert_eq!(directory.source.as_ref().unwrap().write_time(), 10_000);
    assert_eq!(directory.read_on(), ["b", "c", "d", "a"]);
}

#[test]
fn what_is_hidden_still_written_or_no_file_is_left_alone() {
    let mut directory = Directory::with(|options| options.pattern = "*.{csv,txt}".to_owned());
    for name in [".a.csv", "a.csv.part", "b.csv.tmp", "c.jsonl", "d.txt"] {
        directory.write(name, &format!("{name}\n"));
    }
    fs::create_dir(directory.path("folder.csv")).unwrap();
    std::os::unix::fs::symlink("nowhere", directory.path("link.csv")).unwrap();
    assert_eq!(directory.run(), ["d.txt"]);
    // It got its name when it was whole.
    fs::rename(directory.path("a.csv.part"), directory.path("a.csv")).unwrap();
    assert_eq!(directory.run(), ["a.csv.part"]);
    // What another pattern takes is new, what was read is not.
    directory.options.pattern = "*".to_owned();
    assert_eq!(directory.run(), ["c.jsonl"]);
}

#[test]
fn records_of_a_poll_are_of_one_file_and_told_by_its_name() {
    let mut directory = Directory::new();
    directory.write("a", "1\n2\n");
    directory.write("b", "3\n");
    directory.open(OnChange::Refuse).unwrap();
    let mut polled = Vec::new();
    loop {
        let (outcome, records) = directory.poll(NO_LIMIT).unwrap();
        let source = directory.source.as_ref().unwrap();
        polled.push((records.len(), source.locate(&(1..=1))));
        if outcome == PollOutcome::End {
            break;
        }
    }
    let of = |count, name: &str| (count, format!("line 1 of {name}"));
    assert_eq!(polled, [of(2, "a"), of(1, "b"), of(0, "b")]);
    // A record that is malformed is told with its file.
    let mut directory = Directory::with(|options| options.format = RecordFormat::Jsonl);
    directory.write("a", "{}\n");
    directory.write("b", "{}\nno\n");
    directory.open(OnChange::Refuse).unwrap();
    let one = PollLimit {
        rows: 1,
        ..NO_LIMIT
    };
    let error = std::iter::repeat_with(|| directory.poll(one)).find_map(Result::err);
    let text = error.unwrap().to_string();
    let place = format!("{}:2: ", directory.path("b").display());
    assert!(text.starts_with(&place), "{text}");
}

#[test]
fn a_source_that_is_opened_again_goes_on_wherever_it_stood() {
    let contents = [("a", "1\n2\n3\n"), ("b", "4\n"), ("c", ""), ("d", "5\n6")];
    for stop in 0..10 {
        let mut directory = Directory::new();
        for (name, content) in contents {
            directory.write(name, content);
        }
        directory.open(OnChange::Refuse).unwrap();
        let one = PollLimit {
            rows: 1,
            ..NO_LIMIT
        };
        let mut read = Vec::new();
        for _ in 0..stop {
            read.extend(directory.poll(one).unwrap().1);
        }
        directory.commit();
        // What is polled and not committed is read again.
        directory.poll(one).unwrap();
        read.extend(directory.run());
        assert_eq!(read, ["1", "2", "3", "4", "5", "6"], "stopped after {stop}");
    }
}

#[test]
fn packed_files_are_unpacked() {
    let mut directory = Directory::new();
    let file = File::create(directory.path("a.gz")).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    encoder.write_all(b"1\n2\n").unwrap();
    encoder.finish().unwrap();
    directory.write("b", "3\n");
    assert_eq!(directory.run(), ["1", "2", "3"]);
    assert_eq!(directory.run(), [""; 0]);
}

#[test]
fn a_mark_goes_when_its_file_has_left_and_another_one_of_that_name_is_new() {
    let mut directory = Directory::new();
    directory.write("a", "1\n");
    directory.write("b", "2\n");
    directory.run();
    fs::remove_file(directory.path("a")).unwrap();
    assert_eq!(directory.run(), [""; 0]);
    assert_eq!(directory.marked(), ["b"]);
    directory.write("a", "3\n");
    assert_eq!(directory.run(), ["3"]);
    let sizes = |directory: &Directory| directory.position.as_ref().unwrap().len();
    let before = sizes(&directory);
    for name in 0..100 {
        directory.write(&format!("x{name}"), "4\n");
        directory.run();
        fs::remove_file(directory.path(&format!("x{name}"))).unwrap();
    }
    directory.run();
    assert_eq!(directory.marked(), ["a", "b"]);
    assert!(sizes(&directory) <= before + 2);
}

#[test]
fn a_file_that_changed_behind_its_end_is_not_read_again() {
    let mut directory = Directory::new();
    directory.write("a", "1\n");
    directory.written_at("a", 10);
    directory.run();
    let before = directory.marks["a"].clone();
    // A touch is no change, and is remembered.
    directory.written_at("a", 20);
    assert_eq!(directory.run(), [""; 0]);
    assert_ne!(directory.marks["a"], before);
    for content in ["1\n2\n", "9\n", ""] {
        let before = directory.marks["a"].clone();
        directory.write("a", content);
        directory.written_at("a", 20 + content.len() as u64);
        assert_eq!(directory.run(), [""; 0]);
        assert_ne!(directory.marks["a"], before, "it is told once");
        let before = directory.marks.clone();
        assert_eq!(directory.run(), [""; 0]);
        assert_eq!(directory.marks, before);
    }
}

#[test]
fn what_comes_between_the_end_that_was_seen_and_the_mark_is_a_change() {
    let mut directory = Directory::new();
    directory.write("a", "1\n");
    directory.open(OnChange::Refuse).unwrap();
    let source = directory.source.as_mut().unwrap();
    assert!(source.begin_next().unwrap());
    let mut current = source.current.take().unwrap();
    let mut records = SourceRecords::default();
    let outcome = current.source.poll(NO_LIMIT, &mut records).unwrap();
    assert_eq!(outcome, PollOutcome::End);
    fs::write(directory.folder.path().join("a"), "1\n2\n").unwrap();
    source.finish(current).unwrap();
    let mark = DoneMark::decode(Path::new("a"), source.changed_marks["a"].as_ref().unwrap());
    assert_eq!(mark.unwrap().stamp.size_bytes, 2);
}

#[test]
fn a_file_that_vanishes_in_the_middle_is_an_error_until_that_is_accepted() {
    let mut directory = Directory::new();
    directory.write("a", "1\n2\n3\n");
    directory.write("b", "4\n");
    directory.open(OnChange::Refuse).unwrap();
    directory
        .poll(PollLimit {
            rows: 2,
            ..NO_LIMIT
        })
        .unwrap();
    directory.commit();
    fs::remove_file(directory.path("a")).unwrap();
    let refused = directory.open(OnChange::Refuse).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "{} was read up to line 2 when it left its directory; put it back to read the rest, \
             or go on without it by --accept-change",
            directory.path("a").display()
        )
    );
    // One that was changed is refused as a file is.
    directory.write("a", "one\n2\n3\n");
    let refused = directory.open(OnChange::Refuse);
    assert!(matches!(refused, Err(SourceError::IdentityChanged { .. })));
    directory.open(OnChange::StartOver).unwrap();
    assert_eq!(directory.poll(NO_LIMIT).unwrap().1, ["one", "2", "3"]);
    fs::remove_file(directory.path("a")).unwrap();
    directory.open(OnChange::StartOver).unwrap();
    assert_eq!(directory.read_on(), ["4"]);
}

#[test]
fn a_file_that_leaves_before_it_is_begun_is_passed_over() {
    let mut directory = Directory::new();
    directory.write("a", "1\n");
    directory.write("b", "2\n");
    directory.open(OnChange::Refuse).unwrap();
    fs::remove_file(directory.path("a")).unwrap();
    assert_eq!(directory.read_on(), ["2"]);
}

#[test]
fn a_directory_that_is_followed_is_listed_again_at_most_every_second() {
    let mut directory = Directory::with(|options| options.follow = true);
    directory.write("b", "1\n");
    directory.open(OnChange::Refuse).unwrap();
    let at = |directory: &mut Directory, ms| {
        let source = directory.source.as_mut().unwrap();
        source.tell_time(Duration::from_millis(ms));
        let wait = source.wait_at_most();
        (wait, directory.read_on())
    };
    assert_eq!(at(&mut directory, 0).1, ["1"]);
    directory.write("a", "2\n");
    assert_eq!(
        at(&mut directory, 999),
        (Some(Duration::from_millis(1)), Vec::new())
    );
    assert_eq!(at(&mut directory, 1_000).1, ["2"]);
    directory.write("c", "3\n");
    fs::remove_file(directory.path("a")).unwrap();
    assert_eq!(at(&mut directory, 1_500).1, [""; 0]);
    assert_eq!(at(&mut directory, 2_500).1, ["3"]);
    assert_eq!(directory.marked(), ["b", "c"]);
}

#[test]
fn partitions_read_each_file_once_between_them() {
    let mut read = Vec::new();
    for partition in 0..3 {
        let mut directory = Directory::with(|options| {
            options.partition = partition;
            options.partitions = 3;
        });
        for name in 0..60 {
            directory.write(&format!("file {name}"), &format!("{name:02}\n"));
        }
        let own = directory.run();
        assert!((8..35).contains(&own.len()), "{}", own.len());
        read.extend(own);
    }
    read.sort();
    let all: Vec<String> = (0..60).map(|name| format!("{name:02}")).collect();
    assert_eq!(read, all);
}

#[test]
fn thousands_of_files_are_read_within_one_listing() {
    let mut directory = Directory::new();
    for name in 0..3_000 {
        directory.write(&format!("{name:05}"), &format!("{name}\n"));
    }
    let read = directory.run();
    assert_eq!(read.len(), 3_000);
    assert_eq!(directory.marks.len(), 3_000);
    assert!(directory.position.unwrap().len() < 10);
}

#[test]
fn a_directory_that_is_gone_and_names_that_are_no_text_are_told() {
    use std::os::unix::ffi::OsStrExt as _;

    let mut directory = Directory::new();
    let odd = std::ffi::OsStr::from_bytes(b"a\xff");
    fs::write(directory.folder.path().join(odd), "").unwrap();
    let refused = directory.open(OnChange::Refuse);
    assert!(matches!(refused, Err(SourceError::NameNotText { .. })));
    fs::remove_dir_all(directory.folder.path()).unwrap();
    let refused = directory.open(OnChange::Refuse);
    assert!(matches!(refused, Err(SourceError::OpenDirectory { .. })));
}

#[test]
fn what_was_not_stored_here_is_refused() {
    let mut directory = Directory::new();
    directory.write("a", "1\n");
    directory.run();
    let mark = directory.marks["a"].clone();
    let mut newer = mark.clone();
    newer[0] = 9;
    for damaged in [Vec::new(), newer, mark[..mark.len() - 1].to_vec()] {
        directory.marks.insert("a".to_owned(), damaged);
        let refused = directory.open(OnChange::Refuse);
        assert!(matches!(
            refused,
            Err(SourceError::UndecodablePosition { .. })
        ));
    }
    directory.marks.clear();
    for damaged in [&b"d"[..], b"d\x09", b"d\x01\x01"] {
        directory.position = Some(damaged.to_vec());
        let refused = directory.open(OnChange::Refuse);
        assert!(matches!(
            refused,
            Err(SourceError::UndecodablePosition { .. })
        ));
    }
}

/// Puts another file in the place of one that was read.
fn replace(directory: &Directory, name: &str, content: &str) {
    let other = directory.path("replacement.tmp");
    fs::write(&other, content).unwrap();
    fs::rename(other, directory.path(name)).unwrap();
}

#[test]
fn another_file_under_the_name_of_one_that_was_read_is_read_as_well() {
    let mut directory = Directory::new();
    for (name, content) in [("a", "1\n2\n"), ("b", "3\n4\n"), ("c", "5\n"), ("d", "")] {
        directory.write(name, content);
        directory.written_at(name, 10);
    }
    assert_eq!(directory.run(), ["1", "2", "3", "4", "5"]);
    // As long, as old, and never listed in between.
    replace(&directory, "a", "6\n7\n");
    directory.written_at("a", 10);
    // A copy, one with more behind, and one in place of an empty one.
    replace(&directory, "b", "3\n4\n");
    replace(&directory, "c", "5\n8\n");
    replace(&directory, "d", "9\n");
    assert_eq!(directory.run(), ["6", "7", "9"]);
    assert_eq!(directory.run(), [""; 0]);
    // The same file with something else in it was read.
    directory.write("a", "x\ny\n");
    assert_eq!(directory.run(), [""; 0]);
}

#[test]
fn a_file_that_is_replaced_while_it_is_read_is_not_what_was_read() {
    let mut directory = Directory::new();
    directory.write("a", "1\n2\n");
    directory.open(OnChange::Refuse).unwrap();
    let one = PollLimit {
        rows: 1,
        ..NO_LIMIT
    };
    assert_eq!(directory.poll(one).unwrap().1, ["1"]);
    replace(&directory, "a", "3\n4\n");
    assert_eq!(directory.read_on(), ["2"]);
    assert_eq!(directory.run(), ["3", "4"]);
}

#[test]
fn files_of_another_path_are_read_although_they_have_the_names_of_those_that_were() {
    let mut directory = Directory::new();
    let other = tempfile::tempdir().unwrap();
    directory.write("a", "old\n");
    directory.write("same", "same\n");
    fs::write(other.path().join("a"), "new\n").unwrap();
    fs::write(other.path().join("same"), "same\n").unwrap();
    assert_eq!(directory.run(), ["old", "same"]);
    directory.options.path = other.path().to_owned();
    directory.open(OnChange::StartOver).unwrap();
    assert_eq!(directory.read_on(), ["new"]);
}

#[test]
fn a_change_that_was_accepted_looks_at_what_is_in_the_files_and_not_at_their_times() {
    let mut directory = Directory::new();
    directory.write("a", "1\n2\n");
    assert_eq!(directory.run(), ["1", "2"]);
    // By chance all that is known of the file but its content is as it was for another one.
    directory.write("a", "3\n4\n");
    let now = stamp_of(&directory.path("a")).unwrap();
    let mut mark = DoneMark::decode(Path::new("a"), &directory.marks["a"]).unwrap();
    mark.stamp = now;
    directory.marks.insert("a".to_owned(), mark.encode());
    directory.open(OnChange::StartOver).unwrap();
    assert_eq!(directory.read_on(), ["3", "4"]);
}

#[test]
fn a_file_in_the_middle_that_the_pattern_leaves_out_is_a_change() {
    let mut directory = Directory::new();
    directory.write("z", "1\n2\n");
    directory.write("zz", "3\n");
    directory.open(OnChange::Refuse).unwrap();
    let one = PollLimit {
        rows: 1,
        ..NO_LIMIT
    };
    assert_eq!(directory.poll(one).unwrap().1, ["1"]);
    directory.commit();
    directory.options.pattern = "??".to_owned();
    let error = directory.open(OnChange::Refuse).unwrap_err();
    assert!(matches!(error, SourceError::Unmatched { .. }), "{error}");
    let change = error.change().unwrap();
    assert!(change.now.contains("left out by pattern"), "{}", change.now);
    directory.open(OnChange::StartOver).unwrap();
    assert_eq!(directory.read_on(), ["3"]);
}

#[test]
fn a_file_that_ends_with_what_is_passed_over_is_done_and_the_next_one_is_read() {
    let mut directory = Directory::with(|options| options.format = RecordFormat::Jsonl);
    directory.on_failure = OnFailure::Skip;
    directory.write("a", "1\n{");
    directory.write("b", "[\n2\n");
    directory.write("c", "{\n[\n");
    directory.open(OnChange::Refuse).unwrap();
    let mut passed = Vec::new();
    let mut good = Vec::new();
    loop {
        let mut records = SourceRecords::default();
        let source = directory.source.as_mut().unwrap();
        let outcome = source.poll(NO_LIMIT, &mut records).unwrap();
        for record in &records.undecodable {
            let place = source.locate(&(record.position..=record.position));
            assert_eq!(place, format!("line {} of {}", record.position, record.of));
            passed.push((record.of.clone(), record.position));
        }
        good.extend(records.payloads.iter().map(<[u8]>::to_vec));
        if outcome == PollOutcome::End {
            break;
        }
        // Goes on in the middle of files too, with the same word on such records.
        directory.commit();
        directory.open(OnChange::Refuse).unwrap();
    }
    assert_eq!(good, [b"1", b"2"]);
    let expected = [("a", 2), ("b", 1), ("c", 1), ("c", 2)];
    let expected = expected.map(|(name, line)| (name.to_owned(), line));
    assert_eq!(passed, expected);
    directory.commit();
    assert_eq!(directory.marks.len(), 3);
}
