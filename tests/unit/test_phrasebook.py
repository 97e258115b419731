import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mt_cli.corpus import phrasebook
from mt_cli.corpus import phrasebook_lexicon as lexicon
from mt_cli.corpus.phrasebook import (
    NEVER,
    NOT,
    NOTHING,
    PRONOUNS,
    SHOWCASE,
    SPLITS,
    Clause,
    Composer,
    Phrase,
    noun_phrase,
    object_pronoun,
    phrasebook_pairs,
    render,
    sentences,
    tokens,
)

WORDS = Composer(0).words
VERBS = {verb.en: verb for group in WORDS.verbs.values() for verb in group if verb.objects}
PLAIN_VERBS = {verb.en: verb for group in WORDS.verbs.values() for verb in group}
WANT, MUST = phrasebook.MANNERS["want"][3], phrasebook.MANNERS["must"][3]
NAMES = {name.en: name for name in WORDS.phrases["name"]}
DIGEST = """
import hashlib
from mt_cli.corpus.phrasebook import SPLITS, phrasebook_pairs
pairs = [phrasebook_pairs(split) for split in SPLITS]
print(hashlib.sha256(repr(pairs).encode()).hexdigest())
"""


def thing(noun, determiner="the", *adjectives, plural=False, owner=NOTHING):
    described = [WORDS.adjectives[adjective] for adjective in adjectives]
    return noun_phrase(WORDS.nouns[noun], determiner, plural, described, owner)


def pair(clause, english="", italian=""):
    return f"{clause.english(english)}", f"{clause.italian(italian)}"


# --- The splits


def test_sizes():
    assert SPLITS == ("train", "valid", "test", "test_compositional")
    assert [len(phrasebook_pairs(split)) for split in SPLITS] == [48_000, 1_000, 1_000, 1_000]
    with pytest.raises(KeyError):
        phrasebook_pairs("dev")


def test_each_sentence_stands_once_in_one_split_and_has_one_translation():
    pairs = [pair for split in SPLITS for pair in phrasebook_pairs(split)]
    for side in (0, 1):
        assert len({pair[side] for pair in pairs}) == len(pairs)


