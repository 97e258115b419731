"""The built-in corpus `phrasebook-en-it`: English and Italian sentences told by one grammar.

Both sides of a sentence are built at once from the same words, so that the English alone decides
the Italian. A sentence knows its links: which adjective describes which noun and which verb
governs which noun. Some links are kept for the split `test_compositional`.
"""

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import NamedTuple, TypeVar

from mt_cli.corpus import phrasebook_lexicon as lexicon
from mt_cli.corpus.phrasebook_lexicon import cells, conjugate, definite, glue, lines, rows, sections

SPLITS = ("train", "valid", "test", "test_compositional")
SHOWN = (cells(line, "|") for line in lines(lexicon.SHOWCASE))
SHOWCASE: tuple[tuple[str, str], ...] = tuple((english, italian) for english, italian in SHOWN)
SEED, TRAIN, HELD_OUT, ENOUGH = 127, 48_000, 1_000, 5

T = TypeVar("T")
Link = tuple[str, str, str]  # "adjective" or "verb", its English lemma and that of the noun
FIRST, SECOND, SINGULAR, FIRST_PLURAL, _, PLURAL = range(6)
PEOPLE = ("person", "kid", "family")
AGREEING = {
    **{"is": "are", "was": "were", "does": "do", "costs": "cost", "this": "these", "that": "those"},
    **{"è": "sono", "era": "erano", "c'è": "ci sono", "dov'è": "dove sono"},
    **{"piace": "piacciono", "costa": "costano"},
}


class Misfit(Exception):  # noqa: N818 - a draw to repeat, not an error
    """The words drawn for a sentence do not go together."""


# --- Phrases --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun; its forms and genders are those of the singular and of the plural."""

    kind: str
    en: tuple[str, str]
    it: tuple[str, str]
    feminine: tuple[bool, bool]
    singular: bool
    plural: bool


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective; `before` and `after` are the nouns it precedes and follows in Italian."""

    en: str
    it: tuple[str, ...]
    before: frozenset[str]
    after: frozenset[str]

    @property
    def breadth(self) -> float:
        """How much more often than others it may be used."""
        return math.sqrt(len(self.before) + len(self.after))


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb; in Italian `tail` follows it and `preposition` goes before its object."""

    en: str
    it: str
    tail: str = ""
    preposition: str = ""
    reflexive: bool = False
    objects: tuple[Noun, ...] = ()
    flags: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Phrase:
    """A phrase in both languages; its article stays apart, since prepositions merge with it."""

    en: str = ""
    it: str = ""
    article: str = ""
    person: int = SINGULAR
    feminine: bool = False
    links: tuple[Link, ...] = ()
    nouns: tuple[Noun, ...] = ()
    clitic: str = ""

    @property
    def form(self) -> int:
        """Which of the four forms of an adjective describes it."""
        return self.feminine + 2 * (self.person >= FIRST_PLURAL)

    def english(self, form: str = "") -> str:
        """The English text, its comparative, the pronoun for it or a word that agrees with it."""
        if form in AGREEING:
            return form if self.form < 2 else AGREEING[form]
        if form in ("er", "est"):
            return lexicon.grade(self.en, form)
        return returning(self) if form == "it" else self.en.removeprefix("the " * (form == "bare"))

    def italian(self, form: str = "") -> str:
        """The Italian text, perhaps after a preposition, or a word or ending that agrees."""
        if form in AGREEING:
            return form if self.form < 2 else AGREEING[form]
        if form == "o":
            return "oaie"[self.form]
        if form == "no":
            return self.it
        if form == "d":
            form = "d'" if lexicon.sound(self.it) == "vowel" else "di"
        if self.article:
            article = lexicon.contract(form, self.article) if form else self.article
            return glue(article, self.it)
        return glue("ad" if form == "a" and self.it[0] in "aA" else form, self.it)


NOTHING = Phrase()


def both(first: Phrase, second: Phrase) -> Phrase:
    """Two people joined by `and`."""
    english, italian = f"{first.en} and {second.en}", f"{first.it} e {second.it}"
    return Phrase(english, italian, "", PLURAL, first.feminine and second.feminine)


def prenominal(adjective: Adjective, following: str, form: int) -> str:
    """An Italian adjective before the words `following`."""
    text = adjective.it[form]
    if text in ("bello", "belli"):
        return lexicon.like_quello("b", definite(following, form))
    return "b" + lexicon.indefinite(following).replace("un", "uon") if text == "buono" else text


def determine(name: str, english: str, italian: str, form: int) -> tuple[str, str, str]:
    """The English determiner, the Italian article and the Italian determiner before a noun."""
    a = "an" if re.match("[aeioAEIO]|u(?!ni|se)", english) else "a"
    ending, plural, article = "oaie"[form], form > 1, definite(italian, form)
    if name in ("the", "generic", "bare"):
        return name if name == "the" else "", "" if name == "bare" else article, ""
    if name == "this":
        elided = article == "l'" and not form
        return ("this", "these")[plural], "", "quest'" if elided else "quest" + ending
    return {
        "a": (a, "", lexicon.indefinite(italian, form % 2 == 1)),
        "what": ("what" if plural else f"what {a}", "", "che"),
        "that": (("that", "those")[plural], "", lexicon.like_quello("qu", article)),
        "some": ("some", "", lexicon.contract("di", article)),
        "many": ("many", "", "molt" + ending),
        "all": ("all the", "", f"tutt{ending} {article}"),
    }[name]


