#!/usr/bin/env python3
"""The right answers for flights and their weather, calculated from the rules in ../README.md.

Independent of the components and of the host: another language, nothing shared, the standard library
only.

    calculate.py DEPARTURES WEATHER > joined.jsonl

Rows are sorted as text, as their order is not part of the rules. What they contain says standard error.
"""

import argparse
import csv
import datetime
import json
import pathlib
import sys

# What the pipeline file says of the source of departures.
OUT_OF_ORDERNESS_BOUND = datetime.timedelta(days=1)


def read_rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def number(text):
    return None if text == "NA" else float(text)


def moment(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")


def join(departures, observations):
    weather = {}
    for row in observations:
        weather.setdefault(
            (row["origin"], row["time_hour"]),
            {
                "temperature_f": number(row["temp"]),
                "wind_mph": number(row["wind_speed"]),
                "precipitation_inches": number(row["precip"]),
                "visibility_miles": number(row["visib"]),
            },
        )
    for row in departures:
        departed = row["dep_time"] != "NA"
        yield {
            "airport": row["origin"],
            "flight": row["carrier"] + row["flight"],
            "hour": row["time_hour"],
            "delay_minutes": int(row["dep_delay"]) if departed else None,
            "weather": weather.get((row["origin"], row["time_hour"])),
        }


def greatest_disorder(departures):
    """How far a departure is behind the greatest event time before it."""
    greatest, disorder = datetime.datetime.min, datetime.timedelta(0)
    for row in departures:
        greatest = max(greatest, moment(row["time_hour"]))
        disorder = max(disorder, greatest - moment(row["time_hour"]))
    return disorder


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("departures", type=pathlib.Path)
    arguments.add_argument("weather", type=pathlib.Path)
    arguments = arguments.parse_args()

    departures = read_rows(arguments.departures)
    disorder = greatest_disorder(departures)
    if disorder > OUT_OF_ORDERNESS_BOUND:
        sys.exit(f"departures are out of order by {disorder}: some would be late")
    rows = list(join(departures, read_rows(arguments.weather)))
    without = sum(row["weather"] is None for row in rows)
    cancelled = sum(row["delay_minutes"] is None for row in rows)
    print(
        f"{len(rows)} flights, {cancelled} of them cancelled, {without} without weather, "
        f"out of order by up to {disorder}",
        file=sys.stderr,
    )
    lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
    sys.stdout.write("".join(sorted(lines)))


if __name__ == "__main__":
    main()
