#!/usr/bin/env python3
"""The right answers for the hourly delays, calculated from the rules in ../README.md.

Independent of the components and of the host: another language, nothing shared, the standard library
only.

    calculate.py DEPARTURES --rows FOLDER      writes hours.jsonl and late.jsonl
    calculate.py DEPARTURES                    says how many departures were counted and how many late
"""

import argparse
import csv
import datetime
import json
import pathlib

HOUR = datetime.timedelta(hours=1)
# What a source does unless the pipeline says otherwise.
RECORDS_PER_WATERMARK = 1000
OUT_OF_ORDERNESS_BOUND = datetime.timedelta(minutes=1)


def moment(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")


def mean_minutes(delays):
    """In hundredths, rounded, halves away from zero."""
    total = sum(delays)
    hundredths, remainder = divmod(100 * abs(total), len(delays))
    if 2 * remainder >= len(delays):
        hundredths += 1
    return (hundredths if total >= 0 else -hundredths) / 100


class Hours:
    """The delays of each hour and airport, until the watermark is past the hour."""

    def __init__(self):
        self.open = {}
        self.rows = []

    def close(self, watermark):
        for start, airport in sorted(self.open):
            if watermark is None or start + HOUR <= watermark:
                delays = self.open.pop((start, airport))
                self.rows.append(
                    {
                        "airport": airport,
                        "hour": start.strftime("%Y-%m-%dT%H:%M:%SZ"),
                        "count": len(delays),
                        "mean_minutes": mean_minutes(delays),
                        "worst_minutes": max(delays),
                        "timing": "on_time",
                    }
                )


def calculate(records):
    """The rows of the hours in the order in which they are over, and the late departures."""
    hours, late = Hours(), []
    watermark, greatest = datetime.datetime.min, datetime.datetime.min
    for number, record in enumerate(records, start=1):
        if record["dep_time"] != "NA":
            scheduled = moment(record["time_hour"])
            greatest = max(greatest, scheduled)
            delay = int(record["dep_delay"])
            if scheduled < watermark:
                late.append(
                    {
                        "airport": record["origin"],
                        "flight": record["carrier"] + record["flight"],
                        "hour": record["time_hour"],
                        "delay_minutes": delay,
                    }
                )
            else:
                hours.open.setdefault((scheduled, record["origin"]), []).append(delay)
        if number % RECORDS_PER_WATERMARK == 0:
            watermark = max(watermark, greatest - OUT_OF_ORDERNESS_BOUND)
            hours.close(watermark)
    # The source is at its end, and so is time.
    hours.close(None)
    return hours.rows, late


def write_rows(path, rows):
    lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
    path.write_text("".join(lines))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("departures", type=pathlib.Path)
    arguments.add_argument("--rows", type=pathlib.Path, metavar="FOLDER")
    arguments = arguments.parse_args()

    with arguments.departures.open(encoding="utf-8", newline="") as file:
        hours, late = calculate(csv.DictReader(file))
    if arguments.rows:
        arguments.rows.mkdir(parents=True, exist_ok=True)
        write_rows(arguments.rows / "hours.jsonl", hours)
        write_rows(arguments.rows / "late.jsonl", late)
    counted = sum(row["count"] for row in hours)
    print(f"{counted} departures in {len(hours)} hours, {len(late)} late")


if __name__ == "__main__":
    main()
