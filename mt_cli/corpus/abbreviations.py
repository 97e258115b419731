"""Words with a full stop that do not end a sentence, and words that often begin one, by language."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mt_cli.corpus.languages import primary


class Abbreviations(NamedTuple):
    """Words before a full stop in small letters, and what follows it."""

    never: frozenset[str]
    """Titles and the like, which are always followed by more of the sentence."""
    before_numbers: frozenset[str]
    """References such as `fig`, which are followed by a number."""
    seldom: frozenset[str]
    """Words that end a sentence only before a word that begins one."""
    starters: frozenset[str]
    """Words that begin sentences and, in the middle of one, have small letters."""
    has_ordinals: bool = False
    """True if a number with a full stop may be an ordinal."""
    is_greek: bool = False
    """True if `;` is the question mark."""


_TABLE = {
    "en": (
        "mr mrs ms dr drs prof mt gen col capt lt sgt rev hon sen rep gov pres messrs cf vs approx i.e e.g",
        "no nos art arts vol fig figs p pp ch chap sec sect eq eqs ex tab para par ed eds app op jan feb mar "
        "apr jun jul aug sep sept oct nov dec",
        "etc inc ltd co corp jr sr dept est al ave blvd rd st",
        "the a an he she it we they i you this that these those there his her their our my your but and so if "
        "when where what who how then in on at as after before all some no not now please",
    ),
    "de": (
        "hr hrn fr dr drs prof dipl ing st bzw vgl sog inkl exkl evtl ggf z d zzgl gem lt fa geb gest betr dt "
        "engl frz lat bes",
        "nr nrn art abs bd abb kap tab s ss seite ziff anm str tel hausnr jan feb mrz apr jun jul aug sep sept "
        "okt nov dez",
        "mio mrd tsd ca etc usw usf std min sek chr jh jhd u.a o.ä jr z.b d.h u.a max",
        "der die das den dem er sie es wir ich ihr du dies diese dieser dieses ein eine einer aber und so wenn "
        "dann doch da dort hier nun alle im am in auf bei mit nach vor sein seine ihre unser mein",
    ),
    "it": (
        "sig sigg dott prof prof.ssa sig.ra dott.ssa avv ing arch geom rag sen gen cap s ss p.es es cfr vs",
        "art artt pag pagg p pp vol fig cap n nr tab par all sez gen feb mar apr mag giu lug ago set sett ott nov dic",
        "mln mld ecc tel ca spa srl jr col on",
        "il lo la i gli le un una lui lei noi voi loro io tu è questo questa quello quella ma e se quando poi "
        "anche non che chi dove come nel in a per con dopo ora così si",
    ),
    "fr": (
        "m mm mme mmes mlle mlles dr me pr prof st ste cf env av apr vs ex",
        "art p pp vol fig chap n no tab al § éd janv févr avr juil sept oct nov déc",
        "etc tél bd j.-c mio mds cie",
        "le la les l un une des il elle ils elles nous vous je tu on ce cette ces mais et si quand puis aussi "
        "c'est dans en à par pour avec après",
    ),
    "es": (
        "sr sra sres sras srta dr dra dres prof lic ing arq d dña gral cnel vs p.ej ej sto sta",
        "art arts pág págs p pp vol fig cap núm núms n tel av avda tab sec ene feb mar abr jun jul ago sep "
        "sept oct nov dic",
        "etc ud uds vd vds ee uu aprox cía jr",
        "el la los las un una él ella ellos ellas nosotros yo tú este esta ese esa pero y si cuando luego "
        "también no en a por con después gracias fue es",
    ),
    "pt": (
        "sr sra srs sras dr dra prof profa eng d st sto sta ex vs",
        "art arts pág págs p pp vol fig cap núm n tel av r tab jan fev mar abr mai jun jul ago set out nov dez",
        "etc aprox cia ltda mi",
        "o a os as um uma ele ela eles elas nós eu tu este esta esse essa mas e se quando depois também não em no na",
    ),
    "nl": (
        "dhr mevr mw dr drs mr ir ing prof st ds bijv vgl resp evt incl excl max min zgn ca",
        "nr nrs art blz p pp fig afb tab hfst bd vol jan feb mrt apr jun jul aug sep sept okt nov dec",
        "mln mld enz tel jr",
        "de het een hij zij ze we wij ik jij je u dit dat deze die maar en als toen dan er hier daar in op na ook",
    ),
    "pl": (
        "p prof dr hab inż mgr św ks gen por ppor płk np tzw ww por zob tj",
        "nr str s ss rys tab art ust rozdz godz poz pkt t",
        "mln mld tys itd itp m.in r w zł gr tel sp ul pl im al red",
        "to ten ta te on ona oni one my wy ja ty ale i a więc jeśli kiedy potem tak nie w na po jest",
    ),
    "cs": (
        "p pí dr mgr ing prof doc sv např tzv tj resp popř vč ul nám gen",
        "č čís str s obr tab kap odst čl",
        "mil mld tis atd apod aj kč r tel cca",
        "to ten ta te on ona oni my vy já ty ale a když pak tak ne v na po je",
    ),
    "ru": (
        "г-н г-жа проф акад доц св ср напр т.е т.к гр ген",
        "рис табл стр с гл п пп см ст № разд илл янв февр авг сент окт нояб дек",
        "млн млрд тыс руб коп г гг в вв др т.д т.п т.н н.э кг см мм км тел им ул пр пер",
        "он она оно они мы вы я ты это этот эта эти но и а если когда потом так не в на по там тут всё все",
    ),
    "uk": (
        "п проф акад доц св напр т.зв ген",
        "рис табл стор с гл ст див розд №",
        "млн млрд тис грн р рр ін т.д т.п ст тел ім вул",
        "він вона воно вони ми ви я ти це цей ця ці але і й а якщо коли потім так не в у на по там",
    ),
    "el": (
        "κ κα δρ καθ βλ π.χ δηλ λ.χ αγ πρβλ",
        "σελ σ αρ αριθ εικ πιν κεφ τόμ παρ ιαν φεβ",
        "κ.λπ κλπ κ.ά κ.τ.λ εκ δισ τηλ μ.χ",
        "ο η το οι τα ένας μια αυτός αυτή αυτό εγώ εσύ εμείς αλλά και αν όταν μετά ναι όχι δεν εδώ εκεί",
    ),
    "tr": (
        "dr prof doç müh sn alb gen yrd bkz örn hz apt blv krş",
        "no sf s sh şek tab böl md cilt",
        "mr vb vd vs mn tel yy av sok cad mah bul",
        "bu şu o biz siz ben sen onlar ama ve eğer sonra evet hayır bir",
    ),
    "sv": (
        "hr fr dr prof jfr bl.a t.ex s.k resp inkl",
        "nr s sid fig tab kap art bd",
        "milj mdr osv m.m m.fl jan feb apr aug sept okt nov dec tel kl ca st",
        "den det de han hon vi ni jag du en ett men och om när sedan så här där i på",
    ),
    "da": (
        "hr fr dr prof st jf bl.a f.eks ca inkl",
        "nr s fig tab kap art bd §",
        "mio mia osv m.m m.fl jan feb apr aug sept okt nov dec tlf kl",
        "den det de han hun vi i jeg du en et men og hvis når så her der på",
    ),
    "hi": ("डॉ श्री प्रो पं श्रीमती सु", "पृ सं क्र", "", ""),
    "ar": ("د أ م", "ص", "", ""),
}
"""For each language: `never`, `before_numbers`, `seldom` and `starters`."""
_SAME_AS = {"nb": "da", "no": "da", "nn": "da", "sk": "cs", "be": "ru", "bg": "ru", "mr": "hi", "gl": "pt", "ca": "es"}
_ORDINALS = "bs cs da de et fi fo hr hu is lb lt lv nb nn no pl sk sl sr tr"
_WITH_ORDINALS = frozenset(_ORDINALS.split())


def _abbreviations(rows: Iterable[Sequence[str]]) -> Abbreviations:
    """Abbreviations in rows of `_TABLE`, together."""
    never, before_numbers, seldom, starters = (frozenset(" ".join(words).split()) for words in zip(*rows, strict=True))
    return Abbreviations(never, before_numbers, seldom, starters)


_OTHER = _abbreviations(_TABLE.values())
"""Abbreviations of all languages, for languages that are not listed."""
_BY_LANGUAGE: dict[str, Abbreviations] = {}


def abbreviations_of(language: str) -> Abbreviations:
    if language not in _BY_LANGUAGE:
        code = primary(language) if language else ""
        row = _TABLE.get(_SAME_AS.get(code, code))
        known = _abbreviations([row]) if row else _OTHER
        _BY_LANGUAGE[language] = known._replace(
            has_ordinals=not code or code in _WITH_ORDINALS, is_greek=code in ("el", "grc")
        )
    return _BY_LANGUAGE[language]