def possess(owner: Phrase, form: int, kin: bool = False) -> tuple[str, str, str]:
    """What `determine` gives, for a possessive; `kin` goes without article, as in `mio padre`."""
    english, *forms = cells(rows(lexicon.POSSESSIVES)[owner.person], " ")
    article = "" if kin and owner.person != PLURAL else definite("m", form)
    english = "her" if owner.person == SINGULAR and owner.feminine else english
    return english, article, forms[form]


def noun_phrase(
    noun: Noun,
    determiner: str | Phrase,
    plural: bool = False,
    adjectives: Sequence[Adjective] = (),
    owner: Phrase = NOTHING,
) -> Phrase:
    """A noun with a number, a determiner as in `determine`, or as one `own` to the owner."""
    plural = plural or not noun.singular
    feminine, lemma = noun.feminine[plural], noun.en[0]
    form = feminine + 2 * plural
    english, italian = noun.en[plural], noun.it[plural]
    for adjective in reversed(adjectives):
        english = f"{adjective.en} {english}"
        if lemma in adjective.before:
            italian = glue(prenominal(adjective, italian, form), italian)
        else:
            italian = f"{italian} {adjective.it[form]}"
    if isinstance(determiner, Phrase):
        words = determiner.en, "", determiner.it
    elif determiner == "own":
        words = possess(owner, form, noun.kind == "family" and not plural and not adjectives)
    else:
        words = determine(determiner, english, italian, form)
    english, italian = f"{words[0]} {english}".strip(), glue(words[2], italian)
    links = tuple(("adjective", adjective.en, lemma) for adjective in adjectives)
    person = PLURAL if plural else SINGULAR
    return Phrase(english, italian, words[1], person, feminine, links, (noun,))


def returning(phrase: Phrase, case: int = 0) -> str:
    """The English pronoun with which a sentence returns to a phrase: subject (0) or object (1)."""
    if phrase.person != SINGULAR:
        return ("they", "them")[case] if phrase.person == PLURAL else phrase.en
    if phrase.nouns and phrase.nouns[0].kind not in PEOPLE:
        return "it"
    return (("he", "him"), ("she", "her"))[phrase.feminine][case]


def object_pronoun(phrase: Phrase) -> Phrase:
    """The pronoun which, as an object, returns to a phrase."""
    english, clitic = returning(phrase, 1), "l" + phrase.italian("o")
    return replace(phrase, en=english, it="", article="", links=(), clitic=clitic)


def quality(thing: Phrase, adjective: Adjective) -> Phrase:
    """An adjective as it is said of a thing."""
    links = tuple(("adjective", adjective.en, noun.en[0]) for noun in thing.nouns)
    return Phrase(adjective.en, adjective.it[thing.form], links=links)


def apart(first: Phrase, second: Phrase) -> bool:
    """Whether two phrases mean different people or things."""
    if first.it and second.it:
        distinct = first.en not in second.en and second.en not in first.en
        return distinct and not set(first.nouns) & set(second.nouns)
    return first.person % 3 != second.person % 3 or first.person == second.person == SINGULAR


# --- Clauses --------------------------------------------------------------------------------------


class Adverb(NamedTuple):
    """An adverb next to the verb, and whether English `not` and Italian `non` go with it."""

    en: str = ""
    it: str = ""
    is_not: bool = False
    non: bool = False


PLAIN, NOT = Adverb(), Adverb("", "", True, True)
NEVER, NO_LONGER = Adverb("never", "mai", False, True), Adverb("no longer", "più", False, True)
NOT_YET, ALREADY = Adverb("yet", "ancora", True, True), Adverb("already", "già")
ALWAYS, OFTEN, EVER = Adverb("always", "sempre"), Adverb("often", "spesso"), Adverb("ever", "mai")


def english_finite(verb: str, tense: str, person: int, helped: bool) -> tuple[str, str]:
    """The auxiliary, if any, and the rest of an English verb; questions and `not` need help."""
    third, past, done, doing = lexicon.english_forms(verb)
    before = tense in ("past", "imperfect", "while")
    if verb in ("can", "must"):
        return verb, ""
    if tense == "future":
        return "will", verb
    if tense == "habit":
        return "", f"used to {verb}"
    if tense == "perfect":
        return "has" if person == SINGULAR else "have", done
    if tense in ("now", "while") or verb.split()[0] == "be":
        forms = ("was", "were", "was") if before else ("am", "are", "is")
        rest = doing if tense in ("now", "while") else verb[3:]
        return forms[person] if person <= SINGULAR else forms[SECOND], rest
    if helped:
        return "did" if before else "does" if person == SINGULAR else "do", verb
    return "", past if before else third if person == SINGULAR else verb


def is_compound(verb: Verb, tense: str, modal: Verb | None) -> bool:
    """Whether Italian tells a verb with its participle."""
    lasting = "s" in verb.flags or modal
    return tense == "perfect" or (tense == "past" and not lasting)


