//! Watermarks, timers, lateness and times to live of real runs.

use tidelock::storage::embedded::{EmbeddedOptions, EmbeddedStorage};
use tidelock::storage::scan::ScanLimit;
use tidelock::storage::{Storage, keys, rows};
use tidelock::types::epoch::StoredState;
use tidelock::types::ids::PartitionId;

use crate::alarms::{
    alarms, rows as rows_of, run, write_alarms, write_alarms_without, write_lines,
};

/// The rows without what they say in parentheses.
fn short(rows: &[String]) -> Vec<&str> {
    (rows.iter())
        .map(|row| row.split(" (").next().expect("there is a first part"))
        .collect()
}

#[test]
fn t2_timers_fire_at_the_watermark_in_order_and_may_be_cancelled() {
    let folder = alarms(
        &[
            "b 10 ring 30",
            "a 11 ring 30",
            "a 12 chime 30",
            "a 13 ring 20",
            "c 14 ring 25",
            "c 15 cancel 25",
            "a 29 say",
            "a 30 say",
            "d 31 ring 40",
        ],
        "",
    );
    let rows = run(&folder);
    let expected = [
        "b said ring 30",
        "a said ring 30",
        "a said chime 30",
        "a said ring 20",
        "c said ring 25",
        "c said cancel 25",
        "a said say",
        "a rang ring 20",
        "a said say",
        // At one moment by the names of their streams, then by key.
        "a rang chime 30",
        "a rang ring 30",
        "b rang ring 30",
        "d said ring 40",
        "d rang ring 40",
    ];
    assert_eq!(short(&rows), expected);
    assert_eq!(rows[7], "a rang ring 20 (5 items, watermark 29)");
    let end = u64::MAX;
    assert_eq!(
        rows[13],
        format!("d rang ring 40 (2 items, watermark {end})")
    );
}

#[test]
fn t2_what_a_handler_sets_fires_in_its_place_and_at_once_only_if_it_is_later() {
    let folder = alarms(
        &[
            // Sets itself again in between: k rings at 10, 15, 20, all due at the step to 40.
            "k 1 again 10 5 2",
            "m 2 ring 12",
            "n 3 ring 17",
            // Sets itself again for the same moment: that waits for the next step.
            "s 4 again 11 0 1",
            "x 40 say",
            "x 50 say",
        ],
        "",
    );
    let rows = run(&folder);
    let rang: Vec<&str> = short(&rows).split_off(5);
    let expected = [
        "k rang ring 10",
        "s rang ring 11",
        "m rang ring 12",
        "k rang ring 15",
        "n rang ring 17",
        "k rang ring 20",
        "x said say",
        "s rang ring 11",
    ];
    assert_eq!(rang, expected);
}

#[test]
fn d4_timers_fire_once_and_what_is_set_at_the_end_waits_for_the_next_run() {
    let folder = alarms(&["a 10 again 100 7 1"], "");
    assert_eq!(
        short(&run(&folder)),
        ["a said again 100 7 1", "a rang ring 100"]
    );
    write_lines(&folder, &["a 10 again 100 7 1", "b 106 say", "b 107 say"]);
    let rows = run(&folder);
    let expected = ["b said say", "b said say", "a rang ring 107"];
    assert_eq!(short(&rows)[2..], expected);
    assert_eq!(rows[4], "a rang ring 107 (3 items, watermark 107)");
    // Nothing is pending any more.
    assert_eq!(run(&folder).len(), 5);
}

#[test]
fn t4_late_messages_are_counted_and_go_to_an_output_of_their_own() {
    let lines = [
        "a 100 say",
        "a 99 say on time with the lateness that is allowed",
        "a 90 say",
        "a 89 say late",
        "b 0 say without a time is never late",
    ];
    let late_output = r#"
        [computations.alarms]
        late_output = "late"
        allowed_lateness = { commands = "10ms" }

        [sinks.late]
        type = "file"
        path = "late.txt"
        inputs = ["late"]
    "#;
    let folder = alarms(&lines, late_output);
    let on_time = run(&folder).len();
    assert_eq!(on_time, 4);
    assert_eq!(folder.read("late.txt"), b"say late\n");
    let counted = alarms(&lines, "");
    let finished = counted.run(["run", ".", "-o", "json"]).expect_code(0);
    let report: serde_json::Value = serde_json::from_str(&finished.stdout_text()).unwrap();
    let jobs = report["jobs"].as_array().expect("jobs are listed");
    let late: u64 = (jobs.iter())
        .map(|job| job["time"]["late_messages"].as_u64().unwrap_or(0))
        .sum();
    assert_eq!(late, 3, "{report}");
    assert_eq!(
        rows_of(&counted).len(),
        5,
        "they are processed all the same"
    );
}

