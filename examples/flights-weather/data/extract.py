#!/usr/bin/env python3
"""Makes the data of this example out of the full files.

    extract.py FLIGHTS WEATHER

FLIGHTS is flights.csv of the nycflights13 data, or a zip archive with it; WEATHER is its weather.csv, or
that file packed by gzip. Taken are four days of August, which have hours without an observation:

    departures.csv    flights of the 19th to the 22nd, in the order of the full file: by day, then by the
                      moment of departure, those that did not depart at the end of each day
    weather.csv       observations of the hours from the first to the last of these flights, by hour, then by
                      airport, as they would come in; the full file has one airport after the other
"""

import argparse
import csv
import gzip
import io
import pathlib
import zipfile

DEPARTURE_COLUMNS = ["time_hour", "origin", "carrier", "flight", "dep_time", "dep_delay"]
WEATHER_COLUMNS = ["time_hour", "origin", "temp", "wind_speed", "precip", "visib"]
MONTH, DAYS = "8", ["19", "20", "21", "22"]


def read_rows(path):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            (member,) = archive.namelist()
            content = archive.read(member)
    elif path.suffix == ".gz":
        content = gzip.decompress(path.read_bytes())
    else:
        content = path.read_bytes()
    return csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))


def write_rows(path, columns, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, columns, extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("flights", type=pathlib.Path)
    arguments.add_argument("weather", type=pathlib.Path)
    arguments = arguments.parse_args()

    folder = pathlib.Path(__file__).parent
    departures = [
        row
        for row in read_rows(arguments.flights)
        if row["month"] == MONTH and row["day"] in DAYS
    ]
    write_rows(folder / "departures.csv", DEPARTURE_COLUMNS, departures)

    hours = [row["time_hour"] for row in departures]
    weather = [
        row
        for row in read_rows(arguments.weather)
        if min(hours) <= row["time_hour"] <= max(hours)
    ]
    weather.sort(key=lambda row: (row["time_hour"], row["origin"]))
    write_rows(folder / "weather.csv", WEATHER_COLUMNS, weather)


if __name__ == "__main__":
    main()