def agrees(verb: Verb) -> bool:
    """Whether the participle of a verb agrees with the subject."""
    return verb.reflexive or verb.it in cells(lexicon.WITH_ESSERE, " ")


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """A subject and what it does; the sentence decides where the time stands."""

    subject: Phrase
    verb: Verb
    tense: str
    adverb: Adverb = PLAIN
    modal: Verb | None = None
    object: Phrase = NOTHING
    dative: Phrase = NOTHING
    time: Phrase = NOTHING

    @property
    def links(self) -> tuple[Link, ...]:
        """The links of its parts and those between its verb and its object."""
        governed = tuple(("verb", self.verb.en, noun.en[0]) for noun in self.object.nouns)
        return self.subject.links + self.object.links + governed

    def english(self, form: str = "") -> str:
        """The English clause, for `q` in the order of a question."""
        subject, asking, thing = self.subject, form == "q", self.object.en
        verb, helped = (self.modal or self.verb).en, asking or self.adverb.is_not
        helper, main = english_finite(verb, self.tense, subject.person, helped)
        if self.modal:
            main = f"{main} {self.verb.en}".strip()
        main = main.replace("{own}", possess(subject, 0)[0])
        if self.object.clitic and main.endswith((" on", " off")):
            main, _, particle = main.rpartition(" ")
            thing = f"{thing} {particle}"
        words = [helper, subject.en] if asking else [subject.en, helper]
        words += ["not" * self.adverb.is_not, self.adverb.en, main, self.dative.en, thing]
        return " ".join(filter(None, words)).replace("can not", "cannot")

    def italian(self, form: str = "") -> str:
        """The Italian clause, for `i` with the subject after the verb."""
        verb, person, thing = self.verb, self.subject.person, self.object
        reflexive = ("mi", "ti", "si", "ci", "vi", "si")[person] if verb.reflexive else ""
        clitic, rest = self.dative.clitic or thing.clitic or reflexive, ""
        tense = self.tense if self.tense in ("present", "future") else "imperfect"
        if self.modal:
            finite = conjugate(self.modal.it, tense)[person]
            clitic, rest = "", verb.it[:-1] + clitic if clitic else verb.it
        elif self.tense == "now":
            finite, rest = conjugate("stare", "present")[person], lexicon.gerund(verb.it)
        elif self.tense == "order":
            familiar = SINGULAR if verb.it.endswith("are") else SECOND
            finite = verb.it if self.adverb.non else conjugate(verb.it, "present")[familiar]
        elif is_compound(verb, self.tense, None):
            known = thing if thing.clitic.startswith("l") else NOTHING
            known = self.subject if agrees(verb) else known
            finite = conjugate("essere" if agrees(verb) else "avere", "present")[person]
            rest = lexicon.participle(verb.it, known.form)
            clitic = "l'" if clitic in ("lo", "la") else clitic
        else:
            finite = conjugate(verb.it, tense)[person]
        said = thing.italian(verb.preposition) if thing.it else ""
        words = ["non" * self.adverb.non, clitic, finite, self.adverb.it, rest, verb.tail, said]
        words.insert(len(words) if form == "i" else 0, self.subject.italian())
        return glue(*words)


# --- Vocabulary -----------------------------------------------------------------------------------

# How something is told: its tense, its adverbs, the times that suit it, its modal verb; `past+`
# and the like are without `not`.
Manner = tuple[str, tuple[Adverb, ...], str, Verb | None]
MANNERS: dict[str, Manner] = {
    "plain": ("present", (PLAIN, NOT), "", None),
    "habit": ("present", (PLAIN,), "habit", None),
    "often": ("present", (ALWAYS, OFTEN, NEVER, NO_LONGER), "", None),
    "now": ("now", (PLAIN, PLAIN, NOT), "now", None),
    "past": ("past", (PLAIN, PLAIN, PLAIN, NOT), "past", None),
    "once": ("past", (PLAIN,), "", None),
    "while": ("while", (PLAIN,), "", None),
    "imperfect": ("imperfect", (PLAIN,), "", None),
    "childhood": ("imperfect", (ALWAYS, OFTEN), "", None),
    "used": ("habit", (PLAIN,), "", None),
    "perfect": ("perfect", (ALREADY, NEVER, NOT_YET), "", None),
    "already": ("perfect", (ALREADY, NOT_YET), "", None),
    "ever": ("perfect", (EVER,), "", None),
    "future": ("future", (PLAIN, PLAIN, PLAIN, NOT), "future", None),
    "want": ("present", (PLAIN, PLAIN, NOT), "near future", Verb("want to", "volere")),
    "wanted": ("past", (PLAIN, NOT), "", Verb("want to", "volere")),
    "can": ("present", (PLAIN, NOT), "near future", Verb("can", "potere")),
    "must": ("present", (PLAIN, PLAIN, NOT), "near future", Verb("must", "dovere")),
    "order": ("order", (PLAIN, PLAIN, NOT), "", None),
}
USUAL = "habit,often,often,used,now"
MIXES = {
    "any": f"plain,plain,past,past,past,future,future,perfect,want,wanted,can,must,{USUAL}",
    "timed": "habit,past+,past+,future+,now+",
    "open": "plain+,past+,past+,future+,want+,now+,can+",
    "regular": "habit,often,now,past,past,past,future,used,want,can,must",
}


def suits(manner: str, verb: Verb) -> bool:
    """Whether a verb may be told in a manner."""
    if "e" in verb.flags:
        return manner in ("past", "once", "perfect")
    if "s" in verb.flags and manner not in ("plain", "past"):
        return verb.en == "live" and manner in ("want", "future")
    if not verb.objects and not verb.flags:
        return True
    if manner in ("habit", "often", "used", "childhood"):
        return "h" in verb.flags or "c" in verb.flags
    return {"now": "n", "while": "n", "order": "i"}.get(manner, "") in verb.flags


def read_noun(kind: str, entry: str) -> Noun:
    """A noun from its entry in the lexicon."""
    english, _, rest = entry.partition("=")
    italian, gender, number = re.findall(r"^(.*?)(?: (mf|m|f))? ?([-+]?)$", rest)[0]
    english, _, many = english.partition("/")
    italian, _, molti = italian.partition("/")
    feminine = "f" in gender if gender else italian.split()[0].endswith("a")
    if number == "+":
        many, molti = english, italian
    forms = (english, many or lexicon.add_s(english))
    italian_forms = (italian, molti or lexicon.italian_plural(italian, feminine))
    genders = (feminine and gender != "mf", feminine)
    return Noun(kind, forms, italian_forms, genders, number != "+", number != "-")


