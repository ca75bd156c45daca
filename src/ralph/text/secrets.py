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

# The same for beginnings that ordinary words and data contain: these need a left edge.
EDGED: Final[tuple[Shape, ...]] = (
    ("aws-key", "ASIA ABIA ACCA A3T AGPA AIDA AROA AIPA ANPA ANVA", r"[A-Z0-9]{16,}"),
    (
        "jwt",
        "eyJ ewogI ewoi",
        r"[\w-]{8,}={0,2}\.(?:e[yw][Jo][\w-]{6,}={0,2}(?:\.[\w-]*)?|[\w-]*\.[\w-]{2,}(?:\.[\w-]+){0,2})",
    ),
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
    (
        "azure-key",
        "+A",
        r"[A-Za-z0-9+/]{42}\+A(?:CR|St|MC|DB|SbE|EhB|Io|Ra|Se|pC)[A-Za-z0-9+/]{4,8}={0,2}",
    ),
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
