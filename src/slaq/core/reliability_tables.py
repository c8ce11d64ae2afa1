"""The tables of `slaq.core.reliability`, made by `prospect_calibration`; not written by hand."""

# fmt: off
#: For a target loss, a share with an unknown end, and one with a known end.
CHANCES: tuple[tuple[float, ...], ...] = (
    ( -2.95,  -2.94,  -1.74,  -1.16,  -0.88,   0.04,   0.96,   2.29,   0.35,   0.12,   0.00),
    ( -0.03,   0.86,   0.86,   1.23,   1.64,   1.98,   1.98,   2.21,   0.84,   0.78,  -1.03),
    ( -2.22,  -0.02,   0.17,   0.71,   1.23,   1.65,   1.76,   2.66,   0.88,   0.83,  -0.92),
)
#: For an unknown end, and a known one: the early time, then the late one.
TIMES: tuple[tuple[float, ...], ...] = (
    (  0.21,   0.00,  -1.59,   0.44,   0.00,   1.76),
    (  0.20,   0.32,  -2.05,   0.29,   0.66,  -0.00),
)
# fmt: on
