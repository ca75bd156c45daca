"""What secrets look like: known shapes, random strings, private keys; and what is public."""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

# -- What secrets look like: the shapes of known credentials, and what is random but public.


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
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"\w{20,}"),
    ("github-token", "github_pat_", r"\w{22,}"),
    ("gitlab-token", "glpat- gldt- glrt- glptt- glcbt- glsoat-", r"[\w.=-]{18,}\w"),
    ("gitlab-token", "glimt- glft- glwt-", r"[\w.=-]{18,}\w"),
    ("gitlab-token", "GR1348941 glagent- glffct- gloas- _gitlab_session=", r"[\w-]{20,}"),
    ("slack-token", "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs-", r"[\w%-]{12,}"),
    ("slack-token", "xoxe.xoxp- xoxe.xoxb- xapp-", r"[\w-]{16,}"),
    ("slack-webhook", "hooks.slack.com/", r"(?:services|workflows|triggers)/[\w/-]{20,}"),
    ("discord-webhook", "discord.com/api/ discordapp.com/api/", r"(?:v\d+/)?webhooks/[\w/-]{40,}"),
    ("teams-webhook", "webhook.office.com/ outlook.office.com/", r"webhook(?:b2)?/[\w/@-]{36,}"),
    ("zapier-webhook", "hooks.zapier.com/hooks/catch/", r"[\w/]{12,}"),
    ("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_ sk_prod_ rk_prod_", r"[A-Za-z0-9-]{10,}"),
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
    ("square-token", "sq0", r"[a-z]{3}-[\w-]{20,}"),
    ("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"[\w.-]{30,}\w"),
    ("linear-key", "lin_api_ lin_oauth_", r"[A-Za-z0-9]{30,}"),
    ("sentry-token", "sntrys_ sntryu_", r"[\w+/=-]{40,}"),
    ("age-key", "AGE-SECRET-KEY-1 AGE-PLUGIN-", r"[0-9A-Z-]{30,}"),
    ("grafana-token", "glsa_ glc_", r"[\w+/=-]{32,}"),
    ("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w.=-]{30,}"),
    ("supabase-key", "sbp_ sb_secret_", r"[\w-]{20,}"),
    ("figma-token", "figd_ figu_ figp_ figo_", r"[\w-]{30,}"),
    ("atlassian-token", "ATATT3x ATCTT3x", r"[\w=-]{24,}"),
    ("newrelic-key", "NRAK- NRJS- NRII- NRIQ- NRBR- NRRA- NRAA- NRSP-", r"[\w-]{19,}"),
    ("postman-key", "PMAK-", r"[0-9A-Za-z-]{40,}"),
    ("rubygems-key", "rubygems_", r"[0-9a-f]{40,}"),
    ("langsmith-key", "lsv2_pt_ lsv2_sk_", r"[0-9a-f_]{30,}"),
    ("brevo-key", "xkeysib- xsmtpsib-", r"[\w-]{40,}"),
    ("tailscale-key", "tskey-", r"[\w-]{20,}"),
    ("circleci-token", "CCIPAT_ CCIPRJ_", r"\w{30,}"),
    ("perplexity-key", "pplx-", r"[A-Za-z0-9]{32,}"),
    ("heroku-key", "HRKU-", r"[\w-]{30,}"),
    ("dynatrace-token", "dt0c01. dt0s01. dt0s16. dt0e01.", r"[A-Z0-9]{24}\.[A-Z0-9]{40,}"),
    ("fly-token", "fm1_ fm1a_ fm1r_ fm2_ fo1_", r"[\w+/=,-]{40,}"),
    ("onepassword-token", "ops_eyJ", r"[\w+/=-]{40,}"),
    ("onepassword-key", "A3-", r"[A-Z0-9]{6}(?:-[A-Z0-9]{5,11}){4,5}"),
    ("razorpay-key", "rzp_live_ rzp_test_", r"[A-Za-z0-9]{12,}"),
    ("flutterwave-key", "FLWSECK- FLWSECK_TEST-", r"[\w-]{12,}"),
    ("amazon-key", "amzn.mws.", r"[0-9a-f-]{36}"),
    ("bedrock-key", "bedrock-api-key- ABSKQmVkcm9ja", r"[\w+/=-]{20,}"),
    ("sonarqube-token", "sqp_ squ_ sqa_ sqco_", r"[0-9A-Za-z]{36,}"),
    ("sourcegraph-token", "sgp_ slk_", r"[\w-]{36,}"),
    ("cloudflare-key", "v1.0-", r"[0-9a-f]{24}-[0-9a-f]{40,}"),
    ("shippo-token", "shippo_live_ shippo_test_", r"[0-9A-Fa-f]{36,}"),
    ("readme-key", "rdme_", r"[a-z0-9]{60,}"),
    ("clojars-token", "CLOJARS_", r"[A-Za-z0-9]{50,}"),
    ("duffel-token", "duffel_live_ duffel_test_", r"[\w=-]{36,}"),
    ("buildkite-token", "bkua_ bkaj_ bkct_", r"[A-Za-z0-9]{36,}"),
    ("langfuse-key", "sk-lf-", r"[0-9a-f-]{36}"),
    ("browserbase-key", "bb_live_ bb_test_", r"[\w-]{20,}"),
    ("apify-token", "apify_api_", r"[A-Za-z0-9-]{30,}"),
    ("openshift-token", "sha256~", r"[\w-]{40,}"),
    ("pagarme-key", "ak_live_ ak_test_", r"[A-Za-z0-9]{26,}"),
    ("rootly-token", "rootly_", r"[0-9a-f]{60,}"),
    ("ramp-secret", "ramp_sec_", r"[A-Za-z0-9]{40,}"),
    ("mongodb-secret", "mdb_sa_sk_", r"[\w-]{36,}"),
    ("posthog-key", "phx_", r"\w{40,}"),
    ("prefect-key", "pnu_ pnb_", r"[A-Za-z0-9]{32,}"),
    ("frameio-token", "fio-u-", r"[\w=-]{40,}"),
    ("pubnub-key", "pub-c- sub-c- sec-c-", r"[\w-]{36,}"),
    ("salesforce-token", "3MVG9 5Aep861", r"[\w.+/=-]{60,}"),
    ("intra42-secret", "s-s4t2ud- s-s4t2af-", r"[0-9a-f]{60,}"),
    ("artifactory-token", "cmVmdGtu", r"[A-Za-z0-9]{48,}"),
    ("authress-key", "sc_ ext_", r"[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[\w./+=-]{30,}"),
    ("authress-key", "scauth_ authress_", r"[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[\w./+=-]{30,}"),
    ("bitbucket-token", "BBDC-", r"[\w+/@-]{36,}"),
    ("braintree-token", "access_token$", r"(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}"),
    ("cloudflare-token", "cfk_ cfut_ cfat_", r"[A-Za-z0-9_-]{36,}"),
    ("endor-key", "endr+", r"[A-Za-z0-9-]{16,}"),
    ("flexport-token", "shltm_", r"[\w-]{36,}"),
    ("honeycomb-key", "hcaik_ hcxik_ hcxlk_ hcamk_", r"[a-z0-9]{40,}"),
    ("jina-key", "jina_", r"[A-Za-z0-9_-]{40,}"),
    ("jwt", "ZXlKaGJHY2lPaU ZXlKMGVYQWlPaU ZXlKcmFXUWlPaU", r"[\w+/=-]{30,}"),
    ("neon-key", "napi_", r"[a-z0-9]{40,}"),
    ("netlify-token", "nfp_", r"[A-Za-z0-9]{32,}"),
    ("nvidia-key", "nvapi-", r"[\w-]{50,}"),
    ("paddle-key", "pdl_live_ pdl_sdbx_", r"\w{30,}"),
    ("perceptive-key", "px-api- px-dep-", r"[0-9a-f-]{36}"),
    ("pinecone-key", "pcsk_", r"\w{40,}"),
    ("settlemint-token", "sm_aat_ sm_pat_ sm_sat_", r"[A-Za-z0-9]{16}"),
    ("stackhawk-key", "hawk.", r"[\w-]{20}\.[\w-]{20}"),
    ("tavily-key", "tvly-", r"[\w-]{30,}"),
    ("salad-key", "salad_cloud_", r"\w{8,}"),
    ("defined-key", "dnkey-", r"[\w=-]{60,}"),
    ("trufflehog-key", "thog-key- thog-secret-", r"[0-9a-f]{16,}"),
    ("ubidots-token", "BBFF-", r"[A-Za-z0-9]{30}"),
    ("password-hash", "$2a$ $2b$ $2y$", r"\d\d\$[\w./]{40,}"),
    ("password-hash", "$1$ $5$ $6$ $7$ $8$ $9$ $y$ $gy$ $apr1$", r"[\w./=$]{20,}"),
    ("password-hash", "$krb5", r"[\w./=$:@*-]{40,}"),
    ("password-hash", "$argon2", r"[\w./=$,+]{30,}"),
)

