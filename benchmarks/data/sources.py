"""The table of data sets: one `SourceFile` per file, its `Remote` origins, and `find`, which looks a set up."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import pandas as pd

from benchmarks.data import convert_openml, convert_uci
from dpadapt.datasets.domains import Data, Source, Status


@dataclass(frozen=True)
class UciArchive:
    """A zip file of the UCI archive, and the function that converts its bytes to our columns."""

    path: str
    convert: Callable[[bytes], Data] = field(repr=False)
    note: str = ""
    status: Status = "complete"

    def __str__(self) -> str:
        """Return the name of the origin, for messages."""
        return f"UCI archive {self.path}"


@dataclass(frozen=True)
class OpenML:
    """A data set of OpenML, and the function that converts its frame to our columns."""

    data_id: int
    convert: Callable[[pd.DataFrame], Data] = field(repr=False)
    note: str = ""
    status: Status = "complete"

    def __str__(self) -> str:
        """Return the name of the origin, for messages."""
        return f"OpenML data set {self.data_id}"


@dataclass(frozen=True)
class SklearnCalifornia:
    """California housing as scikit-learn fetches it, and the function that converts it to our columns."""

    convert: Callable[[pd.DataFrame], Data] = field(repr=False)
    note: str = ""
    status: Status = "complete"

    def __str__(self) -> str:
        """Return the name of the origin, for messages."""
        return "scikit-learn's fetch_california_housing"


Remote: TypeAlias = UciArchive | OpenML | SklearnCalifornia


@dataclass(frozen=True)
class SourceFile(Source):
    """A `Source` with the file of this collection and the places to download the set from.

    Parameters
    ----------
    name, part, what, status, note, origin, licence : str
        As for `Source`; `load(name)` returns the first part. Status and note are those of the compact file.
    file : str
        File name below the folder `<name>`; empty where there is no compact file.
    sha256 : str
        Checksum of the compact file; empty where there is none.
    remotes : tuple of Remote
        Original sources, tried in this order when no file is on disk. Downloads are the full set unless noted.
    """

    file: str = ""
    sha256: str = ""
    remotes: tuple[Remote, ...] = ()


# Checksums are those of the compact files.

_CIFAR = "Krizhevsky 2009"
_AMAZON = "Blitzer et al. 2007"
_WIKITEXT = "Merity et al. 2016"

IMAGES_AND_TEXT: tuple[SourceFile, ...] = (
    SourceFile(
        name="mnist",
        part="images",
        file="mnist.npz",
        sha256="d2fc8bab397b964798b4c839bd1e705e10a4bb65f4d56a88002229d145796751",
        what="60,000 + 10,000 handwritten digits, 28 x 28 uint8: X_train, y_train, X_test, y_test",
        status="complete",
        note="All images.",
        origin="LeCun, Cortes, Burges",
        licence="not stated by the publisher",
        remotes=(OpenML(554, convert_openml.mnist),),
    ),
    SourceFile(
        name="fashion_mnist",
        part="images",
        file="fashion_mnist_20k.npz",
        sha256="7922e133c74a3ead6bdfa4ef8b18ac3301b9221c5af90d12c0e016bce130e2f4",
        what="10,000 + 10,000 images of clothes, 28 x 28 uint8: X_train, y_train, X_test, y_test",
        status="partial",
        note="The first 10,000 of 60,000 training images, and all test images.",
        origin="Xiao, Rasul, Vollgraf 2017 (Zalando)",
        licence="MIT",
        remotes=(OpenML(40996, convert_openml.mnist),),
    ),
    SourceFile(
        name="cifar10",
        part="images",
        file="cifar10_5k.npz",
        sha256="9ebbfab8eab887fc4aa30bd111888962edfa278f7eb5e2a771a18fac5992dd3d",
        what="4,000 + 1,000 photographs, 32 x 32 x 3 uint8: X_train, y_train, X_test, y_test, classes",
        status="partial",
        note="4,000 of 50,000 training and 1,000 of 10,000 test images, from a JPEG-compressed copy.",
        origin=_CIFAR,
        licence="not stated by the publisher",
        remotes=(OpenML(40927, convert_openml.cifar10),),
    ),
    SourceFile(
        name="cifar10",
        part="features",
        file="effnet_lite0_128px.npz",
        sha256="0bd6013425212512524a9891ffb3964685b0f5fc5845cfc840a0fbeb2da8c331",
        what="8,000 + 2,000 x 1,280 float16 EfficientNet-Lite0 (ImageNet) features: F_train, y_train, F_test, y_test",
        status="partial",
        note="8,000 of 50,000 training and 2,000 of 10,000 test images; the first 4,000 and 1,000 are those of "
        "part 'images'.",
        origin=f"{_CIFAR}; encoder weights Apache-2.0",
        licence="not stated by the publisher of the images",
    ),
    SourceFile(
        name="office_caltech10",
        part="surf",
        file="surf_l10.npz",
        sha256="38a258fdbb1c8c6fb1e6bb2542e54975e756336e073230474f1658136574cad9",
        what="amazon 958, webcam 295, dslr 157, caltech10 1,123 images x 800 SURF counts: <domain>_X, <domain>_y",
        status="stand-in",
        note="The complete Office-Caltech10 (10 classes), in place of Office-31 (31 classes).",
        origin="Gong et al. 2012, Saenko et al. 2010",
        licence="not stated by the publisher",
    ),
    SourceFile(
        name="amazon_reviews",
        part="counts",
        file="bow5000.npz",
        sha256="7813f5615586d7ad47ed3702343753c9721d0dbea710fd2ee09dbc8d6f1ae655",
        what="4 domains x 5,000 word and word-pair counts: <domain>_<train|test>_{data,indices,indptr,y}",
        status="complete",
        note="Multi-domain sentiment, the 5,000 counts of Chen et al. 2012.",
        origin=f"{_AMAZON}, Chen et al. 2012",
        licence="research use",
    ),
    SourceFile(
        name="amazon_reviews",
        part="text",
        file="labelled_text.parquet",
        sha256="176c8a91295ddc0c13e5206e8506437121697e79dda3d48763a98a09c687d34c",
        what="8,000 reviews x 5: domain, label, rating (1, 2, 4, 5 stars), title, text",
        status="complete",
        note="The 2,000 labelled reviews of each of the four domains.",
        origin=_AMAZON,
        licence="research use",
    ),
    SourceFile(
        name="wikitext2",
        part="valid",
        file="valid.txt.gz",
        sha256="a92a2da4418be833a842d30edb1711a363eaa9194c4b4e4d0953daf9af231e8f",
        what="213,886 tokens of Wikipedia articles",
        status="partial",
        note="The validation split; the training split is not part of this collection.",
        origin=_WIKITEXT,
        licence="CC BY-SA 3.0",
    ),
    SourceFile(
        name="wikitext2",
        part="test",
        file="test.txt.gz",
        sha256="a7f70ace9020b0d6daf21ea9f7666bc824aae4e8a3d5d7a1bd7820b2110da32d",
        what="241,211 tokens of Wikipedia articles",
        status="partial",
        note="The test split; the training split is not part of this collection.",
        origin=_WIKITEXT,
        licence="CC BY-SA 3.0",
    ),
)


_CC_BY = "CC BY 4.0"
_WIND = "Haslett & Raftery 1989, StatLib; redistributed in the R package gstat"
_GAS = "UCI 270, Vergara et al. 2012, Rodriguez-Lujan et al. 2014"

TABLES: tuple[SourceFile, ...] = (
    SourceFile(
        name="wind",
        part="speeds",
        file="wind.parquet",
        sha256="a3dc1e5fbc58ba2b55fca06a7b118268b7c6203a1e994489c82c54b0c97a9408",
        what="6,574 days x 12 Irish stations, daily mean wind speed in knots, 1961-78",
        status="complete",
        note="All days.",
        origin=_WIND,
        licence="GPL-2+ (gstat)",
        remotes=(OpenML(503, convert_openml.wind),),
    ),
    SourceFile(
        name="wind",
        part="stations",
        file="stations.csv",
        sha256="f3c31909f534ff34665e8504561f109eeaa57af443f859d521d816460e52e020",
        what="12 stations x 5: name, code, position, mean wind",
        status="complete",
        note="All stations.",
        origin=_WIND,
        licence="GPL-2+ (gstat)",
    ),
    SourceFile(
        name="gas",
        part="batches",
        file="gas_batches_1-6_8_9.parquet",
        sha256="46c5c2cd1128ab3b27e7cd4733979155c00992d34070febcadda81bd5ebc118d",
        what="6,697 measurements x 131: batch, gas, concentration (ppmv), 128 sensor features",
        status="partial",
        note="8 of 10 batches (7 and 10 are missing), 6,697 of 13,910 rows.",
        origin=_GAS,
        licence=_CC_BY,
        remotes=(
            UciArchive(
                "static/public/270/gas+sensor+array+drift+dataset+at+different+concentrations.zip", convert_uci.gas
            ),
        ),
    ),
    SourceFile(
        name="gas",
        part="ethanol",
        file="ethanol_batches_7_10_unlabelled_batch.parquet",
        sha256="4693b83b43c266008038abeb89994f1c5656e7ecf79e2a8cf37c9cc07e73a6fc",
        what="1,249 Ethanol measurements x 129: concentration, 128 sensor features",
        status="partial",
        note="Ethanol rows of batches 7 and 10 without the batch number, recovered from a rescaled copy "
        "(about 5 significant digits).",
        origin=_GAS,
        licence=_CC_BY,
    ),
    SourceFile(
        name="news",
        part="articles",
        file="online_news_partial.parquet",
        sha256="2bbf63d9dee99e5720dee19eab7adc30a13e5ecf09e4f9cc3e5ef845d7653216",
        what="25,238 Mashable articles x 62: timedelta, 58 features, shares, random_sample, contiguous_head",
        status="partial",
        note="25,238 of 39,644 articles; the 20,412 rows with random_sample are about uniform over the whole set.",
        origin="UCI 332, Fernandes et al. 2015",
        licence=_CC_BY,
        remotes=(UciArchive("static/public/332/online+news+popularity.zip", convert_uci.news),),
    ),
    SourceFile(
        name="slice",
        part="slices",
        file="slice_two_patients.parquet",
        sha256="aeb7c54f1cfd42ce20c2a1a799ab6175c337a215eaad220007ba56de3502953a",
        what="682 CT slices x 386: patientId, 384 histogram features, reference (position on the body axis)",
        status="partial",
        note="Two patients only: 682 of 53,500 rows (patient 0, and the first 99 slices of patient 1).",
        origin="UCI 206, Graf et al. 2011",
        licence=_CC_BY,
        remotes=(UciArchive("static/public/206/relative+location+of+ct+slices+on+axial+axis.zip", convert_uci.slices),),
    ),
    SourceFile(
        name="airline_nyc13",
        part="nyc13",
        file="flights.parquet",
        sha256="8bb981310029338934c18335e729bd66672867cc42a260c38105fdac94c641be",
        what="336,776 flights out of New York 2013 x 27, with plane and hourly weather",
        status="stand-in",
        note="In place of the Airline data of Ikonomovska 2009 (Chicago O'Hare, 2008).",
        origin="US BTS, nycflights13",
        licence="public domain, CC0",
    ),
    SourceFile(
        name="airline_nyc13",
        part="openml",
        what="10,000,000 US flights x 12: schedule, carrier, origin, destination, distance, departure delay",
        status="stand-in",
        note="Not only Chicago O'Hare, not only 2008, without arrival delay and weather.",
        origin="US BTS; OpenML Airlines_DepDelay_10M, after Ikonomovska 2009",
        licence="public domain",
        remotes=(OpenML(42728, convert_openml.airline, note="A large download: 10 million rows.", status="stand-in"),),
    ),
    SourceFile(
        name="adult",
        part="census",
        file="adult.parquet",
        sha256="b020a5beed0929560c5df4bdc51108696d36d6b1fe9cebbf04dfbf73af3ca4c3",
        what="48,842 people x 16: 14 features, income, split (train 32,561, test 16,281)",
        status="complete",
        note="All rows; ? = missing.",
        origin="UCI 2, Kohavi and Becker 1996",
        licence=_CC_BY,
        remotes=(
            UciArchive("static/public/2/adult.zip", convert_uci.adult),
            OpenML(1590, convert_openml.adult, note="Train and test rows are not marked."),
        ),
    ),
    SourceFile(
        name="german",
        part="south",
        file="south_german_credit.parquet",
        sha256="01f347811f6c06bda00c8bbdc0b886479c2e29e1755000170b22250b09961ae4",
        what="1,000 debtors x 21 integer codes; credit_risk 1 good (700), 0 bad (300)",
        status="complete",
        note="South German Credit, with the corrected coding.",
        origin="UCI 573 and 522, Groemping 2019",
        licence=_CC_BY,
        remotes=(
            UciArchive("static/public/573/south+german+credit+update.zip", convert_uci.south_german),
            UciArchive("static/public/522/south+german+credit.zip", convert_uci.south_german),
        ),
    ),
    SourceFile(
        name="german",
        part="statlog",
        file="statlog_german.parquet",
        sha256="846eebef1f1d36fda7b8121a677ec3b584a81e9694bbc8dea35816a152072add",
        what="1,000 debtors x 21 codes A11 .. A202; credit_class 1 good, 2 bad",
        status="complete",
        note="Statlog German Credit, known to be miscoded in places; prefer part 'south'.",
        origin="UCI 144, Hofmann 1994",
        licence=_CC_BY,
        remotes=(OpenML(31, convert_openml.statlog_german),),
    ),
    SourceFile(
        name="accent",
        part="mfcc",
        file="accent.parquet",
        sha256="c46048e7ad925c51bf64bf8f97f926152ab25651e7f80a59f622851e194a974c",
        what="329 spoken words x 13: language, 12 cepstral coefficients",
        status="complete",
        note="All rows: US 165, UK 45, FR 30, GE 30, IT 30, ES 29.",
        origin="UCI 518, Fokoue 2020",
        licence=_CC_BY,
        remotes=(UciArchive("static/public/518/speaker+accent+recognition.zip", convert_uci.accent),),
    ),
    SourceFile(
        name="superconductivity",
        part="materials",
        file="superconductivity.parquet",
        sha256="5e677d2b2c8b389aad13f972e711d6beae2c8ed2a682a778af4d5632635b0f0b",
        what="21,263 materials x 79: number of elements, 76 features, critical_temp, quarter",
        status="partial",
        note="All rows in shuffled order, 76 of 81 features; the number of elements is derived from the entropies.",
        origin="UCI 464, Hamidieh 2018",
        licence=_CC_BY,
        remotes=(
            UciArchive("static/public/464/superconductivty+data.zip", convert_uci.superconductivity),
            OpenML(44964, convert_uci.superconductivity_columns),
        ),
    ),
    SourceFile(
        name="california_housing",
        part="districts",
        file="housing.parquet",
        sha256="e1e5dc9209afe4cfe6d8dfa0a1784d453304b948c933beae3f6ff98c8494875d",
        what="20,640 districts x 10, with ocean_proximity; total_bedrooms has missing values",
        status="complete",
        note="All rows.",
        origin="Pace & Barry 1997",
        licence="not stated by the publisher",
        remotes=(SklearnCalifornia(convert_openml.california, note="Without ocean_proximity.", status="partial"),),
    ),
)


def _fresh(part: str, *, package: str, sha256: str, what: str) -> SourceFile:
    """Return one of the transfer tasks: public rows `Xs`, `ys` and private rows `Xt`, `yt`."""
    return SourceFile(
        name="fresh",
        part=part,
        file=f"{part}.npz",
        sha256=sha256,
        what=what,
        status="partial",
        note="Prepared from the package's table: indicators of categories, missing values filled by medians.",
        origin=f"R package {package}",
        licence="see R packages",
    )


FRESH: tuple[SourceFile, ...] = (
    _fresh(
        "airfare_2000",
        package="wooldridge",
        sha256="49424974cb2e6bb5d61e3a599ffdeea1ea9b0d2adb168ca265ee9fb9e16a366b",
        what="3,447 public + 1,149 private rows x 7: logarithms of air fares in 2000, public 1997 to 1999",
    ),
    _fresh(
        "catholic_minority",
        package="wooldridge",
        sha256="96a37d4e4ff804e9c24577fd2ec25a1beb9600f3f8a88344d89e9a3dc7033fc9",
        what="5,752 public + 1,678 private rows x 11: test scores of minority pupils, public the others",
    ),
    _fresh(
        "computers_time",
        package="Ecdat",
        sha256="05fd7da7f5d056ce4421574c057a3e592d5804a76bd307e3d26c7eed008d6060",
        what="4,016 public + 2,243 private rows x 12: prices of computers in later months, public earlier ones",
    ),
    _fresh(
        "cps88_south",
        package="AER",
        sha256="ee452abb4af5d68362beda84842cc71d4f4b5501f576fe82db6c7483f2759334",
        what="19,395 public + 8,760 private rows x 9: logarithms of wages in the South, public elsewhere",
    ),
    _fresh(
        "deliveries_same",
        package="modeldata",
        sha256="c2bb82d3b385ce926671ffc2fec3bff6c01d2af35667aa625e0024c88d43c442",
        what="726 public + 9,286 private rows x 36: delivery times, public a sample of the same population",
    ),
    _fresh(
        "diamonds_same",
        package="ggplot2",
        sha256="323e0ebdfa8c488a0eca59425fe167f54915a11d2c3d597b4959df1034a1ba72",
        what="571 public + 53,369 private rows x 26: logarithms of prices, public a sample of the same population",
    ),
    _fresh(
        "hotel_time",
        package="modeldata",
        sha256="b5973c24efc2b89d4c1552378eee2cc32069e77f84917294f64d5791f7609c82",
        what="10,602 public + 4,800 private rows x 88: prices of hotel rooms at later dates, public earlier ones",
    ),
    _fresh(
        "alcohol_south",
        package="wooldridge",
        sha256="bdd4c73eff4120186033e09f68155fffcb2b3137ca0cbbca87381dcb08375f7b",
        what="6,696 public + 3,126 private rows x 27: employment in the South, public elsewhere",
    ),
    _fresh(
        "wachurn_fiber",
        package="modeldata",
        sha256="73d3f659a46c4d1fb32ab5c63ba20cbee34e6c09c456143aea7bd75601540867",
        what="3,947 public + 3,096 private rows x 37: churn of fibre customers, public the others",
    ),
    _fresh(
        "trump_south",
        package="stevedata",
        sha256="2a9afb095788c59a4ab91d928ea7572c10825ad9e5e2ba4e7babd7aef9b94d06",
        what="28,933 public + 14,096 private rows x 25: votes in the South, public elsewhere",
    ),
    _fresh(
        "species_year",
        package="ratdat",
        sha256="2e988837651c57cbb35aea2bfe74ad9c8d889b640749b036716c01aad2880033",
        what="13,627 public + 16,693 private rows x 35: 12 species in later years; public: earlier years, 11 species",
    ),
    _fresh(
        "mlcchurn_same",
        package="modeldata",
        sha256="0f51cf8cae85f585cfdd06338308f86a87ecff343086b3adb0ecb63ad0fa50c5",
        what="563 public + 4,437 private rows x 22: churn, public a sample of the same population",
    ),
)


ALIASES = {"airline": "airline_nyc13"}
SOURCES: tuple[SourceFile, ...] = TABLES + IMAGES_AND_TEXT + FRESH


def find(name: str, part: str | None) -> SourceFile:
    """Return the source of this set and part; the first part if `part` is None."""
    known = ALIASES.get(name, name)
    parts = [source for source in SOURCES if source.name == known]
    if not parts:
        names = ", ".join(dict.fromkeys(source.name for source in SOURCES))
        raise ValueError(f"name must be one of {names}, got {name!r}.")
    if part is None:
        return parts[0]
    for source in parts:
        if source.part == part:
            return source
    raise ValueError(f"part of {known!r} must be one of {', '.join(repr(s.part) for s in parts)}, got {part!r}.")
