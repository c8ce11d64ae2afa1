"""The tables of `slaq.core.reliability`, made by `prospect_calibration`; not written by hand."""

# fmt: off
#: For a target loss, a share with an unknown end, and one with a known end.
CHANCES: tuple[tuple[float, ...], ...] = (
    ( -2.95,  -2.94,  -1.74,  -1.16,  -0.88,   0.04,   0.96,   2.30,   0.35,   0.12),
    ( -3.02,  -1.10,  -1.10,  -0.36,   0.14,   0.41,   0.41,   0.41,   0.97,   0.61),
    ( -4.73,  -2.00,  -1.39,  -0.76,  -0.11,   0.31,   0.31,   0.76,   1.08,   0.73),
)
#: For an unknown end, and a known one: the early time, then the late one.
TIMES: tuple[tuple[float, ...], ...] = (
    (  0.21,   0.00,  -1.59,   0.44,   0.00,   1.76),
    (  0.20,   0.32,  -2.05,   0.29,   0.66,  -0.00),
)
# fmt: on
