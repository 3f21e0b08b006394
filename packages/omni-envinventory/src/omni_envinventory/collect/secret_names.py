"""Which names promise a secret, judged by whole words: ``DB_PASSWD`` does, ``PASSED`` and ``AUTHORS`` do not."""

from __future__ import annotations

import itertools
import re

_SPLIT = re.compile(r"[^A-Za-z0-9]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_ALWAYS = frozenset(
    {
        "PASSWORD",
        "PASSWORDS",
        "PASSWD",
        "PASSPHRASE",
        "PASSPHRASES",
        "SECRET",
        "SECRETS",
        "CREDENTIAL",
        "CREDENTIALS",
        "CREDS",
        "AUTHORIZATION",
        "APIKEY",
        "APIKEYS",
        "ACCESSKEY",
        "PRIVATEKEY",
        "SSHKEY",
        "JWT",
        "BEARER",
        "COOKIE",
        "COOKIES",
        "DSN",
        "SAS",
        "SIGNATURE",
        "SIG",
        "HMAC",
        "WEBHOOK",
        "CONNSTR",
        "PRIVKEY",
        "NONCE",
        "PASSCODE",
        "KUBECONFIG",
        "NETRC",
        "HTPASSWD",
        "PGPASS",
    }
)
"""Words that make a name secret wherever they stand."""

_ENDINGS = ("PASSWORD", "PASSWD", "APIKEY", "SECRET", "PASSPHRASE", "ACCESSTOKEN", "AUTHTOKEN", "SECRETKEY", "TOKEN")
"""Compounds written as one word."""

_HARMLESS_BEFORE_KEY = frozenset(
    {
        "PUBLIC",
        "CACHE",
        "SORT",
        "PRIMARY",
        "PARTITION",
        "FOREIGN",
        "HOT",
        "INDEX",
        "GROUP",
        "ROUTING",
        "ARROW",
        "HOST",
        "DICT",
        "CONFIG",
        "METRIC",
        "LABEL",
        "COLUMN",
        "DATASET",
        "TEXT",
        "PROMPT",
        "IDEMPOTENCY",
    }
)
_HARMLESS_AFTER_KEY = frozenset(
    {
        "PREFIX",
        "SUFFIX",
        "SIZE",
        "LENGTH",
        "LEN",
        "TYPE",
        "COUNT",
        "BITS",
        "ALGORITHM",
        "ROTATION",
        "NAME",
        "NAMES",
        "VALUE",
        "REPEAT",
        "VAULT",
        "MAP",
        "CACHE",
        "ERROR",
        "FRAMES",
        "FRAME",
    }
)
_HARMLESS_AFTER_TOKEN = frozenset(
    {
        "LIMIT",
        "LIMITS",
        "COUNT",
        "COUNTS",
        "BUDGET",
        "LEN",
        "LENGTH",
        "SIZE",
        "TYPE",
        "TTL",
        "EXPIRY",
        "RATE",
        "BATCH",
        "DIM",
        "BUCKET",
        "BUCKETS",
        "HANDLER",
        "IDS",
        "ID",
        "PRUNING",
        "MERGING",
        "DROP",
        "DROPPING",
        "LEVEL",
        "EMBEDDING",
        "MASK",
    }
)
_COUNTED_BEFORE = frozenset(
    {
        "MAX",
        "MIN",
        "NUM",
        "BATCHED",
        "NEW",
        "INPUT",
        "OUTPUT",
        "PROMPT",
        "PREFILL",
        "DECODE",
        "TOTAL",
        "PER",
        "SPECIAL",
        "STOP",
        "CONTEXT",
        "AUDIO",
        "IMAGE",
        "TEXT",
        "GENERATED",
        "COMPLETION",
        "DRAFT",
        "SPECULATIVE",
        "LEN",
        "IGNORE",
        "EOS",
        "BOS",
        "PAD",
        "MASK",
        "SEP",
        "CLS",
        "UNK",
        "END",
        "START",
        "CHUNK",
        "VIDEO",
        "MODEL",
        "OF",
        "COUNT",
        "LAST",
        "FIRST",
        "NEXT",
    }
)
_HARMLESS_BEFORE_PASS = frozenset(
    {
        "FIRST",
        "SECOND",
        "TWO",
        "SINGLE",
        "ONE",
        "MULTI",
        "BY",
        "FORWARD",
        "BACKWARD",
        "FAST",
        "LAST",
        "RENDER",
        "NUM",
        "MAX",
        "ALLOW",
    }
)
_SECRET_AFTER_AUTH = frozenset(
    {"HEADER", "HEADERS", "STRING", "DATA", "BLOB", "VALUE", "CODE", "INFO", "CONFIG", "JSON", "KEY"}
)


def words(name: str) -> list[str]:
    """The words of a name, upper-cased; ``githubToken`` has two."""
    return [word.upper() for part in _SPLIT.split(name) if part for word in _CAMEL.split(part) if word]


def is_secret_name(name: str) -> bool:
    """Whether a variable, a JSON key or a parameter of this name is expected to hold a secret."""
    parts = words(name)
    if not parts:
        return False
    if len(parts) == 1 and parts[0] in ("PWD", "OLDPWD"):
        return False  # the shell's working folder
    for position, word in enumerate(parts):
        before = parts[position - 1] if position else ""
        after = parts[position + 1] if position + 1 < len(parts) else ""
        if _secret_word(word, before, after):
            return True
    pairs = {a + b for a, b in itertools.pairwise(parts)}
    return bool(pairs & {"CONNECTIONSTRING", "SERVICEACCOUNT", "DATABASEURL", "REDISURL", "MONGOURI", "BROKERURL"}) or (
        "CONN" in parts and "STR" in parts
    )


def _secret_word(word: str, before: str, after: str) -> bool:
    if word in _ALWAYS:
        return True
    if word == "PWD":
        return True
    if word in ("TOKEN", "TOKENS"):
        return before not in _COUNTED_BEFORE and after not in _HARMLESS_AFTER_TOKEN
    if word in ("KEY", "KEYS"):
        return before not in _HARMLESS_BEFORE_KEY and after not in _HARMLESS_AFTER_KEY
    if word == "PASS":
        return not after and before not in _HARMLESS_BEFORE_PASS
    if word in ("AUTH", "OAUTH"):
        return not after or after in _SECRET_AFTER_AUTH
    if word in ("PAT", "PIN", "OTP", "TOTP", "MFA"):
        return not after and bool(before)
    return len(word) > 5 and word.endswith(_ENDINGS) and word != "BETOKEN"
