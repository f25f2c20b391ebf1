"""Windows of calendars by zoneinfo: a list of quotas with the seconds since the epoch at which their windows begin."""

import json
import sys
from datetime import date, datetime, timedelta
from calendar import monthrange
from zoneinfo import ZoneInfo, reset_tzpath

# The package tzdata, whatever the machine has.
reset_tzpath(to=[])

ZONES = [
    "UTC", "Europe/Zurich", "America/Sao_Paulo", "Pacific/Apia", "Australia/Lord_Howe", "Asia/Kathmandu",
    "Africa/Casablanca", "America/Havana", "America/St_Johns", "Asia/Tehran",
]
YEARS = range(2010, 2031)


def start(day, zone):
    """The first instant of a day, or of the next one that the zone has."""
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())


windows = []


def say(quota, starts):
    windows.append([quota, sorted(set(starts))])


for name in ZONES:
    zone = ZoneInfo(name)
    days = [date(YEARS[0], 1, 1) + timedelta(n) for n in range(366 * len(YEARS))]
    say(f"calendar 9/day {name}", (start(day, zone) for day in days))
    for number, weekday in [(0, "monday"), (6, "sunday")]:
        weeks = (start(day, zone) for day in days if day.weekday() == number)
        say(f"calendar 9/week {name} from {weekday}", weeks)
    for first in [1, 15, 31]:
        months = (date(year, month, min(first, monthrange(year, month)[1])) for year in YEARS for month in range(1, 13))
        say(f"calendar 9/month {name} from {first}", (start(day, zone) for day in months))
    say(f"calendar 9/year {name}", (start(date(year, 1, 1), zone) for year in YEARS))

json.dump(windows, sys.stdout)