_CLAIMS: Final = r"e[yw][Jo][\w-]{6,}={0,2}(?:\.[\w-]*)?"
_SIGNED: Final = r"[\w-]*\.[\w-]{2,}(?:\.[\w-]+){0,2}"
# The same for beginnings that ordinary words and data contain: these need a left edge.
EDGED: Final[tuple[Shape, ...]] = (
    ("aws-key", "ASIA ABIA ACCA A3T AGPA AIDA AROA AIPA ANPA ANVA", r"[A-Z0-9]{16,}"),
    ("jwt", "eyJ ewogI ewoi", rf"[\w-]{{8,}}={{0,2}}\.(?:{_CLAIMS}|{_SIGNED})"),
    ("jwt", "ey", r"[\w-]{17,}\.ey[\w./-]{17,}={0,2}"),
    ("openai-key", "sk-", r"[A-Za-z0-9]{20,}"),
    ("huggingface-token", "hf_ api_org_", r"[A-Za-z0-9]{30,}"),
    ("sendgrid-key", "SG.", r"[\w-]{16,24}\.[\w-]{20,}|[\w=.-]{60,}"),
    ("twilio-key", "SK", r"[0-9a-f]{32,}"),
    ("mailgun-key", "key-", r"[0-9a-z]{32,}"),
    ("databricks-token", "dapi", r"[0-9a-f]{32}(?:-\d)?"),
    ("vault-token", "hvs. hvb. hvr.", r"[\w-]{20,}"),
    ("notion-token", "ntn_ secret_", r"[A-Za-z0-9]{40,}"),
    ("google-token", "1//0", r"[\w-]{38,}"),
    ("groq-key", "gsk_", r"[A-Za-z0-9]{40,}"),
    ("xai-key", "xai-", r"\w{40,}"),
    ("replicate-token", "r8_", r"[A-Za-z0-9]{30,}"),
    ("resend-key", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
    ("airtable-token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{60,}"),
    ("pulumi-token", "pul-", r"[0-9a-z]{40}"),
    ("dropbox-token", "sl.", r"[\w=-]{60,}"),
    ("contentful-token", "CFPAT-", r"[\w-]{40,}"),
    ("nuget-key", "oy2", r"[a-z0-9]{43}"),
    ("crates-token", "cio", r"[A-Za-z0-9]{32,}"),
    ("artifactory-key", "AKCp", r"[A-Za-z0-9]{60,}"),
    ("plaid-token", "access-sandbox- access-development- access-production-", r"[0-9a-f-]{36}"),
    ("typeform-token", "tfp_", r"[\w.=-]{40,}"),
    ("easypost-key", "EZAK EZTK", r"[A-Za-z0-9]{50,}"),
    ("alibaba-key", "LTAI", r"[A-Za-z0-9]{12,30}(?![A-Za-z0-9])"),
    ("appsync-key", "da2-", r"[a-z0-9]{26}"),
    ("harness-token", "pat. sat.", r"[\w-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}"),
    ("infisical-token", "st.", r"[0-9a-f-]{24,36}\.[0-9a-f]{32}\.[0-9a-f]{32}"),
    ("mapbox-token", "sk. pk. tk.", r"[\w+/=-]{32,128}\.[\w+/=-]{20,}"),
    ("cerebras-key", "csk-", r"[a-z0-9]{40,}"),
    ("firecrawl-key", "fc-", r"[0-9a-f]{32}"),
    ("e2b-key", "e2b_", r"[0-9a-f]{32,}"),
    ("adafruit-key", "aio_", r"[A-Za-z0-9]{28}"),
    ("infracost-key", "ico-", r"[A-Za-z0-9]{32}"),
    ("elevenlabs-key", "sk_", r"[0-9a-f]{40,}"),
    ("ionic-token", "ion_", r"[A-Za-z0-9]{40,}"),
    ("lob-key", "live_ test_ live_pub_ test_pub_", r"[0-9a-f]{31,35}(?![0-9a-f])"),
    ("gocardless-token", "live_ sandbox_", r"[\w=-]{38,}"),
    ("hubspot-token", "pat-eu1- pat-na1-", r"[A-Za-z0-9-]{36}"),
    ("launchdarkly-key", "sdk- mob- api-", r"[0-9a-z]{8}-[0-9a-z]{4}-4[0-9a-z-]{17,}"),
    ("robinhood-key", "rh-api-", r"[0-9A-Fa-f-]{36}"),
    ("voiceflow-key", "VF. VF.DM. VF.WS.", r"[0-9A-Fa-f]{24}\.[A-Za-z0-9]{16}"),
    ("zoho-token", "1000.", r"[0-9a-f]{32}\.[0-9a-f]{32}"),
    ("yandex-token", "t1.", r"[\w-]+={0,2}\.[\w-]{80,}"),
    ("yandex-key", "AQVN", r"[\w-]{35,}"),
    ("grafana-token", "eyJrIjoi", r"[A-Za-z0-9]{50,}"),
    ("adobe-secret", "p8e-", r"[A-Za-z0-9-]{32}"),
    ("azure-token", "0.A 1.A", r"[\w-]{50,}(?:\.\d)?\.Ag[\w-]{100,}"),
    ("bitly-key", "R_", r"[0-9a-f]{32}"),
    ("clickhouse-key", "4b1d", r"[A-Za-z0-9]{38}(?![A-Za-z0-9])"),
    ("clickup-token", "pk_", r"\d{7,9}_[0-9A-Z]{32}"),
    ("klaviyo-key", "pk_", r"(?:[A-Za-z0-9]{6}_)?[0-9a-f]{34}"),
    ("fcm-key", "AAAA", r"[\w-]{7}:APA91[\w-]{100,}"),
    ("nightfall-key", "NF-", r"[A-Za-z0-9]{32}"),
    ("octopus-key", "API-", r"[A-Z0-9]{26,}"),
    ("saucelabs-key", "oauth-", r"[a-z0-9]{8,}-[a-z0-9]{5}(?![a-z0-9])"),
    ("scalingo-token", "tk-us-", r"[\w-]{40,}"),
    ("telnyx-key", "KEY0", r"[\w-]{50,}"),
    ("twitch-key", "live_", r"\d{8,12}_[A-Za-z0-9]{20,}"),
    ("newrelic-key", "nrak- nraa- nrii- nriq- nrra-", r"[\w-]{25,}"),
    ("woocommerce-key", "ck_ cs_", r"[0-9a-f]{40}"),
)

# The same edge, seen from behind the first character: a pattern that begins with a character, not
# with a condition, is found faster.
_EDGE = r"(?:(?<![\w.-].)|(?<=\\[nrt].)|(?<=\x1b\[\dm.)|(?<=\x1b\[\d\dm.))"
_AZURE: Final = "CR|St|MC|DB|SbE|EhB|Io|Ra|Se|pC"
# Shapes whose telling part stands in the middle: kind, what must be there, the whole.
MIDDLE: Final[tuple[Shape, ...]] = (
    ("telegram-token", ":AA", r"\d(?<!\d\d)\d{7,9}:AA[\w-]{32,}"),
    ("azure-secret", "Q~", rf"\w{_EDGE}[\w~.-]{{2}}\dQ~[\w~.-]{{30,34}}"),
    ("terraform-token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{50,}"),
    ("mailchimp-key", "-us", rf"[0-9a-f]{_EDGE}[0-9a-f]{{31}}-us\d{{1,2}}"),
    ("discord-token", ".", rf"[MNO]{_EDGE}[\w-]{{23,27}}\.[\w-]{{6}}\.[\w-]{{27,}}"),
    ("atlassian-token", "ATBB", rf"A{_EDGE}TBB[A-Za-z0-9]{{24,}}"),
    ("square-token", "EAAA", rf"E{_EDGE}AAA[\w+=-]{{56,}}"),
    ("azure-token", "AZDO", r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}"),
    ("azure-key", "+A", rf"[A-Za-z0-9+/]{{42}}\+A(?:{_AZURE})[A-Za-z0-9+/]{{4,8}}={{0,2}}"),
    ("dropbox-token", "AAAAAAAAAA", rf"[a-z0-9]{_EDGE}[a-z0-9]{{10}}A{{10}}[\w=-]{{43}}"),
    ("maxmind-key", "_mmk", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    ("newrelic-key", "NRAL", r"[0-9a-z]{32,36}(?:FFFF)?NRAL"),
    ("newrelic-key", "-NRMA", r"[0-9A-Za-z]{40,42}-NRMA"),
    ("facebook-token", "EAA", rf"E{_EDGE}AA[A-Za-z0-9]{{80,}}"),
    ("azure-sas", "sig=", r"(?<=[?&;]sig=)[\w%+/-]{40,}={0,2}"),
    ("aws-signature", "Signature=", r"(?<=X-Amz-Signature=)[0-9a-f]{64}"),
)

# Random strings that are public: digests, keys to be shared, images, archives, identifiers, names
# that a compiler made.
PUBLIC: Final = (
    r"[\w+/-]*EXAMPLE|sha\d{1,3}-|AAAA[A-Z]|/*(?:Qm[1-9A-Za-z]{44}|baf[a-z2-7]{50,})(?![A-Za-z0-9])"
    r"|_{0,2}_[ZR]|__[Pp]yx_|xn-|iVBORw0|/9j/|R0lGOD|UklGR|AGFzbQ|H4sI|MI[A-Z]|k[wg]DO"
)
# What stands before such a string: what it is, or the part of a URL or path that it names.
PUBLISHED: Final = (
    r"(?i)(?:base64,|sha\d{1,3}[:-]|h1:|nonce-[+/]?|\?[bq]\?|/nix/store/|/var/folders/\w\w/[^\s/]*"
    r"|://[^\s\"'<>`]*/(?:d|e|a|u|p|folders|file|ipfs)/[^\s/]*|(?:id|sha\d*|hash|digest|checksum|integrity"
    r"|fingerprint|etag|signature|revision|version|marker|cursor|nonce|pub(?:lic)?_?key"
    r"|(?<![a-z])n|(?:next|page|paging|continuation|sync|scroll|start)[a-z_-]{0,16}(?:token|key))"
    r"[-_]?\d{0,4}\\?[\"']?[ \t]{0,4}[:= ][ \t]{0,4}(?:\\?[\"']|W/\")?)\Z"
)
# The characters that ids, digests and tokens are made of.
RUN: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+/.~-"


# -- Strings that nothing announces and that look random: which are tokens, which only ids or
# hashes.
#
# Words are told from random letters by their neighbours: `th` is common in words, `qx` is not.


# For each letter (row) and each that follows it (column) how much likelier the two are in words
# than by chance: 6 is as likely, each step doubles. Counted by scripts/letter-pairs.
_PAIRS: Final = (
    "378745747269883729896655627454632265274364166461215282648438617754943768633150"
    "744695438326447426656333418589776452487957699946685363447721811633741655612140"
    "524383466115465306645320227234821270344372054651203176877771314879862788261517"
    "302141003011004101204000105233734361141433136331402084569433923834851366642171"
    "863593227135637703656120318488869473654675348966324156774663526779670977767532"
    "834484357037337618676230602111110110020210223170100084769563815676850787654261"
    "647595478256557744897342618465953891365586288774537467656551602778570777201201"
    "723182216002324203321111116234631561142552155221320043535523500332360336221431"
    "3343532140044546035523312240116201400111410112101011"
)
# Below this likeness nothing is a word; nine in ten random strings of 8 characters and 98 in 100 of
# 16 are.
_RANDOM: Final = -0.5
_LONGEST: Final = 512
_LOOKED_AT: Final = 256
_HEX: Final = r"(?:0x|g)?(?:[0-9a-f]+|[0-9A-F]+)\Z"
_UUID: Final = r"[0-9A-Za-z]{8}(?:-[0-9A-Za-z]{4}){3}-[0-9A-Za-z]{12}(?![0-9A-Za-z])"
_DOUBTFUL: Final = r"(?<![A-Za-z0-9])(?=[A-Za-z0-9]{8})(?:[A-Za-z]*[0-9]|[A-Za-z]{24})"
# What runs into the string after it: escaped newlines, colours, percent escapes.
_ESCAPE: Final = r"\\[nrtbf]|\x1b\[[0-9;]*m|%[0-9A-Fa-f]{2}"
_BASE64: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_PREFIX: Final = r"(?:(?:[a-z][a-z0-9]{0,11}|[A-Z][A-Z0-9]{0,11})[_.-]){1,4}"
_POD: Final = r"[a-z0-9]{8,10}-[a-z0-9]{5}\Z"
_MAILGUN: Final = r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}\Z"
_RUN: Final = r"[A-Za-z0-9][A-Za-z0-9_+/.~-]{14,}[A-Za-z0-9]={0,2}"

# Parts of a prefix that say "this opens something", and those that say "this names something".
_OPENS: Final = frozenset(
    "access admin api apikey auth bearer bot cred key live oauth pass password pat priv private"
    " pw refresh sdk sec secret sk test tok token".split()
)
_NAMES: Final = frozenset(
    "acct agent app artifact asset asst batch blob branch build bundle call card cas ch chat"
    " chatcmpl chunk ci cid cli client cluster cmp cmpl commit comp container conv cs css ctc cus"
    " customer data db dep deploy deployment device dir doc dpl email entity env event evt exp fc"
    " file flow font ft ftjob git group guid hash ic id ig image img in index ins instance invoice"
    " item job js layer lib link log main mcp md5 media message module msg node obj object ord"
    " order org page path payment pi pkg plan pm pod post pr prc price prj proc product proj"
    " project prrc py queue rec record ref release repo req request res resource resp response rev"
    " role row rs rule run sa sample sched seg sess session seti sha1 sha256 sha512 sid snap span"
    " src srv srvtoolu static step store stream style sub subnet svc tab table tag task team temp"
    " template thread ticket tmp tool toolu trace tree txn type uid upload url user usr uuid val"
    " var vendor version video vol vpc vs wf widget work worker workflow workspace wrk wrkspc"
    " ws".split()
)


def likeness(text: str) -> float:
    """How much text resembles words rather than random characters, in bits a character."""
    some = text[:_LOOKED_AT]
    return sum(map(_pair, some, some[1:])) / max(len(some), 1)


@cache
def _pair(one: str, two: str) -> int:
    if one.isalpha() and two.isalpha() and one.isascii() and two.isascii():
        if one.islower() and two.isupper():
            return -1
        return int(_PAIRS[(ord(one) | 32) * 26 + (ord(two) | 32) - 2619]) - 6
    return -2 if one.isalnum() and two.isalnum() and one.isalpha() != two.isalpha() else 0


def random_looking(value: str, least: int) -> bool:
    """Whether a value of at least this length, its prefix apart, can only be random characters."""
    prefix = compiled(r"(?:[a-z]{2,12}[-_]){0,3}").match(value)
    body = value[prefix.end() if prefix else 0 :].rstrip("=")
    return least <= len(body) <= _LONGEST and not compiled(_HEX).match(body) and _restless(body)


def is_doubtful(word: str) -> bool:
    """Whether anything in this word could be random at all."""
    return bool(compiled(_DOUBTFUL).search(word))


def tokens(word: str) -> Iterator[tuple[int, int, str]]:
    """Where strings in a word are too random and too long for an id."""
    plain = compiled(_ESCAPE).sub(lambda match: " " * len(match[0]), word)
    for part in compiled("[^ ]+").finditer(plain):
        for run in compiled(_RUN).finditer(part[0]) if is_doubtful(part[0]) else ():
            at = part.start() + run.start()
            yield from ((at + a, at + b, "high-entropy") for a, b in _stretches(run[0]))


def _restless(body: str) -> bool:
    """Whether characters follow each other as by chance, which those of an alphabet do not."""
    kinds = {"a" if c.islower() else "A" if c.isupper() else "0" for c in body if c.isalnum()}
    steps = sum(abs(ord(a) - ord(b)) == 1 for a, b in pairwise(body))
    return (
        len(kinds) > 1
        and body.isascii()
        and len(set(body)) >= min(10, len(body) * 2 // 3)
        and steps * 4 < len(body)
        and likeness(body) < _RANDOM
    )


@lru_cache(1024)
def _stretches(run: str) -> tuple[tuple[int, int], ...]:
    """The tokens in a run of characters: what stands between its words, if that is random."""
    parts = list(compiled(r"[A-Za-z0-9]+").finditer(run))
    if all(_is_word(part[0]) for part in parts if len(part[0]) >= 8):
        return ()
    words = [n for n, part in enumerate(parts) if _is_word(part[0])]
    found = []
    for first, last in zip([-1, *words], [*words, len(parts)], strict=True):
        some = parts[first + 1 : last]
        # A path, a host and a version end in numbers and small words that are no part of the token.
        while len(some) > 1 and _is_edge(some[0][0], run[some[0].end()], words):
            del some[0]
        while len(some) > 1 and _is_edge(some[-1][0], run[some[-1].start() - 1], words):
            del some[-1]
        if any(len(part[0]) >= 8 for part in some) and (start := _token(run, some)) is not None:
            rest = compiled(r"[A-Za-z0-9_-]{0,256}={0,2}").match(run, some[-1].end())
            found.append((start, rest.end() if rest else some[-1].end()))
    return tuple(found)


def _is_edge(part: str, joint: str, words: list[int]) -> bool:
    return len(part) < 8 and ((joint in "/." and bool(words)) or (joint in "._" and part.isdigit()))


def _is_word(part: str) -> bool:
    if len(part) < 4 or part.isdigit() or (len(part) < 8 and not part.isalpha()):
        return False
    if len(part) >= 16 and compiled(_HEX).match(part):
        return part.isalpha()
    return likeness(part) > (0 if len(part) < 8 else -0.25 if len(part) < 16 else _RANDOM)


def _token(run: str, parts: list[re.Match[str]]) -> int | None:
    """Where the token begins, if these parts are one and no id, hash or address."""
    long = [part for part in parts if len(part[0]) >= 8]
    hashes = all(compiled(_HEX).match(part[0]) for part in long)
    ends = long if hashes else parts
    start, end = ends[0].start(), ends[-1].end()
    edge = run.rfind("/", max(0, start - _LOOKED_AT), start) + 1 or max(0, start - _LOOKED_AT)
    if prefix := compiled(_PREFIX).match(run, edge, start if hashes else end):
        start = max(start, prefix.end())
    before, body = run[edge:start], run[start:end]
    lettered = any(map(str.isalpha, before))
    words = set(compiled(r"[_.-]").split(before.lower())) if lettered else set[str]()
    opens = words & _OPENS or any(word.endswith(("key", "token", "secret")) for word in words)
    names = words & _NAMES
    if compiled(_UUID).search(run, edge, end):
        return start if opens else None
    if hashes:
        if compiled(_MAILGUN).match(body):
            return start
        short = before.islower() and len(before) <= (12 if before.endswith("_") else 6)
        hidden = len(body) >= 16 if opens else len(body) >= 30 and short and not names
        return start if hidden else None
    least = 14 if opens else 40 if names else 32 if not words else 16 if before[-1] == "_" else 20
    most = _LONGEST if words or body.isalnum() else 128  # longer ones are data
    if not least <= len(body) <= most or compiled(_POD).match(body) or not _restless(body):
        return None
    return start


def decoded(value: str) -> str | None:
    """The plain text that a base64 string stands for, if it stands for any."""
    plain = value.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        a2b_base64(plain[:24]).decode("ascii")  # most are not, and this is soon told
        text = a2b_base64(plain + "=" * (-len(plain) % 4)).decode()
    except ValueError:
        return None
    return text if " ".join(text.split()).isprintable() else None


def wrapped(text: str, start: int, end: int) -> bool:
    """Whether this is one line of longer base64 data, such as a certificate."""
    left, right = text[max(0, start - 120) : start], text[end : end + 120]
    start -= len(left) - len(left.rstrip(_BASE64))
    end += len(right) - len(right.lstrip(_BASE64))
    gap = r"={0,2}(?:\\[nr]|[^A-Za-z0-9+/]){1,60}(?:\bb[\"'])?"
    after = end - start >= 60 and compiled(gap + "[A-Za-z0-9+/]{16}").match(text, end)
    before = compiled("[A-Za-z0-9+/]{60}" + gap + r"\Z").search(text[max(0, start - 125) : start])
    return bool(after or before)


# -- Private keys: blocks of lines between frames, whole or cut off, however each line is prefixed.
#
# A log, `grep -n` or a diff puts something before each line; JSON escapes the newlines; some tools
# print a key without its frame, or encode the block once more.


_TYPE: Final = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?: ?-{1,5})?"
_BEGIN: Final = rf"-{{4,5}} ?BEGIN {_TYPE}|Private-Lines: ?\d+"
_END: Final = rf"-{{4,5}} ?END {_TYPE}"
# How base64 of a frame and of keys begins (PKCS #1, #8 and #12, SEC 1, OpenSSH); a part of each.
_HEADS: Final = (
    r"(?<![A-Za-z0-9+/])(?:LS0tLS1CRUdJTiB(?!D)|b3BlbnNzaC1rZXktdjE|MC4CAQAwBQYDK2V"
    r"|MII[A-Za-z0-9+/]{3}(?:IBADANBgkqhkiG9w0B|IBAAK[BC]|IBAzCC)|MH[A-Za-z0-9]CAQEEI"
    r"|MI[GH][A-Za-z0-9]AgE(?:BB[DE]|AMB[AM]GByqGSM49))"
)
KEY_HINTS: Final = (
    "LS0tLS1CRUdJTiB b3BlbnNzaC1rZXktdjE CAQAwBQYDK2V IBADANBgkqhkiG9w0B IBAAK IBAzCC CAQEEI AgEBB"
    " AgEAMB"
).split()
# What ends a line, also inside a string, a URL or a page.
_BREAK: Final = r"\r?\n|\\[rn]|%0[AD]|&#(?:10|x[aA]);|<br ?/?>"
_LONGEST_LINE: Final = 1000
_FULL: Final = r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]|%2[BF]){40,}(?:=|%3D){0,2}"
_ALONE = r"[^A-Za-z0-9]*(?:\d{1,6}[\u2192\t:|.)-] *)?([A-Za-z0-9+/]{5,39}={0,2})[^A-Za-z0-9]*\Z"
# All on the line of the frame.
_RUNS: Final = r"(?:[ \t\"'+,]{0,8}[A-Za-z0-9+/=]{16,})*"
# Lines without a part of the key that may stand between two with one: fields, what a log adds.
_FIELDS, _ADDED = 8, 2


