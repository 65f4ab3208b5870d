"""Plain, frequent English words of three letters and more, each one token for nearly every
tokenizer, so that the length of a prompt in tokens is linear in its length in words. There are 256,
so that one byte picks one."""

from hashlib import blake2b
from itertools import accumulate
from random import Random

NONCE_WORDS = 7
_WORD_LIST = """
about above across act add after again age air all also always among and animal answer any appear
apple area arm art ask autumn baby back bad bag ball band bank base basket bath bay beach bear
beat beauty bed before begin behind bell below best big bird black blue board boat body bone book
born both bottle bottom box boy branch brave bread break bridge bright bring broad brother brown
build burn bus busy butter buy cake call calm camp can captain car card care carry case castle cat
catch cause center certain chair change check child choose church circle city class clean clear
climb clock close cloth cloud coat coffee cold color come common cook cool copper corn corner cost
count country course cover cream cross crowd cup cut dance dark daughter day deep desk dinner
doctor dog door double down draw dream dress drink drive dry early earth east easy eat edge egg
eight empty end engine enough enter evening ever every exact eye face fact fair fall family far
farm fast father feel field fight fill find fine finger fire first fish five flag flat floor
flower fly follow food foot forest form forward four free fresh friend front fruit full garden
gate gather gentle girl give glad glass gold good grand grass gray great green ground group grow
guess guide hair half hall hand happy harbor hard hat head hear heart heat heavy help high hill
history hold home honey hope horse hot hour house hundred idea iron island journey kitchen
"""
WORDS: tuple[str, ...] = tuple(_WORD_LIST.split())


def picked(name: str, count: int) -> str:
    return " ".join(WORDS[pick] for pick in blake2b(name.encode(), digest_size=count).digest())


class Filler:
    """A pool of `most` random words, joined by spaces."""

    def __init__(self, seed: int, most: int) -> None:
        words = Random(seed).choices(WORDS, k=most)
        self._text = " ".join(words)
        self._ends = [0, *accumulate(len(word) + 1 for word in words)]

    def words(self, count: int, begin: int = 0) -> str:
        """Return `count` words of the pool from word `begin` on, from its beginning again after its
        end."""
        parts = []
        while count > 0:
            begin %= len(self._ends) - 1
            end = min(begin + count, len(self._ends) - 1)
            parts.append(self._text[self._ends[begin] : self._ends[end] - 1])
            count -= end - begin
            begin = end
        return " ".join(parts)
