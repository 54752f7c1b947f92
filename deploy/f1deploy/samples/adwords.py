"""A seeded generator of AdWords data: one Parquet file for each table of ``adwords.sql``.

The number of clicks is the scale; everything else grows with it. The same seed and scale give the same files.
"""

import datetime
import random
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from f1common.encoding.proto import ProtoRegistry, compile_protos

TABLES = ("Customer", "Campaign", "AdGroup", "Creative", "AdGroupCreative", "Keyword", "AdClick")
"""In the order in which they can be loaded: parents first."""

BUSY_DAY = datetime.date(2013, 3, 23)
"""The day that the query of F1 section 8.2 asks for."""

_CLICKS_PER_CUSTOMER = 400
_COUNTRIES = (("US", "USD"), ("DE", "EUR"), ("FR", "EUR"), ("GB", "GBP"), ("JP", "JPY"), ("BR", "BRL"), ("IN", "INR"))
_CITIES = ("Springfield", "Neustadt", "Villeneuve", "Newport", "Sakura", "Santa Rosa", "Rampur")
_LANGUAGES = ("en", "de", "fr", "ja", "pt", "hi")
_REGIONS = ("north", "south", "east", "west", "centre")
_GOODS = ("shoes", "flowers", "books", "bikes", "coffee", "lamps", "tents", "guitars", "paint", "tea", "boats", "hats")
_WAYS = ("cheap", "fine", "used", "red", "large", "local", "fast", "organic", "custom", "vintage")
_FEATURES = ("sitelinks", "call_ads", "remarketing", "video", "shopping", "local_ads")
_STATUSES = ("STATUS_ENABLED", "STATUS_DISABLED", "STATUS_PENDING")


@dataclass(frozen=True, slots=True)
class Sources:
    """The schema's sources: DDL and .proto text."""

    ddl: str
    proto: str


def sources() -> Sources:
    """Return the sources of the sample's schema."""
    folder = files("f1deploy.samples")
    return Sources(
        folder.joinpath("adwords.sql").read_text(encoding="utf-8"),
        folder.joinpath("adwords.proto").read_text(encoding="utf-8"),
    )


def write_sources(directory: Path) -> tuple[Path, Path]:
    """Write the schema's sources into ``directory`` and return their paths."""
    found = sources()
    ddl, proto = directory / "adwords.sql", directory / "adwords.proto"
    ddl.write_text(found.ddl, encoding="utf-8")
    proto.write_text(found.proto, encoding="utf-8")
    return ddl, proto


def generate(directory: Path, *, clicks: int = 200_000, seed: int = 1) -> dict[str, Path]:
    """Write one Parquet file per table and return their paths by table name."""
    tables = make_tables(clicks=clicks, seed=seed)
    paths = {}
    for name in TABLES:
        paths[name] = directory / f"{name}.parquet"
        pq.write_table(tables[name], paths[name])
    return paths