def key_blocks(text: str, *, encoded: bool) -> Iterator[tuple[int, int]]:
    """Where private keys are; `encoded`: there may be some without a frame."""
    if "PRIVATE KEY" in text or "Private-Lines" in text:
        closed = 0
        for begin in compiled(_BEGIN).finditer(text):
            if begin.start() >= closed and (end := _end(text, begin.end(), _FIELDS)):
                closed = end
                yield begin.start(), end
        closed = 0
        for final in compiled(_END).finditer(text):
            start = _start(text, final.start(), closed)
            closed = final.end()
            if start is not None:
                yield start, closed
    for head in compiled(_HEADS).finditer(text) if encoded else ():
        frame = decoded(text[head.start() : head.start() + 64]) if head[0][0] == "L" else "PRIVATE"
        if "PRIVATE" in (frame or ""):
            yield head.start(), _end(text, head.start(), 0) or head.end()


def _end(text: str, at: int, most: int) -> int | None:
    """Where a key ends that begins here: after its last line, or after the frame that closes it."""
    runs = compiled(_RUNS).match(text, at)
    end = runs.end() if runs else at
    size, others = end - at, 0
    for start, stop in _lines_after(text, end):
        if text.find("BEGIN", start, stop) >= 0:
            break
        final = compiled(_END).search(text, start, stop)
        part = _part(text, start, final.start() if final else stop)
        if part:
            size, end, others, most = size + part[1] - part[0], part[1], 0, _ADDED
        if final:
            return final.end() if size >= 20 else None
        if not part and compiled(r"[A-Za-z0-9]").search(text, start, stop):
            others += 1
            if others > most:
                break
    return end if size >= 20 else None


