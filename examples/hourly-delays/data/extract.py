#!/usr/bin/env python3
"""Makes the two files of departures of this example out of the full one.

    extract.py FLIGHTS

FLIGHTS is flights.csv of the nycflights13 data, or a zip archive with it. Of its 336,776 departures
those of one day of each month are taken, the 15th, and of these every second one, so that an hour still
has several departures; of its 19 columns those that the example needs:

    departures.csv          in the order of the full file, which has the months 1, 10, 11, 12, 2, 3, ...
    departures-sorted.csv   the same rows by time_hour; rows of one hour stay in the order of the file
"""

import argparse
import csv
import io
import pathlib
import zipfile

COLUMNS = ["time_hour", "origin", "carrier", "flight", "dep_time", "dep_delay"]
DAY = "15"


def read_rows(path):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            (member,) = archive.namelist()
            text = archive.read(member).decode("utf-8")
    else:
        text = path.read_text(encoding="utf-8")
    return csv.DictReader(io.StringIO(text, newline=""))


def write_rows(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, COLUMNS, extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("flights", type=pathlib.Path)
    arguments = arguments.parse_args()

    folder = pathlib.Path(__file__).parent
    rows = [row for row in read_rows(arguments.flights) if row["day"] == DAY][::2]
    write_rows(folder / "departures.csv", rows)
    # The sort is stable.
    rows.sort(key=lambda row: row["time_hour"])
    write_rows(folder / "departures-sorted.csv", rows)


if __name__ == "__main__":
    main()