def make_tables(*, clicks: int, seed: int) -> dict[str, pa.Table]:
    """Return the data of all tables."""
    rng = random.Random(f"adwords {seed} {clicks}")
    world = _World(rng, max(2, clicks // _CLICKS_PER_CUSTOMER))
    world.populate()
    world.click(clicks)
    return {name: pa.Table.from_pylist(world.rows[name], schema=_SCHEMAS[name]) for name in TABLES}


class _World:
    """Collects the rows of all tables."""

    def __init__(self, rng: random.Random, customers: int) -> None:
        self._rng = rng
        self._customers = customers
        self._registry = ProtoRegistry(compile_protos({"adwords.proto": sources().proto}))
        self._links: list[tuple[int, int]] = []
        self._last_group = 0
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}

    def populate(self) -> None:
        """Make customers and everything below them."""
        for customer in range(1, self._customers + 1):
            self._customer(customer)
            creatives = [customer * 100 + i for i in range(self._rng.randint(2, 6))]
            for creative in creatives:
                self.rows["Creative"].append(
                    {
                        "CustomerId": customer,
                        "CreativeId": creative,
                        "Headline": f"{self._words().capitalize()} for you",
                        "Language": self._rng.choice(_LANGUAGES),
                    }
                )
            for campaign in range(1, self._rng.randint(1, 4) + 1):
                self._campaign(customer, customer * 10 + campaign, creatives)

    def _customer(self, customer: int) -> None:
        rng = self._rng
        country, currency = rng.choice(_COUNTRIES)
        info = self._registry.message_class("adwords.CustomerInfo")()
        info.country_code, info.currency, info.time_zone = country, currency, f"zone/{country.lower()}"  # type: ignore[attr-defined]
        if rng.random() < 0.7:
            info.address.city = rng.choice(_CITIES)  # type: ignore[attr-defined]
            info.address.street = f"{rng.randint(1, 99)} {rng.choice(_GOODS).capitalize()} Lane"  # type: ignore[attr-defined]
        whitelist = self._registry.message_class("adwords.Whitelist")()
        for name in rng.sample(_FEATURES, rng.randint(0, 4)):
            feature = whitelist.feature.add()  # type: ignore[attr-defined]
            feature.feature = name
            feature.status = rng.randint(1, len(_STATUSES))
            feature.since = 1_300_000_000 + rng.randrange(60_000_000)
        self.rows["Customer"].append(
            {
                "CustomerId": customer,
                "Name": f"{self._words().title()} {customer}",
                "Info": info.SerializeToString(deterministic=True),
                "Whitelist": whitelist.SerializeToString(deterministic=True),
            }
        )

    def _campaign(self, customer: int, campaign: int, creatives: list[int]) -> None:
        rng = self._rng
        self.rows["Campaign"].append(
            {
                "CustomerId": customer,
                "CampaignId": campaign,
                "Name": f"{self._words()} {campaign}",
                "Budget": Decimal(rng.randint(100, 100_000)) / 100,
            }
        )
        for _ in range(rng.randint(1, 4)):
            self._last_group += 1
            place = {"CustomerId": customer, "CampaignId": campaign, "AdGroupId": self._last_group}
            self.rows["AdGroup"].append({**place, "Name": f"{self._words()} {self._last_group}"})
            for creative in rng.sample(creatives, rng.randint(1, len(creatives))):
                self.rows["AdGroupCreative"].append({**place, "CreativeId": creative})
                self._links.append((self._last_group, creative))
            for number in range(1, rng.randint(2, 12)):
                cost = Decimal(rng.randint(5, 500)) / 100
                self.rows["Keyword"].append({**place, "KeywordId": number, "Text": self._words(), "MaxCpc": cost})

    def click(self, clicks: int) -> None:
        """Make clicks: most in the weeks around the busy day, a tenth on it."""
        rng = self._rng
        for number in range(1, clicks + 1):
            group, creative = rng.choice(self._links)
            days = 0 if rng.random() < 0.1 else rng.randint(-30, 30)
            self.rows["AdClick"].append(
                {
                    "ClickId": number,
                    "AdGroupId": group,
                    "CreativeId": creative,
                    "Date": BUSY_DAY + datetime.timedelta(days=days),
                    "Region": rng.choice(_REGIONS),
                    "Clicks": rng.randint(1, 5),
                }
            )

    def _words(self) -> str:
        return f"{self._rng.choice(_WAYS)} {self._rng.choice(_GOODS)}"


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


_ID, _TEXT, _MONEY, _BYTES = pa.int64(), pa.string(), pa.decimal128(38, 9), pa.binary()
_SCHEMAS = {
    "Customer": _schema(CustomerId=_ID, Name=_TEXT, Info=_BYTES, Whitelist=_BYTES),
    "Campaign": _schema(CustomerId=_ID, CampaignId=_ID, Name=_TEXT, Budget=_MONEY),
    "AdGroup": _schema(CustomerId=_ID, CampaignId=_ID, AdGroupId=_ID, Name=_TEXT),
    "Creative": _schema(CustomerId=_ID, CreativeId=_ID, Headline=_TEXT, Language=_TEXT),
    "AdGroupCreative": _schema(CustomerId=_ID, CampaignId=_ID, AdGroupId=_ID, CreativeId=_ID),
    "Keyword": _schema(CustomerId=_ID, CampaignId=_ID, AdGroupId=_ID, KeywordId=_ID, Text=_TEXT, MaxCpc=_MONEY),
    "AdClick": _schema(ClickId=_ID, AdGroupId=_ID, CreativeId=_ID, Date=pa.date32(), Region=_TEXT, Clicks=pa.int64()),
}