def _start(text: str, at: int, closed: int) -> int | None:
    """Where a key begins that ends here and whose frame is missing."""
    start, size, others = at, 0, -1  # the frame's own line may have something before it
    for first, stop in _lines_before(text, at):
        if first < closed or compiled(_BEGIN).search(text, first, stop):
            break
        if part := _part(text, first, stop):
            start, size, others = part[0], size + part[1] - part[0], 0
        elif compiled(r"[A-Za-z0-9]").search(text, first, stop):
            others += 1
            if others > _ADDED:
                break
    return start if size >= 40 else None


def _part(text: str, start: int, stop: int) -> tuple[int, int] | None:
    """Where in a line a part of a key is: one of the usual width, or a shorter one alone."""
    line = text[start:stop]
    hashes = r"[0-9a-f]+\Z|[A-Z]+\Z"
    full = [one for one in compiled(_FULL).finditer(line) if not compiled(hashes).match(one[0])]
    if full:
        return start + full[0].start(), start + full[-1].end()
    alone = compiled(_ALONE).match(line)
    if alone and (likeness(alone[1]) < -0.25 or alone[1].endswith("=")):
        return start + alone.start(1), start + alone.end(1)
    return None


def _lines_after(text: str, at: int) -> Iterator[tuple[int, int]]:
    while at < len(text):
        line = compiled(_BREAK).search(text, at, at + _LONGEST_LINE)
        end = line.start() if line else min(len(text), at + _LONGEST_LINE)
        yield at, end
        at = line.end() if line else end


def _lines_before(text: str, at: int) -> Iterator[tuple[int, int]]:
    while at:
        first = max(0, at - _LONGEST_LINE)
        lines = list(compiled(_BREAK).finditer(text, first, at))
        yield lines[-1].end() if lines else first, at
        at = lines[-1].start() if lines else first
