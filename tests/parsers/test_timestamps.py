from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.lineformats import STAMP_FORMS
from parsers.records import Source, SourceKind
from parsers.timestamps import READERS, SECOND, StampContext, context_of, read_stamp

MS, US = 10**6, 10**3
REFERENCE = datetime(2031, 3, 1, tzinfo=UTC)


def ns(year: int, month: int, day: int, *clock: int, micro: int = 0) -> int:
    hour, minute, second = (*clock, 0, 0, 0)[:3]
    return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()) * SECOND + micro * US


def context(reference: datetime | None = REFERENCE) -> StampContext:
    return StampContext(None if reference is None else int(reference.timestamp()) * SECOND)


def test_there_is_a_reader_for_each_form_that_a_prefix_may_ask_for():
    assert READERS.keys() == STAMP_FORMS


@pytest.mark.parametrize(
    ("form", "text", "expected", "resolution", "zoned"),
    [
        ("iso", "2031-02-03 04:05:06", ns(2031, 2, 3, 4, 5, 6), SECOND, False),
        ("iso", "2031-02-03 04:05:06,789", ns(2031, 2, 3, 4, 5, 6, micro=789_000), MS, False),
        ("iso", "2031-02-03T04:05:06.5", ns(2031, 2, 3, 4, 5, 6, micro=500_000), 10**8, False),
        ("iso", "2031-02-03T04:05:06.123456789Z", ns(2031, 2, 3, 4, 5, 6, micro=123_456) + 789, 1, True),
        ("iso", "2031-02-03T04:05:06,123456+01:00", ns(2031, 2, 3, 3, 5, 6, micro=123_456), US, True),
        ("iso", "2031-02-03T04:05:06-0730", ns(2031, 2, 3, 11, 35, 6), SECOND, True),
        ("iso", "2021/03/04 05:06:07", ns(2021, 3, 4, 5, 6, 7), SECOND, False),
        ("slash", "2020/10/07 09:22:10", ns(2020, 10, 7, 9, 22, 10), SECOND, False),
        ("elastic", "2031-02-03_04:05:06", ns(2031, 2, 3, 4, 5, 6), SECOND, False),
        ("us", "10/07/2020 09:22:10", ns(2020, 10, 7, 9, 22, 10), SECOND, False),
        ("us", "05/22/23 09:12:51", ns(2023, 5, 22, 9, 12, 51), SECOND, False),
        ("asctime", "Tue Feb  3 04:05:06 2031", ns(2031, 2, 3, 4, 5, 6), SECOND, False),
        ("asctime", "Fri Jan 05 04:41:52 2024", ns(2024, 1, 5, 4, 41, 52), SECOND, False),
        ("epoch", "1927000000", 1_927_000_000 * SECOND, SECOND, True),
        ("epoch", "1927000000.123456", 1_927_000_000 * SECOND + 123_456 * US, US, True),
        ("epoch", "1927000000123", 1_927_000_000 * SECOND + 123 * MS, MS, True),
        ("epoch", "1927000000123456789", 1_927_000_000_123_456_789, 1, True),
    ],
)
def test_a_full_stamp_is_read_to_the_digit(form, text, expected, resolution, zoned):
    stamp = read_stamp(form, text, context())
    assert stamp is not None
    assert (stamp.ns, stamp.resolution_ns, stamp.zoned) == (expected, resolution, zoned)
    assert stamp.year_known
    assert not stamp.boot


@pytest.mark.parametrize(
    ("form", "text", "expected", "resolution"),
    [
        ("glog", "0203 04:05:06.789000", ns(2031, 2, 3, 4, 5, 6, micro=789_000), US),
        ("c10", "203 04:05:06", ns(2031, 2, 3, 4, 5, 6), SECOND),
        ("c10", "1003 18:37:01", ns(2030, 10, 3, 18, 37, 1), SECOND),
        ("syslog", "Feb 03 04:05:06", ns(2031, 2, 3, 4, 5, 6), SECOND),
        ("syslog", "Feb  3 04:05:06.000123", ns(2031, 2, 3, 4, 5, 6, micro=123), US),
        ("short", "02-03 04:05:06", ns(2031, 2, 3, 4, 5, 6), SECOND),
    ],
)
def test_a_stamp_without_a_year_gets_the_one_nearest_to_the_reference(form, text, expected, resolution):
    stamp = read_stamp(form, text, context())
    assert stamp is not None
    assert (stamp.ns, stamp.resolution_ns, stamp.year_known) == (expected, resolution, False)


def test_a_three_digit_c10_date_ends_in_its_day():
    stamp = read_stamp("c10", "203 04:05:06", context())
    assert stamp is not None
    assert stamp.ns == ns(2031, 2, 3, 4, 5, 6)  # 3 February, not 20 March


