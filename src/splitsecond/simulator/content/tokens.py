"""The tokens of simulated providers: how a prompt is counted, and the words of a response.

A prompt has one token for every four characters begun, and a chat some more for its template. A
client does not know it, as with a real provider, so it must calibrate its prompts by the reported
usage.
"""

from splitsecond.core.service import Operation

CHARACTERS_PER_TOKEN = 4
CHAT_TEMPLATE_TOKENS = 11

_TEXT = (
    "A simulated provider says nothing of interest , but it says each word at a time that was "
    "fixed before . "
    "Any careful client can note when a word came in and compare that with when it was sent . "
    "What lies between the two is the way through the machine and the error of the watch ."
)
_WORDS = tuple(_TEXT.split())


def count_tokens(operation: Operation, text: str) -> int:
    template = CHAT_TEMPLATE_TOKENS if operation == "chat" else 0
    return max(1, template + -(-len(text) // CHARACTERS_PER_TOKEN))


def token_text(index: int) -> str:
    word = _WORDS[index % len(_WORDS)]
    return word if index == 0 or word in ",." else f" {word}"