def test_another_process_makes_the_same_pairs():
    pairs = [phrasebook_pairs(split) for split in SPLITS]
    root = Path(phrasebook.__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", DIGEST]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == hashlib.sha256(repr(pairs).encode()).hexdigest()


def test_held_out_links_stand_in_every_compositional_sentence_and_in_no_other():
    held = phrasebook.held_out_links(WORDS)
    assert len(held) > 200 and {kind for kind, *_ in held} == {"adjective", "verb"}
    for split in ("train", "valid", "test"):
        assert all(held.isdisjoint(said.links) for said in sentences()[split])
    assert not any(held.isdisjoint(said.links) for said in sentences()["test_compositional"])
    links = [link for said in sentences()["train"] for link in said.links]
    used = Counter(part for link in links for part in (link[:2], link[2]))
    assert min(used[part] for link in held for part in (link[:2], link[2])) >= 20


def test_held_out_adjectives_never_stand_before_their_nouns_in_train():
    text = " | ".join(" ".join(tokens(english)) for english, _ in phrasebook_pairs("train"))
    for kind, head, noun in phrasebook.held_out_links(WORDS):
        assert kind == "verb" or f" {head} {noun} " not in text


def test_words_of_the_tests_are_known():
    for side in (0, 1):
        known = Counter(word for pair in phrasebook_pairs("train") for word in tokens(pair[side]))
        for split in SPLITS[1:]:
            words = {word for pair in phrasebook_pairs(split) for word in tokens(pair[side])}
            assert all(known[word] >= 3 for word in words)


def test_every_lemma_is_used():
    links = [link for said in sentences()["train"] for link in said.links]
    used = Counter(part for link in links for part in (link[:2], link[2]))
    english = Counter(word for said in sentences()["train"] for word in tokens(said.en))
    assert all(used["adjective", adjective] >= 40 for adjective in WORDS.adjectives)
    assert all(used["verb", verb] >= 40 for verb in VERBS)
    assert all(used[noun] >= 30 for noun in WORDS.nouns if WORDS.nouns[noun].kind != "family")
    assert all(english[word] >= 50 for word in (*NAMES, "father", "wife"))


def test_showcase_is_absent_but_its_words_are_known():
    seen = {text for split in SPLITS for pair in phrasebook_pairs(split) for text in pair}
    words = {word for pair in phrasebook_pairs("train") for text in pair for word in tokens(text)}
    for pair in SHOWCASE:
        assert seen.isdisjoint(pair)
        assert words.issuperset(tokens(" ".join(pair)))


def test_links_of_the_showcase_are_trained():
    links = {link for said in sentences()["train"] for link in said.links}
    assert links >= {
        ("adjective", "old", "doctor"),
        ("adjective", "red", "house"),
        ("verb", "see", "house"),
        ("verb", "lose", "key"),
        ("adjective", "young", "woman"),
        ("adjective", "white", "dress"),
        ("verb", "buy", "dress"),
        ("adjective", "fresh", "strawberry"),
        ("verb", "like", "strawberry"),
        ("verb", "buy", "coat"),
        ("adjective", "old", "castle"),
        ("verb", "watch", "film"),
        ("adjective", "interesting", "film"),
        ("verb", "eat", "apple"),
        ("adjective", "black", "cat"),
    }


@pytest.mark.parametrize(
    ("pattern", "share"),
    [
        (r"\?$", 0.15),
        (r"\b[Nn]on\b", 0.12),
        (r"\b(ho|hai|ha|abbiamo|hanno|sono|è) \w+[td][oaie]\b|\b(ho|ha|hanno) ", 0.15),
        (r"\b(\w+er[òàe]|\w+eranno|\w+rà)\b", 0.04),
        (r"\w+(av|ev|iv)(o|i|a|amo|ano)\b", 0.08),
        (r"\b(dell'|del|dello|della|dei|degli|delle)\b", 0.03),
        (r"\b(nell'|nel|nella|sul|sulla|all'|al|allo|alla|alle|ai|agli)\b", 0.12),
        (r"\b(mio|mia|miei|mie|tuo|tua|tuoi|tue|suo|sua|suoi|sue|nostro|nostra|loro)\b", 0.1),
        (r"\w+r(lo|la|li|le|mi|ti|gli|ci)\b", 0.02),
        (r"(?i)\b(mi|ti|gli|le|ci) piac", 0.015),
        (r"(?i)\b(c'è|ci sono)\b", 0.015),
        (r"\b[Ss]i \w+", 0.02),
        (r"\b(più|meno)\b", 0.02),
        (r"\bche\b", 0.03),
        (r"\b(perché|quando|mentre|ma|se|quindi)\b|^(Perché|Quando|Mentre|Se)\b", 0.06),
        (r"\balle \d+:\d\d\b", 0.01),
        (r"\balle (\w+) e (mezza|un quarto)\b", 0.01),
        (r"\b(ieri|domani|scors[oa]|prossim[oa]|ogni|lunedì|sabato)\b", 0.06),
        (r"\b(due|tre|quattro|cinque|sei|sette|otto|nove|dieci)\b", 0.03),
    ],
)
def test_grammar_is_covered(pattern, share):
    italian = [text for _, text in phrasebook_pairs("train")[::5]]
    assert sum(bool(re.search(pattern, text)) for text in italian) >= share * len(italian)


@pytest.mark.parametrize(
    "slip",
    [
        r"\b(il|i|un|del|dei|quel) (s[^aeiou]|z|gn|ps)",
        r"\b(lo|gli|uno) (?=[bcdfglmprtv])(?!gnocchi)\w+[oia] (rosso|nuov[oi])",
        r"\b(di|a|da|in|su) (il|lo|la|i|gli|le|l')\b",
        r"\b(perche|citta|piu|caffe|e'|puo)\b",
        r"' |  | [,.?!]|[{}_|]",
        r"\b(\w+) \1\b",
        r"^[^A-ZÈ\d]|[^.?!]$",
    ],
)
def test_no_slips_in_italian(slip):
    texts = [italian for split in SPLITS for _, italian in phrasebook_pairs(split)]
    assert not [text for text in texts if re.search(slip, text)]


@pytest.mark.parametrize(
    "slip",
    [
        r"\ba ([aeio]|u(?!ni|se))",
        r"\ban [^aeiouhAEI]",
        r"  | [,.?!]|[{}_|]",
        r"\b(\w+) \1\b",
        r"^[^A-Z\d]|[^.?!]$",
        r"\b(s?he|it) (are|were|don't)\b",
    ],
)
def test_no_slips_in_english(slip):
    texts = [english for split in SPLITS for english, _ in phrasebook_pairs(split)]
    assert not [text for text in texts if re.search(slip, text)]


# --- Italian words


@pytest.mark.parametrize(
    ("word", "form", "article"),
    [
        ("medico", 0, "il"), ("studente", 0, "lo"), ("amico", 0, "l'"), ("zaino", 0, "lo"),
        ("psicologo", 0, "lo"), ("yogurt", 0, "lo"), ("sale", 0, "il"), ("casa", 1, "la"),
        ("amica", 1, "l'"), ("isola", 1, "l'"), ("spiaggia", 1, "la"), ("medici", 2, "i"),
        ("amici", 2, "gli"), ("studenti", 2, "gli"), ("gnocchi", 2, "gli"), ("case", 3, "le"),
        ("amiche", 3, "le"), ("uova", 3, "le"),
    ],
)  # fmt: skip
def test_definite_article(word, form, article):
    assert lexicon.definite(word, form) == article


def test_indefinite_article():
    masculine = ["medico", "amico", "studente", "zoo", "psicologo"]
    assert [lexicon.indefinite(word) for word in masculine] == ["un", "un", "uno", "uno", "uno"]
    assert [lexicon.indefinite(word, True) for word in ("casa", "isola")] == ["una", "un'"]


@pytest.mark.parametrize(
    ("preposition", "contracted"),
    [
        ("di", "del dello dell' della dei degli delle"),
        ("a", "al allo all' alla ai agli alle"),
        ("da", "dal dallo dall' dalla dai dagli dalle"),
        ("in", "nel nello nell' nella nei negli nelle"),
        ("su", "sul sullo sull' sulla sui sugli sulle"),
    ],
)
def test_articulated_prepositions(preposition, contracted):
    articles = ["il", "lo", "l'", "la", "i", "gli", "le"]
    assert [lexicon.contract(preposition, article) for article in articles] == contracted.split()
    assert lexicon.contract("con", "gli") == "con gli"


def test_plurals():
    regular = {"parco": "parchi", "lago": "laghi", "negozio": "negozi", "città": "città",
               "film": "film", "problema": "problemi", "pesce": "pesci"}  # fmt: skip
    assert {word: lexicon.italian_plural(word) for word in regular} == regular
    feminine = {"amica": "amiche", "arancia": "arance", "camicia": "camicie", "spiaggia": "spiagge",
                "valigia": "valigie", "chiave": "chiavi", "farmacia": "farmacie"}  # fmt: skip
    assert {word: lexicon.italian_plural(word, True) for word in feminine} == feminine
    assert WORDS.nouns["doctor"].it == ("medico", "medici")
    assert WORDS.nouns["egg"].it == ("uovo", "uova") and WORDS.nouns["egg"].feminine == (
        False,
        True,
    )


def test_adjectives_agree():
    assert WORDS.adjectives["long"].it == ("lungo", "lunga", "lunghi", "lunghe")
    assert WORDS.adjectives["white"].it == ("bianco", "bianca", "bianchi", "bianche")
    assert WORDS.adjectives["nice"].it == ("simpatico", "simpatica", "simpatici", "simpatiche")
    assert WORDS.adjectives["old"].it == ("vecchio", "vecchia", "vecchi", "vecchie")
    assert WORDS.adjectives["grey"].it == ("grigio", "grigia", "grigi", "grigie")
    assert WORDS.adjectives["big"].it == ("grande", "grande", "grandi", "grandi")
    assert WORDS.adjectives["blue"].it == ("blu",) * 4


@pytest.mark.parametrize(
    ("infinitive", "tense", "forms"),
    [
        ("parlare", "present", "parlo parli parla parliamo parlate parlano"),
        ("cercare", "present", "cerco cerchi cerca cerchiamo cercate cercano"),
        ("mangiare", "present", "mangio mangi mangia mangiamo mangiate mangiano"),
        ("leggere", "present", "leggo leggi legge leggiamo leggete leggono"),
        ("dormire", "present", "dormo dormi dorme dormiamo dormite dormono"),
        ("pulire", "present", "pulisco pulisci pulisce puliamo pulite puliscono"),
        ("andare", "present", "vado vai va andiamo andate vanno"),
        ("essere", "imperfect", "ero eri era eravamo eravate erano"),
        ("fare", "imperfect", "facevo facevi faceva facevamo facevate facevano"),
        ("aprire", "imperfect", "aprivo aprivi apriva aprivamo aprivate aprivano"),
        ("pagare", "future", "pagherò pagherai pagherà pagheremo pagherete pagheranno"),
        (
            "cominciare",
            "future",
            "comincerò comincerai comincerà cominceremo comincerete cominceranno",
        ),
        ("studiare", "future", "studierò studierai studierà studieremo studierete studieranno"),
        ("bere", "future", "berrò berrai berrà berremo berrete berranno"),
    ],
)
def test_conjugation(infinitive, tense, forms):
    assert list(lexicon.conjugate(infinitive, tense)) == forms.split()


def test_participles_and_gerunds():
    assert [lexicon.participle("andare", form) for form in range(4)] == [
        "andato",
        "andata",
        "andati",
        "andate",
    ]
    irregular = ["vedere", "scrivere", "prendere", "bere", "aprire", "conoscere", "piacere"]
    expected = ["visto", "scritto", "preso", "bevuto", "aperto", "conosciuto", "piaciuto"]
    assert [lexicon.participle(verb) for verb in irregular] == expected
    verbs = ["mangiare", "leggere", "dormire", "fare", "bere"]
    assert [lexicon.gerund(verb) for verb in verbs] == [
        "mangiando",
        "leggendo",
        "dormendo",
        "facendo",
        "bevendo",
    ]


# --- English words


def test_english_verbs():
    assert lexicon.english_forms("see") == ("sees", "saw", "seen", "seeing")
    assert lexicon.english_forms("study") == ("studies", "studied", "studied", "studying")
    assert lexicon.english_forms("stop") == ("stops", "stopped", "stopped", "stopping")
    assert lexicon.english_forms("write") == ("writes", "wrote", "written", "writing")
    assert lexicon.english_forms("turn on") == ("turns on", "turned on", "turned on", "turning on")
    assert [lexicon.english_forms(verb)[0] for verb in ("watch", "go")] == ["watches", "goes"]


def test_english_plurals_and_comparatives():
    nouns = ["child", "woman", "knife", "city", "box", "boy", "photo"]
    assert [WORDS.nouns[noun].en[1] for noun in nouns] == [
        "children",
        "women",
        "knives",
        "cities",
        "boxes",
        "boys",
        "photos",
    ]
    assert [lexicon.grade(word, "er") for word in ("big", "happy", "nice", "tall", "useful")] == [
        "bigger", "happier", "nicer", "taller", "more useful",
    ]  # fmt: skip
    superlatives = [lexicon.grade(word, "est") for word in ("easy", "famous")]
    assert superlatives == ["easiest", "most famous"]


# --- Phrases


@pytest.mark.parametrize(
    ("phrase", "english", "italian"),
    [
        (thing("student"), "the student", "lo studente"),
        (thing("student", "the", "young"), "the young student", "il giovane studente"),
        (thing("island", "a"), "an island", "un'isola"),
        (thing("backpack", "a", "new"), "a new backpack", "un nuovo zaino"),
        (thing("garden", "a", "beautiful"), "a beautiful garden", "un bel giardino"),
        (thing("hotel", "this", "beautiful"), "this beautiful hotel", "questo bell'albergo"),
        (thing("shop", "a", "big"), "a big shop", "un grande negozio"),
        (thing("tree", "that", "beautiful", plural=True), "those beautiful trees",
         "quei begli alberi"),
        (thing("cheese", "a", "good"), "a good cheese", "un buon formaggio"),
        (thing("backpack", "that", plural=True), "those backpacks", "quegli zaini"),
        (thing("elephant", "that"), "that elephant", "quell'elefante"),
        (thing("man", "this"), "this man", "quest'uomo"),
        (thing("house", "the", "big", "white"), "the big white house", "la grande casa bianca"),
        (thing("yogurt", "some"), "some yogurt", "dello yogurt"),
        (thing("orange", "some", plural=True), "some oranges", "delle arance"),
        (thing("egg", "all", plural=True), "all the eggs", "tutte le uova"),
        (thing("book", "own", owner=PRONOUNS["I"]), "my book", "il mio libro"),
        (thing("father", "own", owner=PRONOUNS["I"]), "my father", "mio padre"),
        (thing("father", "own", owner=PRONOUNS["they"]), "their father", "il loro padre"),
        (thing("brother", "own", plural=True, owner=NAMES["Anna"]), "her brothers",
         "i suoi fratelli"),
        (thing("uncle", "own", "rich", owner=PRONOUNS["we"]), "our rich uncle",
         "il nostro zio ricco"),
    ],
)  # fmt: skip
def test_noun_phrases(phrase, english, italian):
    assert (phrase.english(), phrase.italian()) == (english, italian)


@pytest.mark.parametrize(
    ("clause", "english", "italian"),
    [
        (Clause(NAMES["Maria"], PLAIN_VERBS["go"], "past"), "Maria went", "Maria è andata"),
        (Clause(thing("girl", plural=True), PLAIN_VERBS["arrive"], "past"),
         "the girls arrived", "le ragazze sono arrivate"),
        (Clause(PRONOUNS["I"], VERBS["see"], "past", object=object_pronoun(NAMES["Anna"])),
         "I saw her", "l'ho vista"),
        (Clause(PRONOUNS["we"], VERBS["buy"], "past", object=object_pronoun(thing("shoes"))),
         "we bought them", "le abbiamo comprate"),
        (Clause(PRONOUNS["he"], VERBS["turn on"], "future", object=object_pronoun(thing("lamp"))),
         "he will turn it on", "la accenderà"),
        (Clause(thing("child"), VERBS["eat"], "now", object=thing("apple", "a")),
         "the child is eating an apple", "il bambino sta mangiando una mela"),
        (Clause(PRONOUNS["she"], VERBS["drink"], "present", NEVER, object=thing("milk", "bare")),
         "she never drinks milk", "non beve mai latte"),
        (Clause(PRONOUNS["you"], VERBS["buy"], "present", NOT, WANT,
                object_pronoun(thing("house"))), "you do not want to buy it", "non vuoi comprarla"),
        (Clause(PRONOUNS["I"], PLAIN_VERBS["get up"], "present", NOT, MUST),
         "I must not get up", "non devo alzarmi"),
        (Clause(NAMES["Anna"], PLAIN_VERBS["wash {own} hands"], "past"),
         "Anna washed her hands", "Anna si è lavata le mani"),
        (Clause(PRONOUNS["they"], VERBS["answer"], "past", object=thing("letter", plural=True)),
         "they answered the letters", "hanno risposto alle lettere"),
        (Clause(NAMES["Luca"], VERBS["feed"], "perfect", object=thing("elephant")),
         "Luca has fed the elephant", "Luca ha dato da mangiare all'elefante"),
        (Clause(PRONOUNS["we"], VERBS["love"], "past", object=thing("sea")),
         "we loved the sea", "amavamo il mare"),
        (Clause(NAMES["Tom"], VERBS["read"], "habit", object=thing("story", "bare", plural=True)),
         "Tom used to read stories", "Tom leggeva storie"),
    ],
)  # fmt: skip
def test_clauses(clause, english, italian):
    assert pair(clause) == (english, italian)


def test_questions():
    clause = Clause(NAMES["Maria"], PLAIN_VERBS["live"], "present")
    assert pair(clause, "q", "i") == ("does Maria live", "abita Maria")
    asked = Clause(PRONOUNS["you"], VERBS["buy"], "past", object=thing("house", "this"))
    assert pair(asked, "q") == ("did you buy this house", "hai comprato questa casa")


def test_templates_agree():
    girls, clock = thing("girl", plural=True), Phrase("ten thirty", "dieci e mezza", "le")
    texts = "{0} {0:is} here at {1}. {0:it} {0:was} late.", "{0} {0:è} qui {1:a}. {0:è} andat{0:o}."
    english = render(texts[0], "english", [girls, clock])
    assert english == "The girls are here at ten thirty. They were late."
    italian = render(texts[1], "italian", [girls, clock])
    assert italian == "Le ragazze sono qui alle dieci e mezza. Sono andate."


def test_the_grammar_tells_the_showcase():
    doctor, house = thing("doctor", "the", "old"), thing("house", "the", "red")
    women, dresses = (
        thing("woman", "the", "young", plural=True),
        thing("dress", "the", "white", plural=True),
    )
    keys, coat, apple = thing("key", plural=True), thing("coat", "this"), thing("apple", "a")
    told = [
        Clause(doctor, VERBS["see"], "present", NOT, object=house),
        Clause(women, VERBS["buy"], "past", object=dresses),
        Clause(PRONOUNS["I"], VERBS["lose"], "past", object=object_pronoun(keys)),
        Clause(PRONOUNS["I"], VERBS["buy"], "present", modal=WANT, object=object_pronoun(coat)),
        Clause(thing("child"), VERBS["eat"], "while", object=apple),
    ]  # fmt: skip
    shown = (
        " ".join(english for english, _ in SHOWCASE),
        " ".join(italian for _, italian in SHOWCASE),
    )
    for clause in told:
        assert clause.english()[1:] in shown[0] and clause.italian()[1:] in shown[1]
