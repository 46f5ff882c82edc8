#!/usr/bin/env python3
"""The right answers for the flights example, calculated from the rules in ../README.md.

Independent of the components: another language, nothing shared, the standard library only.

    calculate.py DEPARTURES --rows FOLDER      writes the four expected files
    calculate.py DEPARTURES --digest FILE      writes counts, digests and the last row of each key

DEPARTURES is a file of lines, or a zip archive with one such file in it.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import re
import zipfile

HEADER = (
    b"year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
    b"carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
NAMES = HEADER.decode().split(",")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
STREAMS = ["statistics", "alerts", "cancelled", "rejected"]


def read_lines(path):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            (member,) = archive.namelist()
            content = archive.read(member)
    else:
        content = path.read_bytes()
    lines = content.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def is_time(text):
    if not TIME.fullmatch(text):
        return False
    try:
        moment = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return False
    return moment.year >= 1970 and moment.second < 60


def is_whole_number(text):
    return WHOLE_NUMBER.fullmatch(text) is not None and -(2**31) <= int(text) < 2**31


def reason_to_reject(line):
    try:
        fields = line.decode("utf-8").split(",")
    except UnicodeDecodeError:
        return "the line is not UTF-8"
    if len(fields) != 19:
        return f"expected 19 fields, found {len(fields)}"
    row = dict(zip(NAMES, fields))
    for name in ["carrier", "origin"]:
        if row[name] == "":
            return f"{name} is empty"
    if not is_time(row["time_hour"]):
        return f"time_hour is no UTC time: {row['time_hour']}"
    if row["dep_time"] != "NA" and not is_whole_number(row["dep_delay"]):
        return f"dep_delay is no whole number: {row['dep_delay']}"
    return None


def mean_minutes(delays_sum, count):
    """In hundredths, rounded, halves away from zero."""
    hundredths, remainder = divmod(100 * abs(delays_sum), count)
    if 2 * remainder >= count:
        hundredths += 1
    return (hundredths if delays_sum >= 0 else -hundredths) / 100


def calculate(lines, alert_minutes):
    """Rows of each stream, and the last row of each key."""
    rows = {stream: [] for stream in STREAMS}
    delays = {}
    last_rows = {}
    for line in lines:
        if line == HEADER:
            continue
        reason = reason_to_reject(line)
        if reason is not None:
            text = line.decode("utf-8", errors="replace")
            rows["rejected"].append({"reason": reason, "line": text})
            continue
        row = dict(zip(NAMES, line.decode().split(",")))
        key = f"{row['carrier']}@{row['origin']}"
        flight = {
            "key": key,
            "flight": row["carrier"] + row["flight"],
            "destination": row["dest"],
        }
        if row["dep_time"] == "NA":
            rows["cancelled"].append({**flight, "event_time": row["time_hour"]})
            continue
        delay = int(row["dep_delay"])
        count, total, worst = delays.get(key, (0, 0, delay))
        count, total, worst = count + 1, total + delay, max(worst, delay)
        delays[key] = (count, total, worst)
        last_rows[key] = {
            "key": key,
            "count": count,
            "mean_minutes": mean_minutes(total, count),
            "worst_minutes": worst,
            "event_time": row["time_hour"],
        }
        rows["statistics"].append(last_rows[key])
        if delay > alert_minutes:
            alert = {**flight, "delay_minutes": delay, "event_time": row["time_hour"]}
            rows["alerts"].append(alert)
    return rows, [last_rows[key] for key in sorted(last_rows)]


def json_line(row):
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def digest(line_count, files, last_rows):
    """JSON with one line for each file and each key, to be read by people too."""
    files = ",\n".join(
        f"  {json.dumps(name)}: "
        + json.dumps(
            {"rows": content.count(b"\n"), "sha256": hashlib.sha256(content).hexdigest()}
        )
        for name, content in files.items()
    )
    last_rows = ",\n".join("  " + json_line(row) for row in last_rows)
    return (
        f'{{\n "lines": {line_count},\n "files": {{\n{files}\n }},\n'
        f' "last_rows": [\n{last_rows}\n ]\n}}\n'
    )


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("departures", type=pathlib.Path)
    arguments.add_argument("--alert-minutes", type=int, default=180)
    arguments.add_argument("--rows", type=pathlib.Path, metavar="FOLDER")
    arguments.add_argument("--digest", type=pathlib.Path, metavar="FILE")
    arguments = arguments.parse_args()

    lines = read_lines(arguments.departures)
    rows, last_rows = calculate(lines, arguments.alert_minutes)
    files = {}
    for stream in STREAMS:
        content = "".join(json_line(row) + "\n" for row in rows[stream]).encode("utf-8")
        files[f"{stream}.jsonl"] = content
    if arguments.rows:
        for name, content in files.items():
            (arguments.rows / name).write_bytes(content)
    if arguments.digest:
        arguments.digest.write_text(digest(len(lines), files, last_rows))


if __name__ == "__main__":
    main()
