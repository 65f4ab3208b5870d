"""The simulator's tokens: a rule to count a prompt by, and words to answer with.

A prompt counts a token for every four characters begun, and a chat the template around it: a rule that anyone can
check, that costs nothing however long the prompt is, and that a client does not know beforehand, as with a real
provider; it has to calibrate itself by the usage it is told.
"""

from splitsecond.service import Operation

CHARACTERS_PER_TOKEN = 4
CHAT_TEMPLATE_TOKENS = 11

_TEXT = (
    "A simulated provider says nothing of interest , but it says each word at a time that was fixed before . "
    "Whoever reads along can note when a word came in and compare that with when it was sent . "
    "What lies between the two is the way through the machine and the error of the watch ."
)
_WORDS = tuple(_TEXT.split())


def count_tokens(operation: Operation, text: str) -> int:
    """How many tokens a prompt counts; at least 1."""
    template = CHAT_TEMPLATE_TOKENS if operation == "chat" else 0
    return max(1, template + -(-len(text) // CHARACTERS_PER_TOKEN))


def token_text(index: int) -> str:
    """The text of an answer's token `index` (from 0)."""
    word = _WORDS[index % len(_WORDS)]
    return word if index == 0 or word in ",." else f" {word}"