def test_new_year_between_stamp_and_reference_is_handled_both_ways():
    january = read_stamp("c10", "1231 23:59:59", context(datetime(2031, 1, 1, tzinfo=UTC)))
    december = read_stamp("glog", "0101 00:00:01.000000", context(datetime(2030, 12, 31, tzinfo=UTC)))
    assert january is not None
    assert january.ns == ns(2030, 12, 31, 23, 59, 59)
    assert december is not None
    assert december.ns == ns(2031, 1, 1, 0, 0, 1)


def test_the_29th_of_february_falls_into_a_leap_year():
    stamp = read_stamp("short", "02-29 00:00:00", context())
    assert stamp is not None
    assert stamp.ns == ns(2032, 2, 29)


def test_a_time_of_day_falls_on_the_day_nearest_to_the_reference():
    late = read_stamp("clock", "23:59:00", context(datetime(2031, 3, 1, 0, 1, tzinfo=UTC)))
    same = read_stamp("clock", "00:00:30,250", context(datetime(2031, 3, 1, 0, 1, tzinfo=UTC)))
    assert late is not None
    assert late.ns == ns(2031, 2, 28, 23, 59)
    assert same is not None
    assert (same.ns, same.resolution_ns) == (ns(2031, 3, 1, 0, 0, 30, micro=250_000), MS)


def test_without_a_reference_year_less_stamps_keep_their_order():
    nothing = context(None)
    first, second = read_stamp("c10", "203 04:05:06", nothing), read_stamp("c10", "229 00:00:00", nothing)
    assert first is not None
    assert second is not None
    assert first.ns < second.ns
    assert not first.year_known


def test_a_time_alone_is_of_the_day_on_which_the_log_was_written_last():
    written = ns(2031, 3, 1, 0, 1)
    log = Source(0, "a.log", None, SourceKind.LOG, mtime_ns=written)
    assert read_stamp("clock", "23:59:00", context_of(log)).ns == ns(2031, 2, 28, 23, 59)
    assert read_stamp("clock", "00:00:30", context_of(log)).ns == ns(2031, 3, 1, 0, 0, 30)
    told = ns(2031, 2, 3, 4, 5)
    assert read_stamp("clock", "04:00:00", context_of(log, told)).ns == ns(2031, 2, 3, 4, 0)


def test_seconds_since_boot_are_no_wall_clock():
    stamp = read_stamp("boot", "12345.678901", context())
    assert stamp is not None
    assert (stamp.ns, stamp.resolution_ns, stamp.boot) == (12_345_678_901_000, US, True)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("iso", "2031-02-30 04:05:06"),
        ("iso", "2031-02-03 24:05:06"),
        ("iso", "2031-02-03 04:05:61"),
        ("iso", "2031-02-03 04:05:+6"),
        ("iso", "2031-02-03 04:05:06."),
        ("iso", "2031-02-03 04:05:06.1234567890"),
        ("iso", "2031-02-03 04:05:06 trailing"),
        ("iso", "2031/02-03 04:05:06"),
        ("iso", "9999-12-31 23:59:59"),
        ("c10", "1303 18:37:01"),
        ("c10", "100 18:37:01"),
        ("glog", "0230 04:05:06.789000"),
        ("syslog", "Foo 03 04:05:06"),
        ("epoch", "99999999999999999999999"),
        ("epoch", "1.2.3"),
        ("boot", "9" * 30),
        ("clock", "09:22"),
        ("us", "13/07/2020 09:22:10"),
    ],
)
def test_what_names_no_instant_is_no_stamp(form, text):
    assert read_stamp(form, text, context()) is None


@given(st.sampled_from(sorted(STAMP_FORMS)), st.text(st.sampled_from("0123456789 :.-/,TZ+FebTueم٣²\n"), max_size=32))
def test_hostile_text_gives_none_or_a_stamp_and_never_raises(form, text):
    stamp = read_stamp(form, text, context())
    assert stamp is None or stamp.resolution_ns >= 1


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)))  # noqa: DTZ001 - strategy bounds are naive
def test_iso_agrees_with_the_standard_library(when):
    stamp = read_stamp("iso", when.isoformat(sep=" ", timespec="microseconds"), context())
    assert stamp is not None
    assert stamp.ns == (when.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * US


def test_the_caches_stay_bounded():
    shared = context()
    for day in range(1, 29):
        for hour in range(24):
            for minute in range(0, 60, 5):
                read_stamp("iso", f"2031-02-{day:02} {hour:02}:{minute:02}:00", shared)
    assert len(shared.minutes) <= 4096