#[test]
fn t3_one_record_far_in_the_future_silences_nobody() {
    // The file was written just now, so a time in the year 2100 is not believed.
    let folder = alarms(
        &[
            "a 1000 ring 2000",
            "z 4102444800000 say",
            "a 1500 say",
            "a 2000 say",
            "a 2001 say",
        ],
        "",
    );
    let rows = run(&folder);
    let expected = [
        "a said ring 2000",
        "z said say",
        "a said say",
        "a said say",
        "a rang ring 2000",
        "a said say",
    ];
    assert_eq!(short(&rows), expected);
    assert!(rows[4].ends_with("watermark 2000)"), "{}", rows[4]);
    // Without the guard the watermark would have run away with it.
    let unguarded = alarms(&[], "");
    write_lines(
        &unguarded,
        &["a 1000 ring 2000", "z 4102444800000 say", "a 1500 say"],
    );
    let more = r#"sources.lines.watermark_generator = { out_of_orderness_bound = "0ms", records_per_watermark = 1, future_limit = "36500d" }"#;
    write_alarms(&unguarded, more);
    let rows = run(&unguarded);
    assert_eq!(short(&rows)[2], "a rang ring 2000");
}

#[test]
fn a_storm_of_timers_is_worked_off_in_epochs_of_any_size() {
    let mut lines: Vec<String> = (0..200)
        .map(|key| format!("key{key:03} {} ring 1000", key + 1))
        .collect();
    lines.push("x 1000 say".to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let whole = run(&alarms(&lines, ""));
    assert_eq!(whole.len(), 401);
    for rows in [1, 7, 64] {
        let more = format!("epoch.max_rows_per_epoch = {rows}\nepoch.max_rows_per_batch = {rows}");
        let cut = run(&alarms(&lines, &more));
        assert_eq!(cut, whole, "epochs of {rows} items");
    }
}

/// Two files that are followed, the second one without records.
fn with_a_quiet_file(max_ratio: &str) -> harness::TestHost {
    let more = format!(
        r#"
        [sources.lines]
        paths = ["lines.txt", "quiet.txt"]
        follow = true
        watermark_generator = {{ out_of_orderness_bound = "0ms", records_per_watermark = 1, idle_partitions = {{ duration = "50ms", max_ratio = {max_ratio} }} }}
        "#
    );
    let folder = alarms(&["a 10 ring 20", "a 30 say"], "");
    write_alarms_without(&folder, "path", &more);
    folder.write("quiet.txt", "");
    folder
}

#[test]
fn t1_a_partition_without_records_is_left_out_after_a_while() {
    let folder = with_a_quiet_file("0.5");
    let mut running = folder.start(["--log", "debug", "run", "."]);
    assert_eq!(running.wait_for_lines("timers fired", 1), 1);
    let _ = running.interrupt().expect_code(130);
    let rows = rows_of(&folder);
    assert_eq!(short(&rows)[2], "a rang ring 20");
    assert!(rows[2].ends_with("watermark 30)"), "{}", rows[2]);
}

#[test]
fn t1_a_watermark_that_stands_still_for_too_many_quiet_partitions_says_so() {
    let folder = with_a_quiet_file("0.4");
    let mut running = folder.start(["--log", "info", "run", "."]);
    // A share of two fifths of two partitions is none.
    let reason = "max_ratio leaves out 0";
    assert!(running.wait_for_lines(reason, 1) >= 1);
    let finished = running.interrupt().expect_code(130);
    assert!(finished.stderr_text().contains("watermark stands still"));
    assert_eq!(rows_of(&folder).len(), 2, "no timer has fired");
}

#[test]
fn t1_with_no_records_anywhere_the_watermark_may_go_on_as_the_clock_does() {
    let folder = alarms(&["a 10000 ring 10100"], "");
    let more = r#"
        [sources.lines]
        follow = true
        watermark_generator = { out_of_orderness_bound = "0ms", records_per_watermark = 1, all_idle = { advance_after = "50ms" } }
    "#;
    write_alarms(&folder, more);
    let mut running = folder.start(["--log", "debug", "run", "."]);
    assert_eq!(running.wait_for_lines("timers fired", 1), 1);
    let _ = running.interrupt().expect_code(130);
    assert_eq!(
        short(&rows_of(&folder)),
        ["a said ring 10100", "a rang ring 10100"]
    );
}

#[test]
fn t2_a_timer_by_the_hosts_clock_fires_after_its_delay_and_the_last_one_set_counts() {
    let folder = alarms(
        &[
            "a 10 after 86400000",
            "a 11 after 20",
            "b 12 after 30",
            "b 13 stop",
        ],
        "sources.lines.follow = true",
    );
    let mut running = folder.start(["--log", "debug", "run", "."]);
    assert_eq!(running.wait_for_lines("timers fired", 1), 1);
    let _ = running.interrupt().expect_code(130);
    let rows = rows_of(&folder);
    assert_eq!(short(&rows)[4..], ["a rang tick"]);
}

#[test]
fn a_timer_by_the_hosts_clock_that_is_not_due_waits_for_the_next_run() {
    let folder = alarms(&["a 10 after 300"], "");
    let first = folder.run(["run", ".", "-o", "json"]).expect_code(0);
    let report: serde_json::Value = serde_json::from_str(&first.stdout_text()).unwrap();
    if rows_of(&folder).len() == 1 {
        assert_eq!(report["jobs"][1]["time"]["timers_pending"], 1, "{report}");
    }
    // The same run does not wait for it; one that goes on for longer fires it.
    write_alarms(&folder, "sources.lines.follow = true");
    let mut running = folder.start(["--log", "debug", "run", ".", "--accept-change"]);
    if rows_of(&folder).len() == 1 {
        assert_eq!(running.wait_for_lines("timers fired", 1), 1);
    }
    let _ = running.interrupt().expect_code(130);
    assert_eq!(
        short(&rows_of(&folder)),
        ["a said after 300", "a rang tick"]
    );
}

/// The transform's partition: the first one of the pipeline that is numbered.
const ALARMS: PartitionId = PartitionId(1);

/// The states that are not too old, each with its name, and the rows of all timers.
#[derive(Debug, PartialEq)]
struct Kept {
    states: Vec<(&'static str, Vec<u8>, StoredState)>,
    timers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What storage keeps. When the rows of states that are too old go is the sweep's business.
fn kept(folder: &harness::TestHost) -> Kept {
    let data = folder.path(".tidelock");
    let storage = EmbeddedStorage::open(&data, EmbeddedOptions::default());
    let storage = storage.expect("nobody else has it");
    let head = storage.head(ALARMS).expect("the store is sound");
    let record = rows::read_epoch_record(&storage, ALARMS, head.epoch);
    let record = record.expect("the store is sound").expect("it is kept");
    let all = ScanLimit::rows(100_000);
    let states = [("items", 400), ("again", 700)].into_iter();
    let states = states.flat_map(|(name, ttl)| {
        let page = rows::scan_states(&storage, ALARMS, name, b"", all);
        let rows = page.expect("the store is sound").rows.into_iter();
        let named = rows.map(move |(key, stored)| (name, key, stored));
        // A key without a value is remembered until the watermark has passed its last touch.
        named.filter(move |(_, _, stored)| {
            let ttl = if stored.value.is_empty() { 0 } else { ttl };
            stored.touched + ttl > record.time.latest_watermark
        })
    });
    let states = states.collect();
    let kinds = [keys::TIMER, keys::TIMER_HOLD, keys::SYSTEM_TIMER];
    let timers = kinds.into_iter().flat_map(|prefix| {
        let rows = storage.scan(&[prefix], &keys::prefix_end(&[prefix]), all);
        rows.expect("the store is sound")
    });
    Kept {
        states,
        timers: timers.collect(),
    }
}

/// Commands of every kind that time alone decides about, many of them late or far ahead.
fn commands(count: u64) -> Vec<String> {
    let mut random: u64 = 7;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut commands = Vec::new();
    for at in 0..count {
        let now = 1_000 + at * 10;
        let time = (now + next(60)).saturating_sub(next(2) * next(400));
        let (key, trigger) = (next(25), now + next(900));
        let command = match next(8) {
            0 => "say".to_owned(),
            1 => format!("chime {trigger}"),
            2 => format!("held {trigger} {}", now.saturating_sub(next(200))),
            3 => format!("again {trigger} {} {}", next(3) * 35, next(5)),
            4 => format!("cancel {trigger}"),
            _ => format!("ring {}", trigger / 100 * 100),
        };
        commands.push(format!("k{key} {time} {command}"));
    }
    commands
}

/// What time has a say in: lateness, times to live, and watermarks every few records.
const TIMES: &str = r#"
[sources.lines]
watermark_generator = { out_of_orderness_bound = "50ms", records_per_watermark = 5 }

[computations.alarms]
late_output = "late"
allowed_lateness = { commands = "30ms" }
states = { items = { ttl = "400ms" }, again = { ttl = "700ms" } }

[sinks.late]
type = "file"
path = "late.txt"
inputs = ["late"]
"#;

#[test]
fn n3_timers_lateness_and_times_to_live_do_not_depend_on_the_cut() {
    let commands = commands(3_000);
    let lines: Vec<&str> = commands.iter().map(String::as_str).collect();
    let outcome = |rows: usize| {
        let cut = format!("[epoch]\nmax_rows_per_batch = {rows}\nmax_rows_per_epoch = {rows}\n");
        let folder = alarms(&lines, &(TIMES.to_owned() + &cut));
        let written = run(&folder);
        (written, folder.read("late.txt"), kept(&folder))
    };
    let whole = outcome(1_000_000);
    let (rows, late, kept) = &whole;
    let rang = rows.iter().filter(|row| row.contains(" rang ")).count();
    assert!(rang > 1_000 && !late.is_empty(), "{rang} timers fired");
    assert!(
        !kept.states.is_empty() && !kept.timers.is_empty(),
        "{kept:?}"
    );
    // Each of 25 keys has a first item; a state that has grown too old begins anew.
    let first_items = rows.iter().filter(|row| row.contains("(1 items")).count();
    assert!(first_items > 2 * 25, "{first_items} states began");
    for rows in [1, 2, 7, 64] {
        let (written, written_late, kept_now) = outcome(rows);
        assert_eq!(
            first_difference(&written, &whole.0),
            None,
            "rows, cut into {rows}"
        );
        assert_eq!(written_late, *late, "late rows, cut into {rows}");
        assert_eq!(kept_now, *kept, "states and timers, cut into {rows}");
    }
}

#[test]
fn d4_kills_in_a_storm_of_timers_lose_and_repeat_nothing() {
    let commands = commands(1_500);
    let lines: Vec<&str> = commands.iter().map(String::as_str).collect();
    let cut = "[epoch]\nmax_rows_per_batch = 5\nmax_rows_per_epoch = 11\n";
    let undisturbed = alarms(&lines, &(TIMES.to_owned() + cut));
    let expected = run(&undisturbed);
    let killed = alarms(&lines, &(TIMES.to_owned() + cut));
    let mut hits = 0;
    for firings in [1, 5, 2, 20, 9, 3, 40] {
        let mut running = killed.start(["--log", "debug", "run", "."]);
        running.wait_for_lines("timers fired", firings);
        hits += usize::from(running.kill().was_killed());
    }
    assert!(hits >= 5, "{hits} kills hit");
    assert_eq!(run(&killed), expected);
    assert_eq!(killed.read("late.txt"), undisturbed.read("late.txt"));
    assert_eq!(kept(&killed), kept(&undisturbed));
}

/// The first place where two lists differ, with what stands there.
fn first_difference<T: std::fmt::Debug + PartialEq>(left: &[T], right: &[T]) -> Option<String> {
    let pairs = left.iter().map(Some).chain(std::iter::repeat(None));
    let others = right.iter().map(Some).chain(std::iter::repeat(None));
    let count = left.len().max(right.len());
    let mut pairs = pairs.zip(others).take(count).enumerate();
    let (at, (left, right)) = pairs.find(|(_, (left, right))| left != right)?;
    Some(format!("at {at} of {count}: {left:?} and {right:?}"))
}
