"""What little is known of languages: codes, scripts, how BLEU cuts their text, and for some their commonest words."""

from __future__ import annotations

_SCRIPTS_OF = {
    "Latin": "af az bs ca cs cy da de en es et eu fi fo fr ga gd gl hr ht hu id is it la lb lt lv mg mi ms mt nb nl nn "
    "no oc pl pt rm ro se sk sl so sq sv sw tl tr uz vi wo xh yo zu",
    "Cyrillic": "be bg kk ky mk mn ru tg tt uk",
    "Greek": "el",
    "Tibetan": "bo dz",
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
    "her have has out up who there while i do what my can if all how when will would must",
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


_LONG_CODES = (
    "af:afr am:amh ar:ara,arb be:bel bg:bul bn:ben bo:bod,tib bs:bos ca:cat cs:ces,cze cy:cym da:dan de:deu,ger dz:dzo "
    "el:ell,gre en:eng es:spa et:est eu:eus fa:fas,per,pes fi:fin fr:fra,fre ga:gle gl:glg gu:guj he:heb hi:hin "
    "hr:hrv hu:hun hy:hye id:ind is:isl it:ita ja:jpn ka:kat kk:kaz km:khm kn:kan ko:kor ky:kir lo:lao lt:lit "
    "lv:lav,lvs mk:mkd ml:mal mn:mon mr:mar ms:msa,zsm my:mya,bur nb:nob ne:nep nl:dut,nld nn:nno no:nor pa:pan "
    "pl:pol pt:por ro:ron,rum ru:rus si:sin sk:slk sl:slv so:som sq:sqi sv:swe sw:swa,swh ta:tam te:tel tg:tgk "
    "th:tha ti:tir tl:tgl tr:tur uk:ukr ur:urd uz:uzn vi:vie yi:yid zh:chi,cmn,zho zu:zul"
)
_ENTRIES = (entry.partition(":") for entry in _LONG_CODES.split())
_SHORT_CODES = {long: short for short, _, longs in _ENTRIES for long in longs.split(",")}
"""ISO 639-1 codes by those of ISO 639-2 and 639-3."""
_SCRIPT_CODES = {
    **{"arab": "Arabic", "armn": "Armenian", "beng": "Bengali", "cyrl": "Cyrillic", "deva": "Devanagari"},
    **{"ethi": "Ethiopic", "geor": "Georgian", "grek": "Greek", "gujr": "Gujarati", "guru": "Gurmukhi"},
    **{"hang": "Hangul Han", "hans": "Han", "hant": "Han", "hebr": "Hebrew", "jpan": "Han Hiragana Katakana"},
    **{"khmr": "Khmer", "knda": "Kannada", "laoo": "Lao", "latn": "Latin", "mlym": "Malayalam", "mymr": "Myanmar"},
    **{"sinh": "Sinhala", "taml": "Tamil", "telu": "Telugu", "thai": "Thai", "tibt": "Tibetan"},
}


def primary(code: str) -> str:
    """The language of a code, without region and script, of two letters if it has such a code: `pt` of `por_BR`."""
    language = code.replace("_", "-").partition("-")[0].lower()
    return _SHORT_CODES.get(language, language)


def scripts_of(language: str) -> tuple[str, ...] | None:
    """Unicode names of the scripts that a language is written in, or that its code names; None if unknown here."""
    script = _script_of(language)
    scripts = _SCRIPTS.get(primary(language)) if script is None else _SCRIPT_CODES.get(script)
    return tuple(scripts.split()) if scripts else None


def _script_of(language: str) -> str | None:
    """The script that a code names, in small letters: `hans` of `zho_Hans`."""
    for subtag in language.replace("_", "-").lower().split("-")[1:]:
        if len(subtag) == 1:  # What follows is an extension or private.
            return None
        if len(subtag) == 4 and subtag.isalpha():
            return subtag
    return None


def writes_spaces(language: str) -> bool:
    """Whether a language has spaces between its words: all but those that are known to do without, such as `jpn_Jpan`.

    A script in the code decides by itself: `zh-Latn` has spaces.
    """
    script = _script_of(language)
    if script in _SPACELESS_SCRIPTS:
        return False
    return script in _SCRIPT_CODES or primary(language) not in _SPACELESS_LANGUAGES


def marks_words(language: str) -> bool:
    """Whether words, or at least syllables as in Tibetan, are told by spaces or marks."""
    return writes_spaces(language) or primary(language) in ("bo", "dz")


def bleu_tokenizer(language: str) -> str:
    """The sacreBLEU tokenizer that suits a language: `13a`, but `zh` or `char` where spaces do not part words.

    Korean has spaces, but its words are what phrases are elsewhere; `ko-mecab` and `ja-mecab`, which sacreBLEU advises,
    need packages, and a score should not depend on what is installed.
    """
    if writes_spaces(language):
        return "char" if primary(language) == "ko" and _script_of(language) != "latn" else "13a"
    return "zh" if primary(language) in CHINESE else "char"


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

CHINESE = frozenset({"cdo", "gan", "hak", "hsn", "lzh", "nan", "wuu", "yue", "zh"})
"""The Chinese languages."""
_SPACELESS_LANGUAGES = CHINESE | {"bo", "dz", "ja", "km", "lo", "my", "nod", "shn", "th"}
_SPACELESS_SCRIPTS = frozenset(
    {"bopo", "hani", "hans", "hant", "hira", "hrkt", "jpan", "kana", "khmr", "laoo", "mymr", "thai", "tibt"}
)