def read_verb(entry: str, objects: Sequence[Noun] = (), flags: str = "") -> Verb:
    """A verb from its entry in the lexicon."""
    english, _, italian = entry.partition("=")
    infinitive, _, rest = italian.partition(" ")
    tail, preposition = re.findall(r"^(.*?) ?(?:\b(a|di))?$", rest)[0]
    reflexive = infinitive.endswith("si")
    infinitive = infinitive[:-2] + "e" if reflexive else infinitive
    return Verb(english, infinitive, tail, preposition, reflexive, tuple(objects), flags)


def read_phrases(content: str) -> list[Phrase]:
    """The fixed phrases of a line of the lexicon."""
    pairs = (cells(entry, "=") for entry in cells(content, "|"))
    return [Phrase(english, italian) for english, italian in pairs]


class Vocabulary:
    """The lexicon, read."""

    def __init__(self) -> None:
        """Reads the tables."""
        self.nouns: dict[str, Noun] = {}
        self.groups: dict[str, list[Noun]] = {}
        for kind, content in sections(lexicon.NOUNS):
            self.groups[kind] = [read_noun(kind, entry) for entry in cells(content, "|")]
            self.nouns |= {noun.en[0]: noun for noun in self.groups[kind]}
        for name, content in sections(lexicon.GROUPS):
            self.groups[name] = self.named(content)
        described = [a for row in rows(lexicon.ADJECTIVES) for a in self.describing(row)]
        self.adjectives = {adjective.en: adjective for adjective in described}
        self.qualities = {n: [a for a in described if n in a.before | a.after] for n in self.nouns}
        stated, known = cells(lexicon.PREDICATE_ONLY, ","), self.qualities
        self.attributes = {n: [a for a in known[n] if a.en not in stated] for n in self.nouns}
        self.groups["described"] = [noun for n, noun in self.nouns.items() if self.qualities[n]]
        self.opposites: dict[str, str] = {}
        for first, second in (cells(pair, "/") for pair in cells(lexicon.OPPOSITES, ",")):
            self.opposites |= {second: first, first: second}
        spots = [cells(line, ":") for line in lines(lexicon.SPOTS)]
        self.spots = [(self.named(i), cells(w, "="), tuple(self.named(p))) for i, w, p in spots]
        self.groups["item"] = self.named(",".join(items for items, *_ in spots))
        self.add_verbs()
        self.phrases = {name: read_phrases(content) for name, content in sections(lexicon.PHRASES)}
        self.add_places_and_names()
        self.add_times()

    def named(self, spec: str) -> list[Noun]:
        """The nouns that a list of lemmas, kinds and groups names."""
        if spec not in self.groups:
            names = filter(None, cells(spec, ","))
            found = chain.from_iterable(self.groups.get(n) or [self.nouns[n]] for n in names)
            self.groups[spec] = list(dict.fromkeys(found))
        return self.groups[spec]

    def describing(self, row: str) -> Iterator[Adjective]:
        """The adjectives of an entry."""
        heads, *specs = cells(row + ": :", ":")[:3]
        spots = [frozenset(noun.en[0] for noun in self.named(spec)) for spec in specs]
        for head in cells(heads, "&"):
            english, _, italian = head.partition("=")
            yield Adjective(english, lexicon.agreeing(*italian.split("/")), *spots)

    def governing(self, row: str) -> Iterator[Verb]:
        """The verbs of an entry."""
        heads, objects, flags = cells(row + ": :", ":")[:3]
        for head in cells(heads, "&"):
            yield read_verb(head, self.named(objects), flags)

    def add_verbs(self) -> None:
        """The verbs by group, and which may follow which."""
        acts = [verb for row in rows(lexicon.VERBS) for verb in self.governing(row)]
        gifts = [verb for row in rows(lexicon.GIVING) for verb in self.governing(row)]
        by_name = {verb.en: verb for verb in gifts + acts}
        self.verbs = {"act": acts, "give": gifts, "hand": gifts}
        for name, content in sections(lexicon.VERB_GROUPS):
            self.verbs[name] = [by_name[verb] for verb in cells(content, ",")]
        self.verbs["anything"] = [replace(verb, objects=()) for verb in self.verbs["anything"]]
        for name, content in sections(lexicon.PLAIN_VERBS):
            flags = "s" if name in ("state", "home", "know") else ""
            self.verbs[name] = [read_verb(entry, flags=flags) for entry in cells(content, "|")]
        self.told = {
            (name, manner): [verb for verb in group if suits(manner, verb)]
            for name, group in self.verbs.items()
            for manner in MANNERS
        }
        chains = (cells(row, ":") for row in rows(lexicon.CHAINS))
        self.chains = {first: [by_name[v] for v in cells(then, ",")] for first, then in chains}

    def add_places_and_names(self) -> None:
        """Where one is (`at`, `in`), where one goes (`to`), where one comes from; first names."""
        known, self.places = self.phrases, dict[str, list[Phrase]]()
        fun, known["at"] = ", ".join(verb.en for verb in self.verbs["fun"]), []
        for entry, deeds in (cells(row, ":") for row in rows(lexicon.PLACES)):
            (place,) = read_phrases(entry)
            known["at"].append(place)
            for deed in cells(deeds.replace("fun", fun), ","):
                self.places.setdefault(deed, []).append(place)
        known["meeting"] = self.places["wait"]
        known["city"], countries = read_phrases(lexicon.CITIES), read_phrases(lexicon.COUNTRIES)
        countries = [replace(p, article=definite(p.it, p.it.endswith("a") * 1)) for p in countries]
        known["in"] = [Phrase(f"in {city.en}", city.italian("a")) for city in known["city"]]
        known["in"] += [Phrase(f"in {country.en}", f"in {country.it}") for country in countries]
        known["abroad"] = [replace(place, en=f"to {place.en[3:]}") for place in known["in"]]
        known["to"] = known["abroad"] + known["outing"]
        known["from"] = [Phrase(f"from {p.en}", p.italian("da")) for p in known["city"] + countries]
        known["luca"] = [Phrase(name, name) for name in cells(lexicon.HE, "|")]
        known["maria"] = [Phrase(name, name, feminine=True) for name in cells(lexicon.SHE, "|")]
        known["name"] = known["luca"] + known["maria"]

    def add_times(self) -> None:
        """Days, dates, hours and figures."""
        known = self.phrases
        known["on day"] = [replace(day, en=f"on {day.en}") for day in known["weekday"]]
        known["past"] += known["on day"]
        known["future"] += known["on day"]
        known["habit"] += [Phrase(f"every {day.en}", f"ogni {day.it}") for day in known["weekday"]]
        known["date"] = [
            Phrase(f"{day} {month.en}", f"{day} {month.it}", "l'" if day in (8, 11) else "il")
            for month in known["month"]
            for day in range(2, 31)
        ]
        known["digits"] = [Phrase(str(n), str(n)) for n in (*range(5, 36), 40, 50, 60, 80)]
        known["degrees"] = known["digits"][:31]
        known["year"] = [Phrase(str(n), str(n), "il") for n in range(1960, 2021, 3)]
        known["clock"] = [
            Phrase(english.format(hour.en), italian.format(hour.it), "le")
            for english, italian in (cells(row, "=") for row in rows(lexicon.CLOCKS))
            for hour in known["number"][:11]
        ]
        figures = [f"{hour}:{minutes}" for hour in range(6, 23) for minutes in (15, 30, 45)]
        known["clock"] += [Phrase(time, time, "le") for time in figures]
        for name in ("am", "pm"):
            known[name] = [replace(hour, article="le") for hour in known[name]]
        hours = {"early": "six|seven|eight|nine|^[6-9]:", "late": "eight|nine|ten|^2"}
        for name, wanted in hours.items():
            known[name] = [hour for hour in known["clock"] if re.search(wanted, hour.en)]


