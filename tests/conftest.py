"""How many examples hypothesis draws: few in `make check`, more in `make test`, many at night."""

from hypothesis import settings

settings.register_profile("test", max_examples=40, derandomize=True, database=None, deadline=None)
settings.register_profile("check", parent=settings.get_profile("test"), max_examples=8)
settings.register_profile(
    "night", max_examples=400, derandomize=False, print_blob=True, deadline=None
)
settings.load_profile("test")
