"""What of a value may be shown. Anything suspicious hides the whole value; only a lone URL keeps its harmless parts.

A masked value is always the same text, so that it shows no prefix, suffix or length.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import re
import unicodedata
import urllib.parse
from collections.abc import Iterable
from typing import Any

from .secret_names import is_secret_name

MASK = "<masked>"
MAX_SHOWN = 400
"""Characters of a harmless value that are shown; the rest is left out, and said so."""

MAX_SCANNED = 200_000
"""Longer values are masked unseen."""

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>[^\s\"'<>]*)")
_PEM = re.compile(r"-----\s*BEGIN|BEGIN [A-Z ]*(?:KEY|CERTIFICATE)|ssh-(?:rsa|ed25519|dss)\s|PuTTY-User-Key")
_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|api_org_|sk-|sk_|pk_live_|rk_live_|rk_test_|whsec_|gh[pousr]_|github_pat_|glpat-|gloas-|gldt-|glrt-|"
    r"xox[abeoprs]-|xapp-|AKIA|ASIA|AROA|AIza|ya29\.|1//0|eyJ|npm_|pypi-|dckr_pat_|dop_v1_|nvapi-|SG\.|shp(?:at|ss|ca|pa)_|"
    r"sq0(?:atp|csp)-|EAAC|key-|lin_api_|secret_|ntn_|r8_|gsk_|xai-|sntrys_|sbp_|hvs\.|hvb\.|s\.|vault:|tfp_|AGE-SECRET-KEY-|"
    r"fo1_|figd_|glsa_|NRAK-|dapi|rnd_|pat[A-Z0-9])[A-Za-z0-9_./+=-]{8,}"
)
_SCHEME_TOKEN = re.compile(
    r"(?i)\b(?:bearer|basic|negotiate|digest|token|apikey|aws4-hmac-sha256)\s+[A-Za-z0-9+/_.=~-]{4,}"
)
_PAIR = re.compile(
    r"""["']?(?P<key>[A-Za-z][A-Za-z0-9_.\- ]{0,60}?)["']?\s*(?:=>|[:=])\s*["']?(?P<value>[^\s"',;&]+)"""
)
_FLAG = re.compile(r"(?:^|\s)--?(?P<key>[A-Za-z][A-Za-z0-9_-]*)[\s=]+(?P<value>[^\s-][^\s]*)")
_USER_FLAG = re.compile(r"(?:^|\s)(?:-u|--user)[\s=]*[^\s:]+:[^\s]+")
_USERINFO = re.compile(r"(?:^|[\s,;=\"'(])[^\s/@:,;\"']+:[^\s/@]*@[A-Za-z0-9\[]")
_ALNUM = re.compile(r"[A-Za-z0-9]{16,}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_UUID = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z])")
"""Devices and volumes are named so; it is an identity, not a secret."""

_HEX = re.compile(r"(?<![A-Za-z0-9])[0-9a-fA-F]{32,}(?![A-Za-z0-9])")


def escape(text: str) -> str:
    """Text on one line, whatever it holds: control and invisible characters, and bytes that were not UTF-8, escaped."""
    shown: list[str] = []
    for character in text:
        code = ord(character)
        if 0xDC80 <= code <= 0xDCFF:
            shown.append(f"\\x{code - 0xDC00:02x}")
        elif character == "\\":
            shown.append("\\\\")
        elif unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            names = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
            shown.append(
                names.get(character)
                or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}")
            )
        else:
            shown.append(character)
    return "".join(shown)


def _forms(secret: str) -> Iterable[str]:
    """A secret as it may occur inside another value."""
    yield secret
    stripped = secret.strip()
    if len(stripped) >= 4:
        yield stripped
        for safe in ("", "/", "/:@"):
            yield urllib.parse.quote(stripped, safe=safe, errors="surrogateescape")
        yield urllib.parse.quote_plus(stripped, errors="surrogateescape")
        yield json.dumps(stripped)[1:-1]
        raw = stripped.encode("utf-8", "surrogateescape")
        for offset in range(3):
            encoded = base64.b64encode(b"\0" * offset + raw).decode()
            core = encoded[4 if offset else 0 :].rstrip("=")[:-1]
            if len(core) >= 8:
                yield core
                yield core.replace("+", "-").replace("/", "_")


