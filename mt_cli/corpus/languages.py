"""What little is known of languages: their scripts, and for some the words that every text in them is full of."""

from __future__ import annotations

_SCRIPTS_OF = {
    "Latin": "af az bs ca cs cy da de en es et eu fi fo fr ga gd gl hr ht hu id is it la lb lt lv mg mi ms mt nb nl nn "
    "no oc pl pt rm ro se sk sl so sq sv sw tl tr uz vi wo xh yo zu",
    "Cyrillic": "be bg kk ky mk mn ru tg tt uk",
    "Greek": "el",
    "Arabic": "ar ckb fa ps ug ur",
    "Hebrew": "he yi",
    "Devanagari": "hi mr ne sa",
    "Bengali": "as bn",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Sinhala": "si",
    "Tamil": "ta",
    "Telugu": "te",
    "Thai": "th",
    "Lao": "lo",
    "Khmer": "km",
    "Myanmar": "my",
    "Georgian": "ka",
    "Armenian": "hy",
    "Ethiopic": "am ti",
    "Han": "zh yue",
    "Han Hiragana Katakana": "ja",
    "Hangul Han": "ko",
}
_SCRIPTS = {code: scripts for scripts, codes in _SCRIPTS_OF.items() for code in codes.split()}

_COMMON_WORDS = {
    "ca": "els les amb és una per què del als aquest aquesta però més molt està són el la de un en i a que no si "
    "tot ha seva on",
    "cs": "je se že na si jsem jsou byl ale jako které který pro tak jsme není v s z k o po do a i když už mě mi ho "
    "to ten od za",
    "da": "og det er en af på til ikke jeg der har med var et den vi kan de som men så at han hun mig dig sig i om "
    "ved ud op",
    "de": "der die und das ist ein eine nicht ich zu mit auf dem den sich von im in am an des eines einer einem "
    "einen für er sie es wir wird bei aus wie vor nach über sind hat",
    "en": "the and of is to a that it was with his you are this for not in on at an as be by he she they we or from "
    "her have has out up who there while",
    "es": "el los las una que y es con por para pero se del está más muy la un en lo al su sus de o a sin sobre ha "
    "dos hay fue",
    "fi": "ja on ei se että hän oli mutta ovat kun niin tämä sen joka en hänen ne jos mitä tai ole olen tässä",
    "fr": "le les et des une est dans qui que pas pour il elle du sur avec un à en au aux ce cette son sa ses se d "
    "l n s ne plus vous nous on par deux",
    "hu": "az és hogy nem egy ez van volt is meg csak de mint ki a e ha én te ő mert vagy be le fel már nagyon",
    "id": "yang dan di ini itu dengan untuk tidak dari pada adalah ke saya akan ada anda dia kami bisa sebuah "
    "seorang atau oleh telah",
    "it": "il che di non gli una è per del della con sono ha le nel più la un in a i lo l al dei da e si su due "
    "dell dal nella alla mi se",
    "nl": "het een van en de is niet dat ik op te zijn met voor aan in er die of door bij uit als naar om hij zij "
    "wij je man",
    "no": "og det er en av på til ikke jeg som har med var et den vi kan de men så at han hun meg deg seg i om ved "
    "ut opp",
    "pl": "się nie na jest że w z do to jak ale są był przez tym i a o po za od co tak już dla przed nad",
    "pt": "os uma não que e é com do da em para mas um por ele são a o no na ao dos das de se seu sua dois à foi",
    "ro": "și nu este pe cu din care un o că să la mai sunt fost a în al ai ale de cel cea lui sau fi doi",
    "ru": "и в не на что он с как это по но она из был мы к у о а же за от бы так то вы мне все его для",
    "sv": "och det är en att av på inte jag som har med var ett den vi i de men så om han hon mig dig sig vid ut "
    "upp från två",
    "tr": "bir ve bu da de için çok ama ne mi olarak daha değil var gibi o şu ile en mu ben sen biz iki",
    "uk": "і в не на що він з як це та але вона від був ми у о а до за так то ви мені все його для",
}
COMMON_WORDS = {code: frozenset(words.split()) for code, words in _COMMON_WORDS.items()}
COMMON_WORDS["nb"] = COMMON_WORDS["no"]
"""Function words of some languages, lower case, for telling one from another."""


def primary(code: str) -> str:
    """The language of a code, without region and script: `pt` of `pt_BR`."""
    return code.replace("_", "-").partition("-")[0].lower()


def scripts_of(language: str) -> tuple[str, ...] | None:
    """Unicode names of the scripts that a language is written in; None if they are not known here."""
    parts = language.replace("_", "-").split("-")
    if any(len(part) == 4 and part.isalpha() for part in parts[1:]):
        return None  # A script of its own choice, such as `sr-Latn`.
    scripts = _SCRIPTS.get(parts[0].lower())
    return tuple(scripts.split()) if scripts else None


def language_of(words: frozenset[str] | set[str]) -> str | None:
    """The known language that most of its common words point to, if at least two do."""
    hits = {code: len(common & words) for code, common in COMMON_WORDS.items()}
    best = max(hits, key=lambda code: hits[code])
    return best if hits[best] >= 2 else None


SPACELESS = (
    "\u0e00-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u19e0-\u19ff"  # Thai to Tibetan, Myanmar, Khmer.
    "\u2e80-\u312f\u3190-\u31ff\u3220-\u325f\u3280-\u9fff\uf900-\ufaff"  # Han, kana, Bopomofo and their marks.
    "\ufe10-\ufe1f\ufe30-\ufe4f\uff00-\uff20\uff3b-\uff40\uff5b-\uff9f\uffe0-\uffef"  # Full width, but for letters.
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"  # Rare kana and Han.
)
"""Characters of the scripts that have no spaces between words, for use within the brackets of a regular expression."""

_SPACELESS_CODES = "bo dz ja km lo my th yue zh bod cmn dzo jpn khm lao mya tha wuu zho"
_SPACELESS_SCRIPTS = "bopo hani hans hant hira jpan kana khmr laoo mymr thai tibt"


def writes_spaces(language: str) -> bool:
    """Whether a language has spaces between its words: all but those that are known to do without, such as `jpn_Jpan`.

    A script in the code decides by itself: `zh-Latn` has spaces.
    """
    first, *others = language.replace("_", "-").lower().split("-")
    script = next((part for part in others if len(part) == 4 and part.isalpha()), None)
    return first not in _SPACELESS_CODES.split() if script is None else script not in _SPACELESS_SCRIPTS.split()