# --- Composition ----------------------------------------------------------------------------------

PRONOUNS = {
    "I": Phrase("I", person=FIRST),
    "you": Phrase("you", person=SECOND),
    "he": Phrase("he"),
    "she": Phrase("she", feminine=True),
    "we": Phrase("we", person=FIRST_PLURAL),
    "they": Phrase("they", person=PLURAL),
}
CLITICS = ("me mi mi", "you ti ti", "him lo gli", "her la le", "us ci ci", "them li gli")
OBJECTS, DATIVES = (
    [
        replace(subject, en=words.split()[0], clitic=words.split()[case])
        for subject, words in zip(PRONOUNS.values(), CLITICS, strict=True)
    ]
    for case in (1, 2)
)
SORTS = {
    "someone": tuple(PRONOUNS),
    "other": ("you", "you", "he", "she", "they"),
    "shown": ("he", "she", "they"),
    "who": (),
}
SUBJECTS = (*["the"] * 5, "this", "that", "many", "number")
SPECIFIC = (*["the", "a"] * 4, *["own"] * 3, *["some"] * 2, "this", "that", "number", "many", "all")
DERIVED = (
    *("time", "where", "adj", "said", "graded", "opposite", "rival", "spot", "of", "relative"),
    *("object", "again", "denied", "alone", "then", "unlike"),
)
TEXT = re.compile(r"\{(\d)(?::([^}]+))?\}")  # a gap and its form
TIDY = re.compile(r"^\w|(?<=[.?!] )\w| +(?=[ .,?!])")  # what to write large, and needless blanks


class Sentence(NamedTuple):
    """A sentence in both languages, with its links."""

    en: str
    it: str
    links: tuple[Link, ...]


