"""What secrets look like: the shapes of known credentials, and what is random but public."""

from __future__ import annotations

import re
from functools import cache
from typing import Final


@cache
def compiled(source: str) -> re.Pattern[str]:
    """Compile a pattern when it is first needed; importing this module compiles nothing."""
    return re.compile(source, re.ASCII)


def lower(text: str) -> str:
    """Lower-case text so that every character keeps its place."""
    lowered = text.lower()
    # One letter of all grows when it is lower-cased.
    return lowered if len(lowered) == len(text) else text.replace("\u0130", "i").lower()


# A left edge that also holds after an escaped newline, a percent escape and a terminal colour,
# whose last letter would otherwise hide the beginning of a token.
EDGE: Final = (
    r"(?:(?<![\w-])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})"
    r"|(?<=\x1b\[m)|(?<=\x1b\[\dm)|(?<=\x1b\[\d\dm)|(?<=\x1b\[\d;\d\dm))"
)

# kind, literal beginnings, what follows. Lengths are the least that is telling, not the provider's
# own: a token that was cut short is still a secret. A tail either matches within its first few
# characters or takes its whole run, which keeps the search linear.
Shape = tuple[str, str, str]
SHAPES: Final[tuple[Shape, ...]] = (
    ("aws-key", "AKIA", r"[A-Z0-9]{16,}"),
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{20,}"),
    ("github-token", "github_pat_", r"\w{22,}"),
    ("gitlab-token", "glpat- gldt- glrt- glptt- glcbt- glsoat- glimt-", r"[\w.-]{18,}\w"),
    ("gitlab-token", "GR1348941 glagent- _gitlab_session=", r"[\w-]{20,}"),
    ("slack-token", "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs-", r"[\w%-]{12,}"),
    ("slack-token", "xoxe.xoxp- xoxe.xoxb- xapp-", r"[\w-]{16,}"),
    ("slack-webhook", "hooks.slack.com/", r"(?:services|workflows|triggers)/[\w/-]{20,}"),
    ("discord-webhook", "discord.com/api/ discordapp.com/api/", r"(?:v\d+/)?webhooks/[\w/-]{40,}"),
    ("teams-webhook", "webhook.office.com/", r"webhookb2/[\w/@-]{40,}"),
    ("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_", r"[A-Za-z0-9]{10,}"),
    ("stripe-key", "whsec_", r"[\w+/=-]{24,}"),
    ("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", r"[\w-]{20,}"),
    ("anthropic-key", "sk-ant-", r"[\w-]{20,}"),
    ("openrouter-key", "sk-or-v1-", r"\w{20,}"),
    ("google-key", "AIza", r"[\w-]{30,}"),
    ("google-token", "GOCSPX- ya29.", r"[\w.-]{19,}[\w-]"),
    ("npm-token", "npm_", r"[A-Za-z0-9]{30,}"),
    ("pypi-token", "pypi-AgE", r"[\w-]{40,}"),
    ("docker-token", "dckr_pat_ dckr_oat_", r"[\w-]{20,}"),
    ("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{40,}"),
    ("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"[0-9A-Fa-f]{28,}"),
    ("square-token", "sq0atp- sq0csp- sq0idp-", r"[\w-]{20,}"),
    ("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"[\w.-]{30,}\w"),
    ("linear-key", "lin_api_ lin_oauth_", r"[A-Za-z0-9]{30,}"),
    ("sentry-token", "sntrys_ sntryu_", r"[\w+/=-]{40,}"),
    ("age-key", "AGE-SECRET-KEY-1 AGE-PLUGIN-", r"[0-9A-Z-]{30,}"),
    ("grafana-token", "glsa_ glc_", r"[\w+/=-]{32,}"),
    ("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w.=-]{30,}"),
    ("supabase-key", "sbp_ sb_secret_", r"[\w-]{20,}"),
    ("figma-token", "figd_ figu_", r"[\w-]{30,}"),
    ("atlassian-token", "ATATT3x ATCTT3x", r"[\w=-]{24,}"),
    ("newrelic-key", "NRAK- NRJS- NRII- NRIQ-", r"[\w-]{19,}"),
    ("postman-key", "PMAK-", r"[0-9a-f-]{40,}"),
    ("rubygems-key", "rubygems_", r"[0-9a-f]{40,}"),
    ("langsmith-key", "lsv2_pt_ lsv2_sk_", r"[0-9a-f_]{30,}"),
    ("brevo-key", "xkeysib- xsmtpsib-", r"[\w-]{40,}"),
    ("tailscale-key", "tskey-", r"[\w-]{20,}"),
    ("circleci-token", "CCIPAT_ CCIPRJ_", r"\w{30,}"),
    ("perplexity-key", "pplx-", r"[A-Za-z0-9]{32,}"),
    ("heroku-key", "HRKU-", r"[\w-]{30,}"),
    ("dynatrace-token", "dt0c01. dt0s16.", r"[A-Z0-9]{24}\.[A-Z0-9]{40,}"),
    ("fly-token", "fm1_ fm2_ fo1_", r"[\w+/=,-]{40,}"),
    ("onepassword-token", "ops_eyJ", r"[\w-]{40,}"),
    ("razorpay-key", "rzp_live_ rzp_test_", r"[A-Za-z0-9]{12,}"),
    ("flutterwave-key", "FLWSECK-", r"[\w-]{20,}"),
    ("password-hash", "$2a$ $2b$ $2y$", r"\d\d\$[\w./]{40,}"),
    ("password-hash", "$1$ $5$ $6$ $y$ $apr1$", r"[\w./=$]{20,}"),
    ("password-hash", "$argon2", r"[\w./=$,+]{30,}"),
)

# The same for beginnings that ordinary words and data contain: these need a left edge.
EDGED: Final[tuple[Shape, ...]] = (
    ("aws-key", "ASIA ABIA ACCA", r"[A-Z0-9]{16,}"),
    ("jwt", "eyJ", r"[\w-]{8,}\.(?:eyJ[\w-]{6,}(?:\.[\w-]*)?|[\w-]*\.[\w-]{2,}(?:\.[\w-]+){0,2})"),
    ("openai-key", "sk-", r"[A-Za-z0-9]{20,}"),
    ("huggingface-token", "hf_ api_org_", r"[A-Za-z0-9]{30,}"),
    ("sendgrid-key", "SG.", r"[\w-]{16,24}\.[\w-]{20,}"),
    ("twilio-key", "SK", r"[0-9a-f]{32,}"),
    ("mailgun-key", "key-", r"[0-9a-z]{32,}"),
    ("databricks-token", "dapi", r"[0-9a-f]{32}(?:-\d)?"),
    ("vault-token", "hvs. hvb. hvr.", r"[\w-]{20,}"),
    ("notion-token", "ntn_ secret_", r"[A-Za-z0-9]{40,}"),
    ("google-token", "1//0", r"[\w-]{38,}"),
    ("groq-key", "gsk_", r"[A-Za-z0-9]{40,}"),
    ("xai-key", "xai-", r"[A-Za-z0-9]{40,}"),
    ("replicate-token", "r8_", r"[A-Za-z0-9]{30,}"),
    ("resend-key", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
    ("airtable-token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{60,}"),
    ("pulumi-token", "pul-", r"[0-9a-f]{40}"),
    ("dropbox-token", "sl.", r"[\w-]{60,}"),
    ("contentful-token", "CFPAT-", r"[\w-]{40,}"),
    ("nuget-key", "oy2", r"[a-z0-9]{43}"),
    ("crates-token", "cio", r"[A-Za-z0-9]{32,}"),
    ("artifactory-key", "AKCp", r"[A-Za-z0-9]{60,}"),
    ("plaid-token", "access-sandbox- access-production-", r"[0-9a-f-]{36}"),
    ("typeform-token", "tfp_", r"[\w-]{40,}"),
    ("easypost-key", "EZAK EZTK", r"[A-Za-z0-9]{50,}"),
)

# The same edge, seen from behind the first character: a pattern that begins with a character, not
# with a condition, is found faster.
_EDGE = r"(?:(?<![\w.+/-].)|(?<=\\[nrt].)|(?<=\x1b\[\dm.)|(?<=\x1b\[\d\dm.))"
# Shapes whose telling part stands in the middle: kind, what must be there, the whole.
MIDDLE: Final[tuple[Shape, ...]] = (
    ("telegram-token", ":AA", r"\d(?<!\d\d)\d{7,9}:AA[\w-]{32,}"),
    ("azure-secret", "Q~", rf"\w{_EDGE}[\w~.-]{{2}}\dQ~[\w~.-]{{30,34}}"),
    ("terraform-token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{50,}"),
    ("mailchimp-key", "-us", rf"[0-9a-f]{_EDGE}[0-9a-f]{{31}}-us\d{{1,2}}"),
    ("mailgun-key", "-", rf"[0-9a-f]{_EDGE}[0-9a-f]{{31}}-[0-9a-f]{{8}}-[0-9a-f]{{8,}}"),
    ("discord-token", ".", rf"[MNO]{_EDGE}[\w-]{{23,27}}\.[\w-]{{6}}\.[\w-]{{27,}}"),
    ("atlassian-token", "ATBB", rf"A{_EDGE}TBB[A-Za-z0-9]{{24,}}"),
    ("square-token", "EAAA", rf"E{_EDGE}AAA[\w-]{{56,}}"),
    ("facebook-token", "EAA", rf"E{_EDGE}AA[A-Za-z0-9]{{80,}}"),
    ("azure-sas", "sig=", r"(?<=[?&;]sig=)[\w%+/-]{40,}={0,2}"),
    ("aws-signature", "Signature=", r"(?<=X-Amz-Signature=)[0-9a-f]{64}"),
)

# Secrets by position: kind, what must be there, the pattern, and whether the hint is a tool that
# must stand before it in the same command.
COMMANDS: Final[tuple[tuple[str, str, str, bool], ...]] = (
    ("password", "login", r"login\s{1,9}\S{1,99}\s{1,9}password\s{1,9}(?P<v>\S+)", False),
    ("password", "identified", r"identified (?:with \S{1,40} )?by ['\"](?P<v>[^'\"\n]+)", False),
    ("private-key", '"kty"', r'"d"\s{0,4}:\s{0,4}"(?P<v>[\w-]{40,})"', False),
    ("password", "curl", r"\s(?:-u|--(?:proxy-)?user)[ =]?['\"]?[^\s:'\"]+:(?P<v>[^\s'\"]+)", True),
    ("cookie", "curl", r"\s(?:-b|--cookie)[ =]['\"]?[\w.-]+=(?P<v>[^\s;'\"]{6,})", True),
    ("password", "sshpass", r"\s-p ?['\"]?(?P<v>[^\s'\"]+)", True),
    ("password", "mysql", r"\s-p(?!\d+:)['\"]?(?P<v>[^\s'\"]{3,})", True),
    ("password", "redis-cli", r"\s-a ['\"]?(?P<v>[^\s'\"]+)", True),
    ("password", "docker login", r"\s-p ['\"]?(?P<v>[^\s'\"]+)", True),
)

# A private-key block: its first and last line, a line between, what may stand between lines, and a
# line that was broken.
_KEY_TYPE = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?: ?-{1,5})?"
KEY_BEGINS: Final = rf"-{{4,5}} ?BEGIN {_KEY_TYPE}|Private-Lines: ?\d+"
KEY_ENDS: Final = rf"-{{4,5}} ?END {_KEY_TYPE}"
KEY_LINE: Final = r"(?:\d{1,6}[\u2192\t:|] *)?[A-Za-z0-9+/=]+\Z"
GAP: Final = r"(?:\\[nr]?|[^A-Za-z0-9+/=\\]|\d{1,6}(?=[\u2192\t:|]))"
KEY_SHORT: Final = r"(?=[A-Za-z]*(?:[0-9+/=]|[a-z][A-Z]))[A-Za-z0-9+/=]{5,15}(?=\s|\\)"

# Random strings that are public: digests, keys to be shared, images, archives, identifiers; and the
# names that announce such a string.
PUBLIC: Final = (
    r".*(?:EXAMPLE|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-)|\w{8}-\w{4}-\w{4}-\w{4}-\w{12}\Z"
    r"|sha\d{1,3}-|AAAA[A-Z]|Qm[1-9A-Za-z]{44}\Z|_{0,2}_[ZR]|iVBORw0|/9j/|R0lGOD|UklGR|AGFzbQ|H4sI|MII"
)
PUBLISHED: Final = (
    r"(?i)(?:base64,|sha\d{3}:|h1:|\?[bq]\?|(?:id|sha\d*|hash|digest|checksum|integrity|fingerprint"
    r"|etag|signature|revision|version|marker|cursor|pub(?:lic)?_?key|next_?token)\d{0,4}"
    r"\\?[\"']?[ \t]{0,4}[:= ][ \t]{0,4}\\?[\"']?)\Z"
)