class Masker:
    """Decides what of each value may be shown.

    Args:
        secrets: The values of redacted variables; any value that contains one is masked. They are kept only here, and
            never shown by ``repr``.
    """

    __slots__ = ("_exact", "_forms")

    def __init__(self, secrets: Iterable[str]) -> None:
        kept = {secret for secret in secrets if secret}
        self._exact = frozenset(kept)
        self._forms = frozenset(
            form.casefold() for secret in kept if len(secret) >= 4 for form in _forms(secret) if len(form) >= 4
        )

    def __repr__(self) -> str:
        return "Masker(…)"

    def has_secret(self, text: str) -> bool:
        """Whether a text is, or contains, a redacted variable's value in plain or usual encodings."""
        folded = text.casefold()
        return text in self._exact or any(form in folded for form in self._forms)

    def name(self, name: str) -> str:
        """A name as it may be shown."""
        return MASK if self.has_secret(name) or _token_like(name) else escape(name)

    def value(self, value: str) -> tuple[str, bool]:
        """What may be shown of a value, and whether anything was hidden."""
        if len(value) > MAX_SCANNED or self.has_secret(value):
            return MASK, True
        url = _URL.fullmatch(value)
        if url is not None and "," not in value:
            return self._url(value)
        if suspicious(value):
            return MASK, True
        shown = escape(value[:MAX_SHOWN])
        return (
            (shown, False)
            if len(value) <= MAX_SHOWN
            else (f"{shown}… ({len(value) - MAX_SHOWN} more characters)", False)
        )

    def _url(self, value: str) -> tuple[str, bool]:
        """A URL without its user-info and without query values that may sign or authorise."""
        scheme, _, rest = value.partition("://")
        authority, slash, tail = rest.partition("/")
        if "?" in authority or "#" in authority:
            cut = min(i for i in (authority.find("?"), authority.find("#")) if i >= 0)
            authority, slash, tail = authority[:cut], "", authority[cut:] + slash + tail
        if "@" in tail:
            return MASK, True  # a password with a slash in it, or something stranger
        hidden = False
        host = authority
        if "@" in authority:
            host, hidden = f"{MASK}@{authority.rpartition('@')[2]}", True
        path, mark, query = tail.partition("?")
        if not mark:
            path, mark, query = tail.partition("#")
        if (
            scheme.lower() in ("data", "javascript", "jdbc", "hooks")
            or "hooks." in host
            or suspicious(path)
            or suspicious(host.rpartition("@")[2])
        ):
            return MASK, True
        if query:
            kept: list[str] = []
            for part in re.split(r"[&;#]", query):
                key, equals, content = part.partition("=")
                plain = urllib.parse.unquote_plus(content)
                if (
                    not equals
                    or is_secret_name(key)
                    or key.lower() in _SIGNED
                    or len(plain) > 24
                    or suspicious(plain)
                    or suspicious(key)
                ):
                    hidden = True
                    kept.append(MASK)
                else:
                    kept.append(part)
            query = "&".join(kept)
        return escape(f"{scheme}://{host}{slash}{path}{mark}{query}"), hidden


_SIGNED = frozenset(
    {
        "sig",
        "sv",
        "se",
        "sp",
        "spr",
        "srt",
        "st",
        "skoid",
        "sktid",
        "x-amz-signature",
        "x-amz-credential",
        "x-amz-security-token",
        "x-amz-algorithm",
        "x-goog-signature",
        "x-goog-credential",
        "awsaccesskeyid",
        "code",
        "state",
        "expires",
        "policy",
        "key-pair-id",
        "access_token",
        "id_token",
        "user",
        "username",
        "sid",
        "session",
        "sessionid",
        "t",
        "k",
        "s",
    }
)


def suspicious(value: str) -> bool:
    """Whether a value holds something that looks like a secret, by shape alone."""
    if not value:
        return False
    decoded = urllib.parse.unquote(value) if "%" in value else value
    for text in {value, decoded}:
        if _PEM.search(text) or _PREFIXED.search(text) or _SCHEME_TOKEN.search(text) or _USERINFO.search(text):
            return True
        if _USER_FLAG.search(text) or _secret_pair(text) or _secret_json(text) or _token_like(text):
            return True
        for url in _URL.finditer(text):
            authority = re.split(r"[/?#]", url["rest"], maxsplit=1)[0]
            if "@" in authority or "@" in url["rest"] or (text != url[0] and "?" in url["rest"] and "=" in url["rest"]):
                return True
    return False


def _secret_pair(text: str) -> bool:
    for pattern in (_PAIR, _FLAG):
        for found in pattern.finditer(text):
            key = found["key"].strip()
            counted = key.upper().endswith("S") and found["value"].isdigit()
            if is_secret_name(key.rpartition(" ")[2]) and not counted:
                return True
    return False


def _secret_json(text: str) -> bool:
    stripped = text.strip()
    if stripped[:1] not in ("{", "["):
        return False
    try:
        loaded = json.loads(stripped)
    except (ValueError, RecursionError):
        # It may be JSON cut short or another notation; a quoted secret key in it is enough.
        return any(is_secret_name(key) for key in re.findall(r"""["']([^"'{}\[\]]{1,80})["']\s*[:=]""", stripped))
    return _secret_tree(loaded)


def _secret_tree(tree: Any) -> bool:
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            for key, content in node.items():
                if is_secret_name(str(key)) and not isinstance(content, bool | int | None):
                    return True
                pending.append(content)
        elif isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, str) and suspicious(node):
            return True
    return False


def _token_like(text: str) -> bool:
    """Runs of characters too random to be words: long hex, base64, or letters and digits mixed without pattern."""
    text = _UUID.sub("", text)
    if _HEX.search(text):
        return True
    for run in _ALNUM.findall(text):
        digits = sum(character.isdigit() for character in run)
        upper = sum(character.isupper() for character in run)
        lower = len(run) - digits - upper
        changes = sum(_kind(a) != _kind(b) for a, b in itertools.pairwise(run))
        if changes >= 5 and (digits >= 2 or (upper >= 4 and lower >= 4 and changes * 2 >= len(run))):
            return True
    for run in _BASE64.findall(text):
        core = re.sub(r"[^A-Za-z0-9]", "", run)
        words_in = [part for part in re.split(r"[/_\-+]", run) if part]
        if run.count("/") + run.count("-") + run.count("_") >= len(run) // 9 and all(_wordy(part) for part in words_in):
            continue
        changes = sum(_kind(a) != _kind(b) for a, b in itertools.pairwise(core))
        if len(core) >= 20 and changes >= len(core) // 3 and any(c.isdigit() for c in core):
            return True
        if run.endswith("=") and len(run) % 4 == 0 and len(run) >= 24 and _decodes(run):
            return True
    return False


def _wordy(part: str) -> bool:
    changes = sum(_kind(a) != _kind(b) for a, b in itertools.pairwise(part))
    return changes <= 4 or len(part) <= 6


def _decodes(run: str) -> bool:
    try:
        base64.b64decode(run, altchars=b"-_" if ("-" in run or "_" in run) else None, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _kind(character: str) -> int:
    return 0 if character.isdigit() else 1 if character.isupper() else 2