class Composer:
    """Composes sentences from words which it draws evenly."""

    def __init__(self, seed: int) -> None:
        """Starts anew; the seed decides all that follows."""
        self.random = random.Random(seed).random
        self.words = Vocabulary()
        self.uses: Counter[object] = Counter()
        weighed = (cells(line, " | ") for line in lines(lexicon.TEMPLATES))
        self.templates = [
            (cells(gaps, ";"), english, italian)
            for weight, gaps, english, italian in weighed
            for _ in range(int(weight))
        ]

    def sentence(self) -> Sentence:
        """A sentence, unless the words drawn for it do not go together."""
        gaps, english, italian = self.draw(self.templates)
        parts: list[Phrase | Clause] = []
        for gap in gaps:
            parts.append(self.gap(gap, parts))
        links = tuple(link for part in parts for link in part.links)
        return Sentence(render(english, "english", parts), render(italian, "italian", parts), links)

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self.random() < probability

    def draw(self, options: Sequence[T]) -> T:
        """Any of the options."""
        return options[int(self.random() * len(options))]

    def pick(self, options: Sequence[T]) -> T:
        """One of two random options, more likely the one that was less used."""
        if not options:
            raise Misfit
        size, uses = len(options), self.uses
        chosen, other = options[int(self.random() * size)], options[int(self.random() * size)]
        if isinstance(chosen, Adjective) and isinstance(other, Adjective):
            rarer = uses[other] * chosen.breadth < uses[chosen] * other.breadth
        else:
            rarer = uses[other] < uses[chosen]
        chosen = other if rarer and self.chance(0.8) else chosen
        uses[chosen] += 1
        return chosen

    def gap(self, spec: str, parts: list[Phrase | Clause]) -> Phrase | Clause:
        """What fills a gap of a template after the parts before it."""
        head, *rest = spec.split()
        if head in DERIVED:
            args = [parts[int(arg)] if arg.isdigit() else arg for arg in rest]
            derived: Phrase | Clause = getattr(self, head)(*args)
            return derived
        if head in self.words.verbs:
            subject = parts[int(rest[1])] if rest[1:] and rest[1].isdigit() else None
            assert not isinstance(subject, Clause)
            return self.clause(head, rest[0], subject, "".join(rest[2:]))
        filled = self.named(spec)
        for part in parts:
            for other in (part,) if isinstance(part, Phrase) else (part.subject, part.object):
                if not apart(other, filled):
                    raise Misfit
        return filled

    def named(self, spec: str) -> Phrase:
        """A fixed phrase, somebody or something, perhaps after the verb that governs it."""
        *verb, spec = spec.split(">")
        name, *others = spec.split("/")
        if spec in self.words.phrases:
            found = self.pick(self.words.phrases[spec])
        elif name in PRONOUNS:
            found = self.named(self.draw([name, *others])) if others else PRONOUNS[name]
        else:
            found = self.person(spec) if spec in SORTS else self.something(spec)
        links = tuple(("verb", verb[0], noun.en[0]) for noun in found.nouns if verb)
        return replace(found, links=found.links + links) if verb else found

    def something(self, spec: str) -> Phrase:
        """A noun of a group after one of its determiners."""
        dets, marks, group = re.findall(r"^([\w/]+)([-+*]*) (.+)$", spec)[0]
        free = "*" in marks or dets in ("bare", "generic", "some")
        noun = self.pick([noun for noun in self.words.named(group) if free or noun.singular])
        owner = {"my": "I", "your": "you"}.get(dets) or self.draw(list(PRONOUNS))
        dets = "own" if dets in ("my", "your") else dets
        plain = "-" in marks or dets in ("own", "bare") or group == "described"
        adorned = 1 if "+" in marks else 0 if plain else 0.25
        return self.thing(noun, dets.split("/"), PRONOUNS[owner], adorned, 0.25 * ("*" in marks))

    def thing(
        self,
        noun: Noun,
        determiners: Sequence[str],
        owner: Phrase = NOTHING,
        adorned: float = 0.35,
        plural: float = 0.25,
    ) -> Phrase:
        """A noun with a determiner that suits it, and perhaps with adjectives."""
        name, groups = self.draw(determiners), self.words.groups
        name = "the" if noun.en[0] == "sea" else name
        counted, portion = noun.singular and noun.plural, noun in groups["portion"]
        if noun in groups["mates"] or (noun.kind == "family" and name != "bare"):
            partners = {"husband": ("I", "you", "she"), "wife": ("I", "you", "he")}
            if noun.en[0] in partners or not owner.en:
                owner = PRONOUNS[self.draw(partners.get(noun.en[0], tuple(PRONOUNS)))]
            name = "own"
        elif (name in ("a", "number") and not counted) or (name == "some" and counted and portion):
            name = {"a": "some", "some": "a"}.get(name, "the")
        elif (name == "own" and (noun not in groups["owned"] or not owner.en)) or (
            determiners is SPECIFIC
            and name in ("many", "all", "number", "some")
            and counted
            and noun not in groups["counted"]
        ):
            name = "the"
        several = counted and name in ("number", "many", "all")
        if counted and not portion:
            several |= name in ("some", "bare", "generic") or (name != "a" and self.chance(plural))
        if name in ("many", "all") and not several:
            name = "the"
        adjectives = self.adornment(noun, name == "what") if self.chance(adorned) else []
        number = self.draw(self.words.phrases["number"][:9]) if name == "number" else None
        return noun_phrase(noun, number or name, several, adjectives, owner)

    def adornment(self, noun: Noun, judging: bool) -> list[Adjective]:
        """One or two adjectives for a noun, in English order; if judging, no colour or mood."""
        options, sorts = self.words.attributes[noun.en[0]], cells(lexicon.SECONDARY, ",")
        if judging:
            options = [a for a in options if a.en not in sorts and a.en not in lexicon.MOODS]
        if not options:
            return []
        first = self.pick(options)
        if noun.en[0] not in first.before or self.chance(0.8):
            return [first]
        others = [adjective for adjective in options if adjective.en in sorts]
        return [first, self.pick(others)] if others else [first]

    def person(self, sort: str = "someone", adult: bool = False) -> Phrase:
        """Somebody: `shown` of known gender, `other` than us, `who`: one, not a pronoun."""
        roll, single = self.random(), sort == "who"
        if roll < 0.3:
            return self.named("name")
        if roll < 0.35 and not single:
            return both(self.named("luca"), self.named("maria"))
        if roll < 0.6:
            group = "person" if adult else self.draw(("person", "person", "kid"))
            noun, dets = self.pick(self.words.groups[group]), ("the",) if single else SUBJECTS
            return self.thing(noun, dets, plural=0 if single else 0.3)
        if roll < 0.78 or single:
            noun = self.pick(self.words.groups["kin"])
            return self.thing(noun, ("own",), adorned=0.1, plural=0 if single else 0.25)
        return PRONOUNS[self.draw(SORTS[sort])]

    def clause(self, group: str, told: str, subject: Phrase | None, dets: str) -> Clause:
        """A clause with a verb of a group, told in one of the manners."""
        wish = self.draw(cells(MIXES.get(told, told), ","))
        manner = wish.rstrip("+")
        verb = self.pick(self.words.told[group, manner])
        tense, adverbs, times, modal = MANNERS[manner]
        adverb = self.draw(adverbs) if wish == manner else PLAIN
        timed = times and "s" not in verb.flags and not verb.en.endswith(" on")
        time = self.named(times) if timed and self.chance(0.6) else NOTHING
        noun = self.pick(verb.objects) if verb.objects else None
        adult = "a" in verb.flags or bool(noun and noun.kind == "drink")
        shown = agrees(verb) and is_compound(verb, tense, modal)
        subject = subject or self.person("shown" if shown else "someone", adult)
        subject = Phrase(person=SECOND) if manner == "order" else subject
        unclear = lexicon.english_forms(verb.en)[1] == verb.en and subject.person != SINGULAR
        if (
            (shown and subject.person in (FIRST, SECOND, FIRST_PLURAL))
            or (unclear and tense in ("present", "past") and not modal)
            or (adult and manner == "childhood")
            or (adult and subject.nouns and subject.nouns[0].kind == "kid")
        ):
            raise Misfit
        dative = self.pick(DATIVES) if group == "hand" else NOTHING
        clause = Clause(subject, verb, tense, adverb, modal, NOTHING, dative, time)
        if noun:
            clause = replace(clause, object=self.object_of(clause, noun, manner, dets))
        if not apart(subject, clause.dative) or not apart(subject, clause.object):
            raise Misfit
        return clause

    def object_of(self, clause: Clause, noun: Noun, manner: str, dets: str) -> Phrase:
        """An object for a clause told in a manner."""
        verb, subject, fresh = clause.verb, clause.subject, "c" in clause.verb.flags
        people = noun.kind in PEOPLE and self.words.nouns["man"] in verb.objects
        if people and dets != "the" and self.chance(0.4):
            if verb.preposition or dets or self.chance(0.5):
                return self.named("name")
            return self.pick(OBJECTS)
        counted, determiners = self.words.groups["counted"], dets.split("/") if dets else SPECIFIC
        if clause.adverb in (NEVER, NO_LONGER, EVER):
            determiners = ["this"] if dets else ["this", "own"]
            determiners = ["bare"] if fresh and clause.adverb != EVER else determiners
        elif manner in ("habit", "often", "used", "childhood"):
            mass = not (noun.singular and noun.plural)
            determiners = ["a", "bare"][mass:] if fresh else ["the", "own"]
        elif (clause.adverb == NOT or "d" in verb.flags) and not dets:
            determiners = ["the", "the", "this", "that", "own"]
        elif verb.en == "have" and not dets:
            determiners = ["a", "a", "number", "many"][: 4 if noun in counted else 2]
        owner = PRONOUNS["you"] if manner == "order" else subject
        return self.thing(noun, determiners, NOTHING if verb.en == "steal" else owner)

    # The gaps that are made from earlier ones; each is named in the templates as it is here.

    def time(self, clause: Clause) -> Phrase:
        """The time of a clause, if it has one."""
        return clause.time

    def adj(self, thing: Phrase) -> Phrase:
        """An adjective said of a thing, or of somebody."""
        noun = thing.nouns[0] if thing.nouns else self.words.nouns["student"]
        used = [link[1] for link in thing.links]
        if used and noun.kind not in PEOPLE:
            raise Misfit
        used += [self.words.opposites.get(name, "") for name in used]
        options = [a for a in self.words.qualities[noun.en[0]] if a.en not in used]
        return quality(thing, self.pick(options))

    def said(self, thing: Phrase, name: str) -> Phrase:
        """A certain adjective said of a thing or of somebody."""
        if {name, self.words.opposites.get(name)} & {link[1] for link in thing.links}:
            raise Misfit
        return quality(thing, self.words.adjectives[name])

    def graded(self, thing: Phrase, other: Phrase | None = None) -> Phrase:
        """An adjective with a comparative, said of a thing and perhaps of another."""
        said = self.adj(thing)
        if said.en in cells(lexicon.UNGRADED, ",") or (other and said.en in lexicon.MOODS):
            raise Misfit
        also = quality(other, self.words.adjectives[said.en]).links if other else ()
        return replace(said, links=said.links + also)

    def opposite(self, said: Phrase, thing: Phrase) -> Phrase:
        """The opposite of what was said of a thing."""
        if said.en not in self.words.opposites:
            raise Misfit
        return quality(thing, self.words.adjectives[self.words.opposites[said.en]])

    def rival(self, thing: Phrase) -> Phrase:
        """Another thing of the same kind."""
        (noun,) = thing.nouns
        alike = self.words.groups[noun.kind] if noun.kind not in ("thing", "abstract") else []
        others = [other for other in alike if other is not noun and other.singular and other.plural]
        return self.thing(self.pick(others), ("the", "this"), adorned=0, plural=0)

    def where(self, clause: Clause) -> Phrase:
        """A place for what a clause tells."""
        return self.pick(self.words.places[clause.verb.en])

    def spot(self, thing: Phrase) -> Phrase:
        """Where a thing may be found: on the table."""
        (noun,) = thing.nouns
        options = [(where, places) for items, where, places in self.words.spots if noun in items]
        (english, italian), places = self.pick(options)
        place = self.thing(self.pick(places), ("the",), adorned=0.25, plural=0)
        if not apart(place, thing):
            raise Misfit
        italian, _, preposition = italian.rpartition(" ")
        text = glue(italian, place.italian(preposition))
        return Phrase(f"{english} {place.en}", text, links=place.links)

    def object(self, clause: Clause) -> Phrase:
        """What a clause is about, if a pronoun can stand for it."""
        verb = clause.verb
        if clause.object.clitic or verb.preposition or verb.en in ("have", "build"):
            raise Misfit
        return clause.object

    def again(self, clause: Clause, subject: str = "") -> Clause:
        """The clause with a pronoun for its object, and perhaps another subject."""
        teller = PRONOUNS.get(subject, clause.subject)
        return replace(clause, subject=teller, object=object_pronoun(self.object(clause)))

    def denied(self, clause: Clause, subject: str) -> Clause:
        """As `again`, with `not`."""
        return replace(self.again(clause, subject), adverb=NOT)

    def alone(self, clause: Clause) -> Clause:
        """The clause without its object."""
        return replace(clause, object=NOTHING)

    def then(self, clause: Clause) -> Clause:
        """What the same person does with the object next."""
        (noun,) = self.object(clause).nouns or self.words.groups["kid"][:1]
        verb = self.pick([v for v in self.words.chains[clause.verb.en] if noun in v.objects])
        silent = replace(clause.subject, en="", it="", article="", links=())
        return replace(self.again(clause), subject=silent, verb=verb)

    def unlike(self, clause: Clause, other: Phrase) -> Clause:
        """What somebody else does not do with the object next."""
        return replace(self.then(clause), subject=other, adverb=NOT)

    def of(self, owner: Phrase, group: str) -> Phrase:
        """Something that belongs to somebody: Maria's book."""
        noun = self.pick(self.words.groups[group])
        many = noun in self.words.groups["counted"] and noun.plural and self.chance(0.25)
        thing = noun_phrase(noun, "the", many)
        if noun in owner.nouns:
            raise Misfit
        english, italian = f"{owner.en}'s{thing.en[3:]}", f"{thing.it} {owner.italian('di')}"
        return replace(thing, en=english, it=italian)

    def relative(self, head: Phrase) -> Phrase:
        """Somebody as the subject of a relative clause."""
        return replace(head, en=f"{head.en} who", it=f"{head.it} che")


