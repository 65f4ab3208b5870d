"""The tiny model's vocabulary: bytes, common English words, and the prefixes of these words.

llama.cpp tokenizes by byte-level BPE: it cuts a text into words, each with the space before it,
starts from bytes and joins neighbours by a ranked list of merges. Training such a list takes a
library and a corpus, and another corpus gives another model. So it is not trained: the merges are
the branches of a trie. For " the" the trie has " t", " th" and " the", and each merge adds one
letter, so a listed word becomes one token, and other text its longest listed prefix and single
bytes.

Bytes are encoded as in GPT-2, each as one printable character.
"""

import itertools
from typing import NamedTuple

BEGIN, END = "<|begin|>", "<|end|>"

_WORDS = """
the of and to in is that it for was on are as with they be at this have from or one had by word
but not what all were we when your can said there use an each which she do how their if will up
other about out many then them these so some her would make like him into time has look two more
write go see number no way could people my than first water been call who oil its now find long
down day did get come made may part over new sound take only little work know place year live me
back give most very after thing our just name good sentence man think say great where help through
much before line right too mean old any same tell boy follow came want show also around form three
small set put end does another well large must big even such because turn here why ask went men
read need land different home us move try kind hand picture again change off play spell air away
animal house point page letter mother answer found study still learn should world high every near
add food between own below country plant last school father keep tree never start city earth eye
light thought head under story saw left few while along might close something seem next hard open
example begin life always those both paper together got group often run important until children
side feet car mile night walk white sea began grow took river four carry state once book hear stop
without second later miss idea enough eat face watch far real almost let above girl sometimes
mountain cut young talk soon list song being leave family body music color stand sun question fish
area mark dog horse bird problem complete room knew since ever piece told usually friend easy
heard order red door sure become top ship across today during short better best however low hour
black product happen whole measure remember early wave reach listen wind rock space cover fast
several hold himself toward five step morning pass vowel true hundred against pattern numeral
table north slow money map farm pull draw voice power town fine certain fly fall lead cry dark
machine note wait plan figure star box noun field rest correct able pound done beauty drive stood
contain front teach week final gave green oh quick develop ocean warm free minute strong special
mind behind clear tail produce fact street inch multiply nothing course stay wheel full force blue
object decide surface deep moon island foot system busy test record boat common gold possible
plane stead dry wonder laugh thousand ago ran check game shape equate hot miss brought heat snow
tire bring yes distant fill east paint language among
"""


class VocabularyToken(NamedTuple):
    """One entry of the vocabulary, in GPT-2's alphabet.

    A `mark` separates messages. A `word` is a listed word, which the model can output. Other tokens
    are bytes and prefixes of words, which occur only in prompts.
    """

    text: str
    mark: bool = False
    word: bool = False


class Vocabulary(NamedTuple):
    """`tokens` in the order of their ids; `merges` in the order in which they apply, each "left
    right"."""

    tokens: list[VocabularyToken]
    merges: list[str]


def gpt2_alphabet() -> list[str]:
    """Return the printable character of each byte: itself if it is visible Latin-1, or else one
    from U+0100 on."""
    visible = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    stand_in = itertools.count(256)
    return [chr(byte if byte in visible else next(stand_in)) for byte in range(256)]


def build() -> Vocabulary:
    alphabet = gpt2_alphabet()
    words = {alphabet[ord(" ")] + word for word in _WORDS.split()}
    beginnings = {word[:length] for word in words for length in range(2, len(word) + 1)}
    branches = sorted(beginnings, key=lambda text: (len(text), text))
    tokens = [
        *(VocabularyToken(text, mark=True) for text in (BEGIN, END)),
        *(VocabularyToken(text) for text in alphabet),
        *(VocabularyToken(text, word=text in words) for text in branches),
    ]
    return Vocabulary(tokens, merges=[f"{text[:-1]} {text[-1]}" for text in branches])
