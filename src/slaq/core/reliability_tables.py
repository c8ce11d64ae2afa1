"""The tables of `slaq.core.reliability`, made by `prospect_calibration`; not written by hand."""

# fmt: off
#: For a target loss, a share with an unknown end, and one with a known end.
CHANCES: tuple[tuple[float, ...], ...] = (
    ( -3.09,  -2.55,  -1.65,  -1.15,  -0.98,   0.09,   0.75,   2.14,   0.38,   0.13,   0.00),
    ( -0.36,   0.92,   0.92,   1.22,   1.73,   1.98,   1.98,   2.25,   0.85,   0.78,  -1.04),
    ( -2.39,   0.04,   0.38,   0.88,   1.29,   1.78,   1.86,   2.83,   0.84,   0.82,  -0.95),
)
#: For an unknown end, and a known one: the early time, then the late one.
TIMES: tuple[tuple[float, ...], ...] = (
    (  0.21,   0.00,  -1.60,   0.45,   0.00,   1.74),
    (  0.18,   0.33,  -2.05,   0.29,   0.66,   0.00),
)
# fmt: on