def render(text: str, language: str, parts: Sequence[Phrase | Clause]) -> str:
    """The text of a template with its gaps filled, and with a capital for each sentence."""
    pieces = TEXT.split(text)
    for at in range(1, len(pieces), 3):
        part, form = parts[int(pieces[at])], pieces[at + 1] or ""
        pieces[at], pieces[at + 1] = getattr(part, language)(form), ""
    text = "".join(pieces).strip()
    if language == "italian":
        text = re.sub(r"\be (?=[eèEÈ])", "ed ", text)
    return TIDY.sub(lambda found: found[0].strip().upper(), text)


# --- Splits ---------------------------------------------------------------------------------------


def held_out_links(words: Vocabulary) -> frozenset[Link]:
    """The links kept for `test_compositional`: few for each word, and none of the showcase."""
    chance = random.Random(SEED).random
    links = [("adjective", a.en, noun) for noun in words.nouns for a in words.qualities[noun]]
    verbs = words.verbs["act"] + words.verbs["give"]
    links += [("verb", verb.en, noun.en[0]) for verb in verbs for noun in verb.objects]
    size = Counter(part for link in links for part in (link[:2], link[::2]))
    shown = " ".join(english for english, _ in SHOWCASE)
    held: set[Link] = set()
    taken: Counter[tuple[str, ...]] = Counter()
    for link in sorted(links, key=lambda _: chance()):
        ends = (link[:2], link[::2])
        forms = (link[1], *lexicon.english_forms(link[1]))
        showcased = link[2] in shown and any(form in shown for form in forms)
        spare = all(taken[end] < size[end] // 7 for end in ends)
        if spare and not showcased and len(held) < len(links) / 15:
            held.add(link)
            taken.update(ends)
    return frozenset(held)


def tokens(text: str) -> list[str]:
    """The words of a sentence."""
    return re.findall(r"\w+(?:[':]\w+)*", text)


@cache
def sentences() -> dict[str, list[Sentence]]:
    """The sentences of each split; no word of a test is rare in `train`."""
    composer = Composer(SEED)
    held = held_out_links(composer.words)
    seen = set(chain.from_iterable(SHOWCASE))
    usual: list[Sentence] = []
    special: list[Sentence] = []
    while len(usual) < TRAIN + 2 * HELD_OUT or len(special) < 1.2 * HELD_OUT:
        try:
            said = composer.sentence()
        except Misfit:
            continue
        if said.en not in seen and said.it not in seen:
            seen |= {said.en, said.it}
            (usual if held.isdisjoint(said.links) else special).append(said)
    reserve, train = usual[::20], [said for place, said in enumerate(usual) if place % 20]
    english = Counter(word for said in train for word in tokens(said.en))
    italian = Counter(word for said in train for word in tokens(said.it))

    def known(said: Sentence) -> bool:
        return all(english[word] >= ENOUGH for word in tokens(said.en)) and all(
            italian[word] >= ENOUGH for word in tokens(said.it)
        )

    tests = [said for said in reserve if known(said)][: 2 * HELD_OUT]
    kept = set(tests)
    return {
        "train": train + [said for said in reserve if said not in kept],
        "valid": tests[::2],
        "test": tests[1::2],
        "test_compositional": [said for said in special if known(said)][:HELD_OUT],
    }


def phrasebook_pairs(split: str) -> list[tuple[str, str]]:
    """The (English, Italian) pairs of a split, always the same ones in the same order."""
    return [(said.en, said.it) for said in sentences()[split]]
