"""Days, dates and times."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from njax.demo.data.dice import Dice
from njax.demo.data.sample import Sample, question
from njax.demo.data.words import ORDINALS

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def sample(dice: Dice) -> Sample:
    return dice.pick(_KINDS)(dice)


def _question(dice: Dice, kind: str, ask: str, answer: str, thought: str) -> Sample:
    return question("calendar", kind, ask, answer, thought, dice.thinking)


def days_in(month: int, year: int) -> int:
    """Days of a month, 1 to 12."""
    return _LENGTHS[month - 1] + (month == 2 and is_leap(year))


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def spoken(day: datetime.date) -> str:
    """5 May 2031."""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def draw_date(dice: Dice) -> datetime.date:
    return datetime.date(2000, 1, 1) + datetime.timedelta(days=dice.whole(0, 50 * 365))


def _weekday(dice: Dice) -> Sample:
    start, after = dice.whole(0, 6), dice.chance(0.5)
    count = dice.whole(1, 40 if dice.thinking else 3)
    sign = 1 if after else -1
    weeks, rest = divmod(count, 7)
    walk = [DAYS[(start + sign * i) % 7] for i in range(rest + 1)]
    thought = f"{count} = {weeks} * 7 + {rest}\n{', '.join(walk)}"
    word = "after" if after else "before"
    unit = "day" if count == 1 else "days"
    ask = dice.pick(
        ("What day is {n} {u} {w} {d}?", "Which weekday comes {n} {u} {w} {d}?", "{n} {u} {w} {d}?")
    ).format(n=count, u=unit, w=word, d=DAYS[start])
    return _question(dice, "weekday", ask, walk[-1], thought)


def _next_day(dice: Dice) -> Sample:
    names, what = (DAYS, "day") if dice.chance(0.5) else (MONTHS, "month")
    at, after = dice.whole(0, len(names) - 1), dice.chance(0.5)
    answer = names[(at + (1 if after else -1)) % len(names)]
    ask = f"Which {what} comes {'after' if after else 'before'} {names[at]}?"
    return _question(dice, "next", ask, answer, f"{names[at]}: {answer}")


def _month_number(dice: Dice) -> Sample:
    at = dice.whole(0, 11)
    if dice.chance(0.5) and at < len(ORDINALS):
        ask, answer = f"Which is the {ORDINALS[at]} month of the year?", MONTHS[at]
        return _question(dice, "month", ask, answer, f"{at + 1} is {answer}")
    ask = f"Which number has the month {MONTHS[at]}?"
    return _question(dice, "month", ask, str(at + 1), f"{MONTHS[at]} is {at + 1}")


def _month_length(dice: Dice) -> Sample:
    month, year = dice.whole(1, 12), dice.whole(2000, 2060)
    name = MONTHS[month - 1]
    thought = f"{name} {year}"
    if month == 2:
        thought = leap_trace(year)
    ask = dice.pick(("How many days does {m} {y} have?", "How long is {m} {y}, in days?"))
    days = days_in(month, year)
    return _question(
        dice,
        "month_length",
        ask.format(m=name, y=year),
        f"{name} {year} has {days} days.",
        f"{thought}: {days} days",
    )


def leap_trace(year: int) -> str:
    last = year % 100
    if last == 0:
        verb = "is" if year % 400 == 0 else "is not"
        return f"{year} {verb} a multiple of 400"
    return f"{last} = 4 * {last // 4} + {last % 4}"


def _leap(dice: Dice) -> Sample:
    year = dice.whole(1900, 2100)
    ask = dice.pick(("Is {} a leap year?", "Is the year {} a leap year?")).format(year)
    answer = f"{'Yes' if is_leap(year) else 'No'}, {year} is {'' if is_leap(year) else 'not '}"
    return _question(dice, "leap", ask, answer + "a leap year.", leap_trace(year))


def _shift_date(dice: Dice) -> Sample:
    day = draw_date(dice)
    count = dice.whole(1, 40 if dice.thinking else 9)
    if not dice.thinking:
        day = day.replace(day=dice.whole(1, 15))
    after = dice.chance(0.6)
    result = day + datetime.timedelta(days=count if after else -count)
    word = "after" if after else "before"
    unit = "day" if count == 1 else "days"
    ask = dice.pick(
        ("What date is {n} {u} {w} {d}?", "Which date comes {n} {u} {w} {d}?", "{n} {u} {w} {d}?")
    ).format(n=count, u=unit, w=word, d=spoken(day))
    trace = _after_trace(day, count) if after else _before_trace(day, count)
    return _question(dice, "shift_date", ask, spoken(result), trace)


def _after_trace(day: datetime.date, count: int) -> str:
    month, year, number = day.month, day.year, day.day + count
    lines = [f"{day.day} + {count} = {number}"]
    while number > (length := days_in(month, year)):
        rest = number - length
        lines.append(f"{MONTHS[month - 1]} has {length} days: {number} - {length} = {rest}")
        number, month = rest, month + 1
        if month > 12:
            month, year = 1, year + 1
    return "\n".join([*lines, f"{number} {MONTHS[month - 1]} {year}"])


def _before_trace(day: datetime.date, count: int) -> str:
    month, year, number = day.month, day.year, day.day - count
    lines = [f"{day.day} - {count} = {number}"]
    while number < 1:
        month -= 1
        if month < 1:
            month, year = 12, year - 1
        length = days_in(month, year)
        lines.append(
            f"{MONTHS[month - 1]} has {length} days: {length} + {number}".replace("+ -", "- ")
        )
        number += length
        lines[-1] += f" = {number}"
    return "\n".join([*lines, f"{number} {MONTHS[month - 1]} {year}"])


def _same_month_weekday(dice: Dice) -> Sample:
    month, start, first = dice.whole(1, 12), dice.whole(0, 6), dice.whole(1, 28)
    last = dice.whole(1, 28)
    count, sign = abs(last - first), 1 if last >= first else -1
    weeks, rest = divmod(count, 7)
    walk = [DAYS[(start + sign * i) % 7] for i in range(rest + 1)]
    name = MONTHS[month - 1]
    ask = f"If {first} {name} is a {DAYS[start]}, what day is {last} {name}?"
    if sign > 0:
        thought = f"{last} - {first} = {count}\n"
    else:
        thought = f"{first} - {last} = {count} back\n"
    thought += f"{count} = {weeks} * 7 + {rest}\n{', '.join(walk)}"
    if not dice.thinking:
        return _weekday(dice)
    return _question(dice, "anchor", ask, walk[-1], thought)


def _write_date(dice: Dice) -> Sample:
    day = draw_date(dice)
    if dice.chance(0.5):
        ask, answer = f"Write {day.isoformat()} in words.", spoken(day)
        thought = f"{day.month:02d} is {MONTHS[day.month - 1]}"
    else:
        ask, answer = f"Write {spoken(day)} as YYYY-MM-DD.", day.isoformat()
        thought = f"{MONTHS[day.month - 1]} is {day.month:02d}"
    return _question(dice, "write_date", ask, answer, thought)


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


def _shift_time(dice: Dice) -> Sample:
    start = dice.whole(0, 24 * 60 - 1)
    count = dice.whole(1, 59) if dice.thinking else dice.pick((5, 10, 15, 20, 30))
    hours = dice.whole(1, 5) if dice.thinking and dice.chance(0.4) else 0
    after = dice.chance(0.6)
    sign = 1 if after else -1
    result = start + sign * (count + 60 * hours)
    hour, minute = divmod(start, 60)
    total = minute + sign * count
    lines = [f"{minute} {'+' if after else '-'} {count} = {total}"]
    carry = 0
    if total >= 60:
        lines.append(f"{total} - 60 = {total - 60}, one hour more")
        carry = 1
    elif total < 0:
        lines.append(f"60 - {-total} = {total + 60}, one hour less")
        carry = -1
    new_hour = hour + sign * hours + carry
    lines.append(f"hour {new_hour}" + ("" if 0 <= new_hour < 24 else f" is {new_hour % 24}"))
    length = f"{hours} hour{'s' * (hours > 1)} and " if hours else ""
    ask = dice.pick(("What time is it {l} {w} {t}?", "Which time is {l} {w} {t}?")).format(
        l=f"{length}{count} minute{'s' * (count > 1)}",
        w="after" if after else "before",
        t=_clock(start),
    )
    return _question(dice, "shift_time", ask, _clock(result), "\n".join(lines))


def _duration(dice: Dice) -> Sample:
    """From one time to a later one of the same day."""
    if not dice.thinking:
        return _shift_time(dice)
    start, end = sorted(dice.several(lambda: dice.whole(0, 24 * 60 - 1), 2))
    (h1, m1), (h2, m2) = divmod(start, 60), divmod(end, 60)
    hours, minutes = divmod(end - start, 60)
    lines = [f"{h2} - {h1} = {h2 - h1} hours"]
    if m2 >= m1:
        lines.append(f"{m2} - {m1} = {minutes} minutes")
    else:
        lines.append(f"{m2} is less than {m1}: {h2 - h1} - 1 = {hours} hours")
        lines.append(f"{m2 + 60} - {m1} = {minutes} minutes")
    ask = dice.pick(
        ("How long is it from {} to {}?", "How much time passes between {} and {}?")
    ).format(_clock(start), _clock(end))
    answer = f"{hours} hours and {minutes} minutes"
    return _question(dice, "duration", ask, answer, "\n".join(lines))


_KINDS: tuple[Callable[[Dice], Sample], ...] = (
    _weekday, _weekday, _next_day, _month_number, _month_length, _leap, _shift_date, _shift_date,
    _same_month_weekday, _write_date, _shift_time, _duration,
)  # fmt: skip
