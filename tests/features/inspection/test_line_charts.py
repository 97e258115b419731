from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mt_cli.features.inspection.line_charts import Chart, Curve, short_number

NUMBERS = st.floats(-1e9, 1e9)


@given(st.lists(NUMBERS, min_size=1, max_size=50))
def test_a_curve_lies_within_the_picture_and_higher_values_lie_higher(values):
    chart = Chart("title", [Curve("name", list(enumerate(values, start=1)), 0)])
    places = [(chart.x(step), chart.y(value)) for step, value in chart.curves[0].points]
    assert all(chart.left <= x <= chart.width - chart.right for x, _ in places)
    assert all(chart.top <= y <= chart.height - chart.bottom for _, y in places)
    assert sorted(x for x, _ in places) == [x for x, _ in places]
    ordered = sorted(zip(values, places, strict=True))
    assert [y for _, (_, y) in ordered] == sorted((y for _, (_, y) in ordered), reverse=True)


@given(st.lists(NUMBERS, min_size=1, max_size=5))
def test_the_values_of_a_scale_are_few_and_equally_spaced(values):
    scale = Chart("title", [Curve("name", list(enumerate(values)), 0)]).values
    distances = [after - before for before, after in pairwise(scale)]
    assert 2 <= len(scale) <= 8 and max(distances) - min(distances) <= 1e-6 * max(distances)


@given(st.integers(1, 5000))
def test_a_long_curve_keeps_its_last_point_and_at_most_400(number):
    points = [(step, float(step)) for step in range(number)]
    (kept,) = Chart("title", [Curve("name", points, 0)]).curves
    assert len(kept.points) <= 400 and kept.points[-1] == points[-1]
    assert number > 400 or kept.points == points


def test_numbers_on_an_axis_are_short():
    numbers = {0.25: "0.25", 300: "300", 20_000: "20k", 1_500_000: "1.5M", 0.1 + 0.2: "0.3"}
    assert {number: short_number(number) for number in numbers} == numbers
